// SPDX-License-Identifier: Apache-2.0
// Mutual exclusion between threads on any ranks. A thread whose worker has nothing else to run looks for the
// mutex a while, and lets the rank that had it last take it several times (mutex_patience.h). Then it waits
// suspended, not its worker. The unlocking thread hands the mutex over directly, in FIFO batches
// (mutex_record.h).
//
// Consistency: lock() sees everything that earlier holders wrote before they unlocked. If the last of them
// was on another rank, that rank releases and this one acquires (rule 1); else nothing is fenced. The relaxed
// forms exclude and order nothing: for callers that exchange what the mutex guards by other means, and
// nothing else. Both forms may be used of one mutex: to memory it is as if a relaxed holder had never held
// it.
// Thread safety: every call on any thread of any rank; a thread may hold a mutex over fork, join and moves.
// Misuse is a check failure: locking twice, unlocking a mutex that the thread does not hold, destroying it
// while held, use outside a thread.
#pragma once

#include "ult/sync_record.h"

namespace kasane::ult {

class ConditionVariable;

class Mutex {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  Mutex();
  ~Mutex();
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock();
  [[nodiscard]] bool try_lock();
  void unlock();
  void lock_relaxed();
  void unlock_relaxed();

  [[nodiscard]] SyncHandle record() const noexcept { return record_; }

 private:
  friend class ConditionVariable;
  void enter_slowly(bool orders);
  void leave(const char* what, bool orders);
  SyncHandle record_;
};
static_assert(sizeof(Mutex) == 8, "the public object is this name and nothing else");

}  // namespace kasane::ult
