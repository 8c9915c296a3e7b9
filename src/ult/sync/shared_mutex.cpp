// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/shared_mutex.h"

#include "base/assert.h"
#include "ult/sync/semaphore_permits.h"

namespace kasane::ult {
namespace {

// last: 1 + rank of the last writer. data0: 1 if a reader of another rank has unlocked since. Both change
// only while the lock is held: last by a writer alone, data0 by readers to 1 and by a writer to 0. So they
// need no more than the order that the word's compare-swaps give.

/// For a thread that has just come to hold all permits.
void cross_to_writer(SyncHandle record, const char* what) {
  Pool& pool = pool_of_thread(what);
  const SyncRecords records(pool);
  records.cross_from_last(record);
  if (records.load(record, SyncField::data0) != 0)
    pool.acquire(Account::fence_locks);  // those readers have released
}

}  // namespace

SharedMutex::SharedMutex() {
  SyncRecords records(pool_of_thread("the constructor of a shared_mutex"));
  record_ = records.take();
  records.store(record_, SyncField::word, SemaphoreWord{kNoSlot, kMaxPermits}.pack());
}

SharedMutex::~SharedMutex() {
  SyncRecords records(pool_of_thread("the destructor of a shared_mutex"));
  KASANE_CHECK((records.load(record_, SyncField::word) == SemaphoreWord{kNoSlot, kMaxPermits}.pack()),
               "a shared_mutex is destroyed while a thread holds it");
  records.give_back(record_);
}

void SharedMutex::lock() {
  const SyncHandle record = record_;
  acquire_permits(record, kMaxPermits, "shared_mutex::lock", this);
  cross_to_writer(record, "shared_mutex::lock");
}

bool SharedMutex::try_lock() {
  if (!try_acquire_permits(record_, kMaxPermits, "shared_mutex::try_lock")) return false;
  cross_to_writer(record_, "shared_mutex::try_lock");
  return true;
}

bool SharedMutex::try_lock_until(std::uint64_t deadline_ns) {
  const SyncHandle record = record_;
  if (!acquire_permits_until(record, kMaxPermits, deadline_ns, "shared_mutex::try_lock_until", this))
    return false;
  cross_to_writer(record, "shared_mutex::try_lock_until");
  return true;
}

void SharedMutex::unlock() {
  Pool& pool = pool_of_thread("shared_mutex::unlock");
  const SyncRecords records(pool);
  const SyncHandle record = record_;
  const Word last = Word{raw(pool.config().rank)} + 1;
  if (records.load(record, SyncField::last) != last) records.store(record, SyncField::last, last);
  if (records.load(record, SyncField::data0) != 0) records.store(record, SyncField::data0, 0);
  KASANE_CHECK(release_permits(record, kMaxPermits, "shared_mutex::unlock"),
               "a thread unlocks a shared_mutex that nobody holds alone");
}

void SharedMutex::lock_shared() {
  const SyncHandle record = record_;
  acquire_permits(record, 1, "shared_mutex::lock_shared", this);
  SyncRecords(pool_of_thread("shared_mutex::lock_shared")).cross_from_last(record);
}

bool SharedMutex::try_lock_shared() {
  if (!try_acquire_permits(record_, 1, "shared_mutex::try_lock_shared")) return false;
  SyncRecords(pool_of_thread("shared_mutex::try_lock_shared")).cross_from_last(record_);
  return true;
}

bool SharedMutex::try_lock_shared_until(std::uint64_t deadline_ns) {
  const SyncHandle record = record_;
  if (!acquire_permits_until(record, 1, deadline_ns, "shared_mutex::try_lock_shared_until", this))
    return false;
  SyncRecords(pool_of_thread("shared_mutex::try_lock_shared_until")).cross_from_last(record);
  return true;
}

void SharedMutex::unlock_shared() {
  Pool& pool = pool_of_thread("shared_mutex::unlock_shared");
  const SyncRecords records(pool);
  const SyncHandle record = record_;
  // What this rank wrote reaches the next writer: by cross_from_last() if the last writer was here, else by a
  // release now.
  if (records.load(record, SyncField::last) != Word{raw(pool.config().rank)} + 1) {
    pool.release(Account::fence_locks);
    if (records.load(record, SyncField::data0) == 0) records.store(record, SyncField::data0, 1);
  }
  KASANE_CHECK(release_permits(record, 1, "shared_mutex::unlock_shared"),
               "a thread unlocks a shared_mutex that nobody holds");
}

}  // namespace kasane::ult
