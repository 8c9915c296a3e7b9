// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/semaphore_permits.h"

#include "ult/timed.h"

namespace kasane::ult {
namespace {

struct PermitWait {
  Pool& pool;
  SyncHandle record;
  std::uint32_t amount;
  std::uint64_t deadline_ns = kNoDeadline;
};

// As in mutex.cpp: the thread's stack is not touched after run().
void queue_for_permits(void* context, SlotId self) {
  const auto [pool, record, amount, unused] = *static_cast<PermitWait*>(context);
  const auto outcome =
      SyncRecords(pool).run<SemaphoreAction>(record, SemaphoreAcquire(self, amount, /*may_wait=*/true));
  if (outcome == SemaphoreAction::taken) pool.make_ready(self, pool.config().rank);
}

void leave_semaphore(const SyncRecords& records, SyncHandle record, SlotId) {
  records.run<SemaphoreAction>(record, SemaphoreRelease::leave());
}
void wake(const SyncRecords& records, SyncHandle record, SlotId waiter) {
  records.perform(record, SyncStep::wake(waiter));
}
constexpr TimedQueue kSemaphoreQueue{.leave = leave_semaphore, .go_on = wake};

void queue_for_permits_until(void* context, SlotId self) {
  const auto [pool, record, amount, deadline_ns] = *static_cast<PermitWait*>(context);
  const SyncRecords records(pool);
  const std::uint64_t round = arm(records, self);
  const auto outcome =
      records.run<SemaphoreAction>(record, SemaphoreAcquire(self, amount, /*may_wait=*/true, /*timed=*/true));
  if (outcome == SemaphoreAction::taken) return settle_now(pool, self);
  start_timer(pool, deadline_ns, self, round, record, kSemaphoreQueue);
}

}  // namespace

bool try_acquire_permits(SyncHandle record, std::uint32_t amount, const char* what) {
  return SyncRecords(pool_of_thread(what))
             .run<SemaphoreAction>(record, SemaphoreAcquire(Pool::self(), amount, /*may_wait=*/false)) ==
         SemaphoreAction::taken;
}

void acquire_permits(SyncHandle record, std::uint32_t amount, const char* what, const void* object) {
  if (try_acquire_permits(record, amount, what)) return;
  PermitWait queueing{pool_of_thread(what), record, amount};
  Pool::suspend(queue_for_permits, &queueing,
                {.kind = WaitsFor::Kind::permits, .call = what, .object = record.value, .address = object});
}

bool acquire_permits_until(SyncHandle record, std::uint32_t amount, std::uint64_t deadline_ns,
                           const char* what, const void* object) {
  if (try_acquire_permits(record, amount, what)) return true;
  Pool& pool = pool_of_thread(what);
  if (pool.clock_ns() >= deadline_ns) return false;
  PermitWait queueing{pool, record, amount, deadline_ns};
  Pool::suspend(queue_for_permits_until, &queueing,
                {.kind = WaitsFor::Kind::permits,
                 .timed = true,
                 .call = what,
                 .object = record.value,
                 .address = object});
  return collect(what);
}

bool release_permits(SyncHandle record, std::uint32_t amount, const char* what, std::uint32_t most) {
  return SyncRecords(pool_of_thread(what)).run<SemaphoreAction>(record, SemaphoreRelease(amount, most)) !=
         SemaphoreAction::refuse;
}

}  // namespace kasane::ult
