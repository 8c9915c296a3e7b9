// SPDX-License-Identifier: Apache-2.0
// The deadlines of threads that were suspended on this rank, the earliest first. Workers look at the earliest
// one between threads and before they sleep (worker_loop.cpp).
//
// At most one for each thread: a thread that waits again replaces its old one. The timer of a thread that has
// gone on elsewhere stays until it is due, and then finds that its round is over (timed_wait.h).
//
// Thread safety: every call from any worker of the rank. Invariant: earliest() is that of the first in the
// set, or kNever, whenever the lock is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/malloc_allocator.h"
#include "ult/sync_record.h"

namespace kasane::ult {

/// The queue of a record, as a timer sees it.
struct TimedQueue {
  /// lets waiters go whose timers ask for it, at least that one
  void (*leave)(const SyncRecords&, SyncHandle, SlotId);
  /// the waiter is settled, and may go on. Null: leave() wakes it, or it was woken (ult/sync/watch.cpp)
  void (*go_on)(const SyncRecords&, SyncHandle, SlotId);
};

struct Timer {
  std::uint64_t at_ns = 0;  ///< of now_ns()
  SlotId slot = kNoSlot;
  std::uint64_t round = 0;
  SyncHandle record{};
  const TimedQueue* queue = nullptr;
};

class Timers {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// True: it is the earliest now. Nothing happens if the thread has one of a later round.
  bool add(const Timer&);
  /// The thread waits no more.
  void remove(SlotId);
  /// Takes the earliest if it is due.
  [[nodiscard]] bool take_due(std::uint64_t now, Timer& out);
  /// relaxed: a hint, but for a worker that reads it after a membarrier, as it reads any item
  /// (ult/idle_workers.h).
  [[nodiscard]] std::uint64_t earliest() const noexcept { return earliest_.load(std::memory_order_relaxed); }

 private:
  using Order = std::pair<std::uint64_t, SlotId>;
  using Threads = std::map<SlotId, Timer, std::less<>, MallocAllocator<std::pair<const SlotId, Timer>>>;
  void erase(Threads::iterator);
  void note_earliest() noexcept;

  std::mutex mutex_;  // held for a few instructions, over no switch and no communication
  Threads threads_;
  std::set<Order, std::less<>, MallocAllocator<Order>> order_;
  std::atomic<std::uint64_t> earliest_{kNever};
};

}  // namespace kasane::ult
