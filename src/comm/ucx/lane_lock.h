// SPDX-License-Identifier: Apache-2.0
// The lock of a lane, which is only ever tried, and two flags by which no sleeper misses an event on the
// lane.
//
//   poller:  try_lock ─▶ progress ─▶ unlock ─▶ wanted? ring
//   sleeper: lock free? arm, listen : set wanted ─▶ sleep
//   watcher: event of an armed lane ─▶ event_taken() ─▶ lock free? serve peers, arm, listen
//                                                       else, or if there is more: ring
//
// **No wake-up is lost.** A sleeper reads the doorbell, looks for work, arms every lane, then sleeps unless
// the doorbell has changed.
// (a) The sleeper got the lane's lock, made no progress and armed the lane. A later event makes the lane's
//     descriptor readable, and the watcher listens to it: listening was true already, or the sleeper set it
//     and re-enabled the descriptor. If the watcher had consumed that one event but not yet cleared the flag,
//     it rings after the sleeper's look at the doorbell, since it clears before it rings.
// (b) The lock was taken by P. The sleeper stores wanted and then tries the lock again; P stores the lock and
//     then loads wanted. Those four are sequentially consistent: either the second try succeeds (then a), or
//     P sees wanted and rings after the sleeper's look at the doorbell.
//
// Thread safety: everything from any thread, async-signal-safe. tests/unit/comm/ucx_lane_lock_test.cpp walks
// the interleavings.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace kasane::comm::ucx {

template <class Atomics = StdAtomics>
class LaneLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    // relaxed: a guess that saves the exchange; nothing depends on it.
    if (locked_.load(std::memory_order_relaxed) != 0) return false;
    return claim();
  }

  /// True: a sleeper asked for a ring; ring the doorbell.
  [[nodiscard]] bool unlock() noexcept {
    // seq_cst, and the next line: (b) above
    locked_.store(0, std::memory_order_seq_cst);
    if (wanted_.load(std::memory_order_seq_cst) == 0) return false;
    return wanted_.exchange(0, std::memory_order_seq_cst) != 0;
  }

  /// As try_lock(), but false means: the lock's holder rings when it unlocks.
  [[nodiscard]] bool lock_or_request_ring() noexcept {
    if (try_lock()) return true;
    // seq_cst, and claim(): (b) above
    wanted_.store(1, std::memory_order_seq_cst);
    return claim();
  }

  /// Under the lock, after arming: true if the caller must enable the event descriptor again.
  [[nodiscard]] bool listen() noexcept {
    // acquire: pairs with event_taken()
    if (listening_.load(std::memory_order_acquire) != 0) return false;
    // relaxed: the descriptor's system call follows
    listening_.store(1, std::memory_order_relaxed);
    return true;
  }

  /// Whether an event of the lane, which somebody has armed, rings.
  // relaxed: what arms the lane again looks itself
  [[nodiscard]] bool listens() const noexcept { return listening_.load(std::memory_order_relaxed) != 0; }

  /// The watcher took the event off the descriptor, which is disabled now. Call it before the ring.
  // release: the descriptor was disabled before
  void event_taken() noexcept { listening_.store(0, std::memory_order_release); }

 private:
  bool claim() noexcept { return locked_.exchange(1, std::memory_order_seq_cst) == 0; }

  typename Atomics::template Atomic<std::uint32_t> locked_{0};
  typename Atomics::template Atomic<std::uint32_t> wanted_{0};
  typename Atomics::template Atomic<std::uint32_t> listening_{0};
};

}  // namespace kasane::comm::ucx
