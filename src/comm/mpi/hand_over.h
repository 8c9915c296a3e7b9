// SPDX-License-Identifier: Apache-2.0
// The lock around an MPI library, which is only ever tried, and the rule by which no work stays behind that
// was queued for the lock's holder.
//
//   poster: push, announce (kicks + 1), try the lock ── free ──► drain, unlock, look back
//                                                    └─ taken ─► return: the holder looks back
//   holder: … unlock, then kicks = drained? ── no ──► try the lock again, drain …
//
// **No work stays behind.** Suppose a poster finds the lock taken. It announced before that, and the holder
// unlocks after that, so when the holder looks back it sees the announcement. Then one of three holds. A
// drain began since (drained says so), and it found what was pushed before the announcement. Or the holder
// tries the lock and drains. Or another thread has the lock by now, and the same argument holds for it.
//
// Thread safety: any thread, also a fault handler's. All operations are seq_cst: the argument needs one order
// of them.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace kasane::comm::mpi {

/// A lock that is not recursive; it need not be, since it is only tried.
template <class Atomics = StdAtomics>
class TryLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    // seq_cst, both: see above
    return state_.load(std::memory_order_seq_cst) == 0 && state_.exchange(1, std::memory_order_seq_cst) == 0;
  }
  void unlock() noexcept { state_.store(0, std::memory_order_seq_cst); }  // seq_cst: see above

 private:
  alignas(64) typename Atomics::template Atomic<std::uint32_t> state_{0};
};

template <class Atomics = StdAtomics>
class HandOver {
 public:
  /// After pushing, before the lock is tried.
  void announce() noexcept { kicks_.fetch_add(1, std::memory_order_seq_cst); }  // seq_cst: see the file's top
  /// Under the lock, before the queue is looked at.
  void begin_drain() noexcept {
    const std::uint32_t kicks =
        kicks_.load(std::memory_order_seq_cst);  // seq_cst, and the store: the file's top
    // Skipping a store that changes nothing saves a locked instruction. relaxed: written under the lock,
    // which is held here.
    if (drained_.load(std::memory_order_relaxed) != kicks) drained_.store(kicks, std::memory_order_seq_cst);
  }
  /// Called without the lock, after announce() and after every unlock().
  template <class Lock, class Drain>
  void look_back(Lock& lock, const Drain& drain) noexcept {
    // seq_cst: see the top of the file
    while (kicks_.load(std::memory_order_seq_cst) != drained_.load(std::memory_order_seq_cst)) {
      if (!lock.try_lock()) return;
      begin_drain();
      drain();
      lock.unlock();
    }
  }

 private:
  alignas(64) typename Atomics::template Atomic<std::uint32_t> kicks_{0};
  /// kicks_ when the last drain began; written under the lock
  typename Atomics::template Atomic<std::uint32_t> drained_{0};
};

}  // namespace kasane::comm::mpi
