// SPDX-License-Identifier: Apache-2.0
// A reader-writer lock for threads on any ranks: a reader takes one of kMaxPermits permits, a writer all
// (semaphore_record.h). First come first served, neighbouring readers together: neither side starves.
//
// Consistency: a thread that locks sees everything that writers before it wrote; a writer also sees what
// readers before it did. A reader whose rank is not the last writer's releases it when it unlocks, and notes
// that in the record, which makes the next writer acquire. Else edges are made as for a mutex: the last
// writer's rank releases when a thread of another rank locks (rule 1; nothing with one rank).
// Thread safety: every call on any thread of any rank.
// Misuse is a check failure: unlocking what is not held (as far as the permits tell), destroying it while
// held.
#pragma once

#include "ult/sync_record.h"

namespace kasane::ult {

class SharedMutex {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  SharedMutex();
  ~SharedMutex();
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock();
  [[nodiscard]] bool try_lock();
  /// The functions …_until() wait no longer than to a time of the job's clock (Pool::clock_ns). False: that
  /// time has passed, and nothing is locked.
  [[nodiscard]] bool try_lock_until(std::uint64_t deadline_ns);
  [[nodiscard]] bool try_lock_shared_until(std::uint64_t deadline_ns);
  void unlock();
  void lock_shared();
  [[nodiscard]] bool try_lock_shared();
  void unlock_shared();

 private:
  SyncHandle record_;
};
static_assert(sizeof(SharedMutex) == 8);

}  // namespace kasane::ult
