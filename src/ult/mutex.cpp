// SPDX-License-Identifier: Apache-2.0
#include "ult/mutex.h"

#include "base/assert.h"
#include "ult/mutex_record.h"

namespace kasane::ult {
namespace {

struct ForMutex {
  Pool& pool;
  SyncHandle record;
};

// Runs when the thread's registers are saved. Once the thread is in the list, or awake, its stack (and
// *context on it) belongs to the worker that runs it, so nothing of it is touched after run().
void queue_for_mutex(void* context, SlotId self) {
  const auto [pool, record] = *static_cast<ForMutex*>(context);
  const auto outcome = SyncRecords(pool).run<MutexAction>(record, MutexLock(self, /*relock=*/false));
  if (outcome == MutexAction::acquired) pool.make_ready(self, pool.config().rank);
}

}  // namespace

Mutex::Mutex() : record_(SyncRecords(pool_of_thread("the constructor of a mutex")).take()) {}

Mutex::~Mutex() {
  SyncRecords records(pool_of_thread("the destructor of a mutex"));
  KASANE_CHECK(records.load(record_, SyncField::word) == 0, "a mutex is destroyed while a thread holds it");
  records.give_back(record_);
}

/// This may be another rank afterwards, with a pool of its own: the thread is made ready here, but may be
/// stolen from here before it runs.
void Mutex::enter(const char* what) {
  Pool& pool = pool_of_thread(what);
  const SyncRecords records(pool);
  const SlotId self = Pool::self();
  const MutexStep first = next(MutexWord{}, {MutexEvent::Kind::lock, self});
  const Word seen = records.compare_swap(record_, SyncField::word, MutexWord{}.pack(), first.next.pack());
  if (seen == MutexWord{}.pack()) return;
  KASANE_CHECK(MutexWord::unpack(seen).holder != self, "a thread locks a mutex that it holds already");
  ForMutex queueing{pool, record_};
  Pool::suspend(queue_for_mutex, &queueing,
                {.kind = WaitsFor::Kind::mutex, .call = what, .object = record_.value, .address = this});
}

void Mutex::lock() {
  enter("mutex::lock");
  SyncRecords(pool_of_thread("mutex::lock")).cross_from_last(record_);
}

void Mutex::lock_relaxed() { enter("mutex::lock_relaxed"); }

bool Mutex::try_lock() {
  Pool& pool = pool_of_thread("mutex::try_lock");
  const SyncRecords records(pool);
  const MutexStep first = next(MutexWord{}, {MutexEvent::Kind::lock, Pool::self()});
  if (records.compare_swap(record_, SyncField::word, MutexWord{}.pack(), first.next.pack()) !=
      MutexWord{}.pack())
    return false;
  records.cross_from_last(record_);
  return true;
}

void Mutex::unlock() { leave("mutex::unlock", true); }

void Mutex::unlock_relaxed() { leave("mutex::unlock_relaxed", false); }

void Mutex::leave(const char* what, bool orders) {
  Pool& pool = pool_of_thread(what);
  const auto outcome = SyncRecords(pool).run<MutexAction>(
      record_, MutexUnlock(Pool::self(), orders ? pool.config().rank : kNoRank));
  KASANE_CHECK(outcome != MutexAction::refuse, "a thread unlocks a mutex that it does not hold");
}

}  // namespace kasane::ult
