// SPDX-License-Identifier: Apache-2.0
// How the executor idles: it spins a little (the next command usually comes soon), yields the core a few
// times, then sleeps.
//
//   look finds something ─▶ moved(): start again
//   look finds nothing   ─▶ step(): spin … yield … sleep ─(woken, nap ended)─▶ look; nothing: sleep at once
//
// nap() is the step into sleep of a thread that a ring and a bell can wake. docs/design/comm_offload.md has
// its table. The tests run it under every interleaving; hence it is written over any type of Ring and Bell.
// Thread safety: an object belongs to one thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace kasane::comm::offload {

inline constexpr std::int64_t kNoLimit = -1;

/// Sleeps until the bell has rung since `seen` was read, or limit_ns passed; a push rings it. The caller read
/// seen first, and found nothing afterwards. False: it did not sleep, because a producer has claimed a cell
/// (look again).
template <class Ring, class Bell>
bool nap(Ring& ring, Bell& bell, std::uint32_t seen, std::int64_t limit_ns) noexcept {
  if (!ring.announce_sleep()) return false;
  bell.sleep(seen, limit_ns);
  ring.retract_sleep();
  return true;
}

class Idle {
 public:
  enum class Step : std::uint8_t { spin, yield, sleep };

  /// alone: this process may use one core only, where spinning keeps the other side from running.
  explicit Idle(bool alone) noexcept : spins_(alone ? 0 : kSpins) {}

  void moved() noexcept {
    looks_ = 0;
    nap_ns_ = kFirstNapNs;
  }

  /// After a look that found nothing. Has spun or yielded already; on sleep the caller sleeps.
  Step step() noexcept {
    if (looks_ < spins_) {
      ++looks_;
      relax();
      return Step::spin;
    }
    // On an idle core this polls for the time of a round trip, at no cost to other threads. Where others want
    // the core, their time slice takes longer than that, and the next look is the last before sleep.
    if (looks_ == spins_) yielding_since_ns_ = now_ns();
    if (looks_ < spins_ + kYields || now_ns() - yielding_since_ns_ < kYieldNs) {
      ++looks_;
      ::sched_yield();
      return Step::yield;
    }
    return Step::sleep;
  }

  /// How long to sleep before a retry that no event announces: 50 µs, doubled up to 1 ms.
  [[nodiscard]] std::int64_t next_nap_ns() noexcept {
    const std::int64_t now = nap_ns_;
    nap_ns_ = std::min(nap_ns_ * 2, kLongestNapNs);
    return now;
  }

 private:
  static constexpr std::uint32_t kSpins = 100, kYields = 2;
  static constexpr std::uint64_t kYieldNs = 50'000;
  static constexpr std::int64_t kFirstNapNs = 50'000, kLongestNapNs = 1'000'000;

  std::uint32_t spins_, looks_ = 0;  // looks in a row that found nothing, up to the first sleep
  std::uint64_t yielding_since_ns_ = 0;
  std::int64_t nap_ns_ = kFirstNapNs;
};

}  // namespace kasane::comm::offload
