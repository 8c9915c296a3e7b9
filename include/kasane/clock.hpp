// SPDX-License-Identifier: Apache-2.0
/// @file
/// The job's clock, and what all waits with a deadline use; included by kasane.hpp.
///
/// **Thread safety**: every function from any thread of any rank.
#pragma once

#include <kasane/kasane.h>

#include <chrono>
#include <cstdint>

namespace kasane {

/// One clock for all ranks (kasane_clock_ns). It is not called steady: a thread that moves to another host
/// may see it go back, by the difference of the hosts' times of day when the job began. On one host it is
/// steady. std::chrono::steady_clock is another clock on each host: its time points have a meaning only on
/// the host that made them.
struct clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = false;
  [[nodiscard]] static time_point now() noexcept {
    return time_point(duration(static_cast<rep>(kasane_clock_ns())));
  }
};

namespace detail {

/// Any duration, be it the first or the last of its type, of unsigned or floating-point numbers: no sum of
/// two, and no other unit, is beyond the type. It has all bits of a number of 64.
using Nanoseconds = std::chrono::duration<long double, std::nano>;

/// The time of the job's clock that is `timeout` from now, not earlier; what is more than a century away
/// never comes. NaN is no time.
[[nodiscard]] inline std::uint64_t deadline_after(Nanoseconds timeout) {
  constexpr Nanoseconds kCentury(100.0L * 366 * 24 * 3600 * 1e9L);
  const std::uint64_t now = kasane_clock_ns();
  if (!(timeout > timeout.zero())) return now;
  if (timeout > kCentury) return KASANE_NO_DEADLINE;
  const auto whole = static_cast<std::uint64_t>(timeout.count());
  return now + whole + (static_cast<long double>(whole) < timeout.count() ? 1 : 0);
}

/// What is left until `time`; not more than zero: it has come.
template <class Clock, class Duration>
[[nodiscard]] Nanoseconds left_until(const std::chrono::time_point<Clock, Duration>& time) {
  return Nanoseconds(time.time_since_epoch()) - Nanoseconds(Clock::now().time_since_epoch());
}

/// wait(deadline) is true if it got what it waited for. A clock may be set back meanwhile, so only that clock
/// says whether `time` has come.
template <class Clock, class Duration, class Wait>
bool wait_until(const std::chrono::time_point<Clock, Duration>& time, const Wait& wait) {
  for (;;) {
    if (wait(deadline_after(left_until(time)))) return true;
    if (!(left_until(time) > Nanoseconds::zero())) return false;
  }
}

}  // namespace detail
}  // namespace kasane
