// SPDX-License-Identifier: Apache-2.0
// How the offloader's threads do nothing: they spin a little (what comes next usually comes soon), give the core away a few times, then sleep.
//
//   look finds something ─▶ moved(): start again
//   look finds nothing   ─▶ step(): spin … yield … sleep ─(woken, or a nap ended)─▶ look; nothing again ─▶ sleep at once
//
// nap(): the step into sleep of a thread that a ring and a bell can wake; docs/design/comm_offload.md has its table, and the tests run it under every
// interleaving, which is why it is written over a Ring and a Bell of any kind.
// Thread safety: an object belongs to one thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace kasane::comm::offload {

inline constexpr std::int64_t kNoLimit = -1;

/// Sleeps until the bell has rung since `seen` was read, or limit_ns passed; a push rings it. seen was read, and nothing found since, in this order.
/// False: it did not sleep, because a producer has claimed a cell (look again).
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

  /// alone: this process has one core, where spinning only keeps the other side from its work.
  explicit Idle(bool alone) noexcept : spins_(alone ? 0 : kSpins), looks_(0) {}

  void moved() noexcept {
    looks_ = 0;
    nap_ns_ = kFirstNapNs;
  }

  /// What the caller has to do about a look that found nothing; spinning and yielding are done already.
  Step step() noexcept {
    if (looks_ < spins_) {
      ++looks_;
      relax();
      return Step::spin;
    }
    if (looks_ < spins_ + kYields) {
      ++looks_;
      ::sched_yield();
      return Step::yield;
    }
    return Step::sleep;
  }

  /// How long to sleep where something must be tried again that nobody announces: 50 µs, doubled up to 1 ms.
  [[nodiscard]] std::int64_t next_nap_ns() noexcept {
    const std::int64_t now = nap_ns_;
    nap_ns_ = std::min(nap_ns_ * 2, kLongestNapNs);
    return now;
  }

 private:
  static constexpr std::uint32_t kSpins = 100, kYields = 16;
  static constexpr std::int64_t kFirstNapNs = 50'000, kLongestNapNs = 1'000'000;

  std::uint32_t spins_, looks_;
  std::int64_t nap_ns_ = kFirstNapNs;
};

}  // namespace kasane::comm::offload
