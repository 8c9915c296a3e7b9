// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/semaphore.h"

#include "base/assert.h"
#include "ult/sync/semaphore_permits.h"

namespace kasane::ult {

Semaphore::Semaphore(std::uint32_t permits) {
  KASANE_CHECK(permits <= kMaxPermits, "a semaphore of more than 2^30 - 1 permits");
  SyncRecords records(pool_of_thread("the constructor of a semaphore"));
  record_ = records.take();
  records.store(record_, SyncField::word, SemaphoreWord{kNoSlot, permits}.pack());
}

Semaphore::~Semaphore() {
  SyncRecords records(pool_of_thread("the destructor of a semaphore"));
  KASANE_CHECK(!SemaphoreWord::unpack(records.load(record_, SyncField::word)).waited_for(),
               "a semaphore is destroyed while a thread waits for it");
  records.give_back(record_);
}

void Semaphore::acquire() {
  acquire_permits(record_, 1, "semaphore::acquire", this);
  // Perhaps on another rank than it began on, with a pool of its own.
  pool_of_thread("semaphore::acquire").acquire(Account::fence_others);
}

bool Semaphore::try_acquire() {
  if (!try_acquire_permits(record_, 1, "semaphore::try_acquire")) return false;
  pool_of_thread("semaphore::try_acquire").acquire(Account::fence_others);
  return true;
}

bool Semaphore::try_acquire_until(std::uint64_t deadline_ns) {
  if (!acquire_permits_until(record_, 1, deadline_ns, "semaphore::try_acquire_until", this)) return false;
  pool_of_thread("semaphore::try_acquire_until").acquire(Account::fence_others);
  return true;
}

bool Semaphore::release(std::uint32_t permits) {
  const SyncHandle record = record_;  // the thread that takes the permit may destroy the object
  pool_of_thread("semaphore::release").release(Account::fence_others);
  return release_permits(record, permits, "semaphore::release");
}

}  // namespace kasane::ult
