// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/condition_variable.h"

#include "base/assert.h"
#include "ult/pool_core.h"
#include "ult/sync/condition_variable_record.h"
#include "ult/sync/mutex_record.h"
#include "ult/timed.h"

namespace kasane::ult {
namespace {

/// data0 while there is a mutex: 1 + its handle.
constexpr Word name_of(SyncHandle mutex) noexcept { return mutex.value + 1; }

struct AtCondition {
  Pool& pool;
  SyncHandle condition;
  SyncHandle mutex;
  ReleaseMark mark;  ///< taken when all was stored
  std::uint64_t deadline_ns = kNoDeadline;
};

/// Who waits has time, and who changes the condition takes the mutex next: blocks that are released before.
constexpr std::uint32_t kAtWait = 2048;
ReleaseMark release_before_wait(Pool& pool) {
  const ReleaseMark mark = pool.release_little(kAtWait, Account::fence_locks);
  return mark != kNoMark ? mark : pool.core().mark_stores();
}

// First the list, then the mutex: a thread that changes the condition under the mutex after our test finds us
// in the list. A notifier that is quicker than our unlock puts us on the mutex's list while we still hold it;
// our own unlock may then hand it to ourselves. Nothing of the suspended thread's stack is touched after the
// first run() (rule as in mutex.cpp).
void enlist(void* context, SlotId self) {
  const auto [pool, condition, mutex, mark, unused] = *static_cast<AtCondition*>(context);
  const SyncRecords records(pool);
  records.run<ConditionAction>(condition, ConditionWait(self));
  records.run<MutexAction>(mutex, MutexUnlock(self, pool.config().rank, mark));
}

void requeue(const SyncRecords& records, SyncHandle condition, SlotId waiter) {
  const SyncHandle mutex{records.load(condition, SyncField::data0) - 1};
  const auto outcome = records.run<MutexAction>(mutex, MutexLock(waiter, /*relock=*/true));
  if (outcome == MutexAction::acquired) records.perform(mutex, SyncStep::wake(waiter));
}

/// Notifies, or what else the machine is for.
void serve(const SyncRecords& records, SyncHandle condition, ConditionNotify machine) {
  SyncStep s = machine.next(0);
  while (s.kind != SyncStep::Kind::done) {
    Word result = 0;
    if (s.kind == SyncStep::Kind::requeue)
      requeue(records, condition, s.slot);
    else if (s.kind != SyncStep::Kind::settle)
      result = records.perform(condition, s);
    else if (records.settle(s.slot, static_cast<TimedOutcome>(s.value)))
      requeue(records, condition, s.slot);
    s = machine.next(result);
  }
}

void leave_condition(const SyncRecords& records, SyncHandle condition, SlotId) {
  serve(records, condition, ConditionNotify::leave());
}
constexpr TimedQueue kConditionQueue{.leave = leave_condition, .go_on = requeue};

// As enlist(). The timer comes last: until then only a notifier can let the thread go.
void enlist_timed(void* context, SlotId self) {
  const auto [pool, condition, mutex, mark, deadline_ns] = *static_cast<AtCondition*>(context);
  const SyncRecords records(pool);
  const std::uint64_t round = arm(records, self);
  records.run<ConditionAction>(condition, ConditionWait(self, /*timed=*/true));
  records.run<MutexAction>(mutex, MutexUnlock(self, pool.config().rank, mark));
  start_timer(pool, deadline_ns, self, round, condition, kConditionQueue);
}

/// Two mutexes at a time cannot be: a notified waiter would be handed the wrong one.
void bind(const SyncRecords& records, SyncHandle condition, SyncHandle mutex) {
  const Word bound = records.load(condition, SyncField::data0);
  if (bound == name_of(mutex)) return;
  KASANE_CHECK(bound == 0 || records.load(condition, SyncField::word) == 0,
               "threads wait for one condition variable with two different mutexes");
  records.store(condition, SyncField::data0, name_of(mutex));
}

}  // namespace

ConditionVariable::ConditionVariable()
    : record_(SyncRecords(pool_of_thread("the constructor of a condition variable")).take()) {}

ConditionVariable::~ConditionVariable() {
  SyncRecords records(pool_of_thread("the destructor of a condition variable"));
  KASANE_CHECK(records.load(record_, SyncField::word) == 0,
               "a condition variable is destroyed while a thread waits for it or notifies");
  records.give_back(record_);
}

void ConditionVariable::check_held(const Mutex& mutex) const {
  const SyncRecords records(pool_of_thread("condition_variable::wait"));
  KASANE_CHECK(MutexWord::unpack(records.load(mutex.record_, SyncField::word)).holder == Pool::self(),
               "a thread waits for a condition variable without holding the mutex");
  bind(records, record_, mutex.record_);
}

void ConditionVariable::wait(Mutex& mutex) {
  check_held(mutex);
  const SyncHandle held = mutex.record_;
  Pool& pool = pool_of_thread("condition_variable::wait");
  AtCondition waiting{pool, record_, held, release_before_wait(pool)};
  Pool::suspend(enlist, &waiting,
                {.kind = WaitsFor::Kind::condition,
                 .call = "condition_variable::wait",
                 .object = record_.value,
                 .address = this});
  // The mutex's holder again, by hand-over or by the notifier; perhaps on another rank, with a pool of its
  // own.
  SyncRecords(pool_of_thread("condition_variable::wait")).cross_from_last(held);
}

bool ConditionVariable::wait_until(Mutex& mutex, std::uint64_t deadline_ns) {
  check_held(mutex);
  const SyncHandle held = mutex.record_;
  Pool& pool = pool_of_thread("condition_variable::wait_until");
  AtCondition waiting{pool, record_, held, release_before_wait(pool), deadline_ns};
  Pool::suspend(enlist_timed, &waiting,
                {.kind = WaitsFor::Kind::condition,
                 .timed = true,
                 .call = "condition_variable::wait_until",
                 .object = record_.value,
                 .address = this});
  const bool notified = collect("condition_variable::wait_until");
  SyncRecords(pool_of_thread("condition_variable::wait_until")).cross_from_last(held);
  return notified;
}

void ConditionVariable::notify(bool all) {
  serve(SyncRecords(pool_of_thread("condition_variable::notify")), record_, ConditionNotify(all));
}

void ConditionVariable::notify_one() { notify(/*all=*/false); }
void ConditionVariable::notify_all() { notify(/*all=*/true); }

}  // namespace kasane::ult
