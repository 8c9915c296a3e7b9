// SPDX-License-Identifier: Apache-2.0
// A lock that is tried, never waited for, and records that a thread failed to enter. The thread that leaves
// then looks once more on the other's behalf, so that work which the other saw is done.
//
//   | state | enter            | leave                              |
//   | open  | taken, true      | –                                  |
//   | taken | missed, false    | open, false                        |
//   | missed| missed, false    | open, true: look again             |
//
// Thread safety: everything from any thread; a thread that interrupts itself inside gets false instead of a
// deadlock.
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
      // acquire: what the last thread inside wrote. release (missed): the thread that leaves sees the work
      // that we saw.
      if (state == kOpen) {
        if (state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire,
                                           std::memory_order_relaxed))
          return true;
      } else if (state_.compare_exchange_strong(state, kMissed, std::memory_order_release,
                                                std::memory_order_relaxed)) {
        return false;
      }
    }
  }
  /// True: a thread failed to enter meanwhile; look again.
  [[nodiscard]] bool leave() noexcept {
    // release: what we wrote, to the next thread inside. acquire: pairs with missed.
    return state_.exchange(kOpen, std::memory_order_acq_rel) == kMissed;
  }

 private:
  static constexpr std::uint32_t kOpen = 0, kTaken = 1, kMissed = 2;
  typename Atomics::template Atomic<std::uint32_t> state_{kOpen};
};
using Gate = BasicGate<>;

}  // namespace kasane::comm
