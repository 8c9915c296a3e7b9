// SPDX-License-Identifier: Apache-2.0
// A lock that is tried, never waited for, and remembers that somebody was turned away: who leaves then looks once more on the other's behalf, so
// that work which the other saw is not left lying.
//
//   | state | enter            | leave                              |
//   | open  | taken, true      | –                                  |
//   | taken | missed, false    | open, false                        |
//   | missed| missed, false    | open, true: look again             |
//
// Thread safety: everything from any thread; a thread that interrupts itself inside gets false instead of a deadlock.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace kasane::comm {

template <class Atomics = StdAtomics>
class BasicGate {
 public:
  [[nodiscard]] bool enter() noexcept {
    std::uint32_t state = kOpen;
    for (;;) {
      // acquire: what the last one inside wrote. release (missed): the work that we saw is visible to who leaves.
      if (state == kOpen) {
        if (state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire, std::memory_order_relaxed)) return true;
      } else if (state_.compare_exchange_strong(state, kMissed, std::memory_order_release, std::memory_order_relaxed)) {
        return false;
      }
    }
  }
  /// True: somebody was turned away meanwhile; look again.
  [[nodiscard]] bool leave() noexcept {
    // release: what we wrote, to the next one inside. acquire: pairs with missed.
    return state_.exchange(kOpen, std::memory_order_acq_rel) == kMissed;
  }

 private:
  static constexpr std::uint32_t kOpen = 0, kTaken = 1, kMissed = 2;
  typename Atomics::template Atomic<std::uint32_t> state_{kOpen};
};
using Gate = BasicGate<>;

}  // namespace kasane::comm
