// SPDX-License-Identifier: Apache-2.0
// The lock round an MPI library, which is only ever tried, and the rule by which work that was queued for its holder is never left lying.
//
//   poster: push, announce (kicks + 1), try the lock ── free ──► drain, unlock, look back
//                                                    └─ taken ─► go: the holder looks back
//   holder: … unlock, then kicks = drained? ── no ──► try the lock again, drain …
//
// **Nothing is left lying.** Suppose a poster finds the lock taken. It announced before that, and the holder unlocks after that, so when the holder
// looks back it sees the announcement. Either a drain began since (drained says so), and that drain found what was pushed before the announcement, or the
// holder tries the lock and drains, or somebody else has the lock by now and is the holder of whom this is said.
//
// Thread safety: any thread, also a fault handler's. All operations are seq_cst: the argument needs one order of them.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace kasane::comm::mpi {

/// Not recursive, and no need to be: it is only tried.
template <class Atomics = StdAtomics>
class TryLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    return state_.load(std::memory_order_seq_cst) == 0 && state_.exchange(1, std::memory_order_seq_cst) == 0;  // seq_cst: see above
  }
  void unlock() noexcept { state_.store(0, std::memory_order_seq_cst); }  // seq_cst: see above

 private:
  alignas(64) typename Atomics::template Atomic<std::uint32_t> state_{0};
};

template <class Atomics = StdAtomics>
class HandOver {
 public:
  /// After pushing, before the lock is tried.
  void announce() noexcept { kicks_.fetch_add(1, std::memory_order_seq_cst); }  // seq_cst: see above
  /// Under the lock, before the queue is looked at.
  void begin_drain() noexcept {
    const std::uint32_t kicks = kicks_.load(std::memory_order_seq_cst);   // seq_cst, and the store: see above
    // A store that changes nothing is a locked instruction saved. relaxed: written under the lock, which we hold.
    if (drained_.load(std::memory_order_relaxed) != kicks) drained_.store(kicks, std::memory_order_seq_cst);
  }
  /// Not under the lock: after announce(), and after every unlock().
  template <class Lock, class Drain>
  void look_back(Lock& lock, const Drain& drain) noexcept {
    while (kicks_.load(std::memory_order_seq_cst) != drained_.load(std::memory_order_seq_cst)) {  // seq_cst: see above
      if (!lock.try_lock()) return;
      begin_drain();
      drain();
      lock.unlock();
    }
  }

 private:
  alignas(64) typename Atomics::template Atomic<std::uint32_t> kicks_{0};
  typename Atomics::template Atomic<std::uint32_t> drained_{0};   ///< kicks_ when the last drain began; written under the lock
};

}  // namespace kasane::comm::mpi
