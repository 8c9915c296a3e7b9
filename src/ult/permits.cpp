// SPDX-License-Identifier: Apache-2.0
#include "ult/permits.h"

#include "ult/timed.h"

namespace kasane::ult {
namespace {

struct ForPermits {
  Pool& pool;
  SyncHandle record;
  std::uint32_t amount;
  std::uint64_t deadline_ns = kNoDeadline;
};

// As in mutex.cpp: the thread's stack is not touched after run().
void queue_for_permits(void* context, SlotId self) {
  const auto [pool, record, amount, unused] = *static_cast<ForPermits*>(context);
  const auto outcome = SyncRecords(pool).run<PermitsAction>(record, PermitsTake(self, amount, /*may_wait=*/true));
  if (outcome == PermitsAction::taken) pool.make_ready(self, pool.config().rank);
}

void leave_permits(const SyncRecords& records, SyncHandle record) { records.run<PermitsAction>(record, PermitsGive::leave()); }
void wake(const SyncRecords& records, SyncHandle record, SlotId waiter) { records.perform(record, SyncStep::wake(waiter)); }
constexpr TimedQueue kPermitsQueue{.leave = leave_permits, .go_on = wake};

void queue_for_permits_until(void* context, SlotId self) {
  const auto [pool, record, amount, deadline_ns] = *static_cast<ForPermits*>(context);
  const SyncRecords records(pool);
  const std::uint64_t round = arm(records, self);
  const auto outcome = records.run<PermitsAction>(record, PermitsTake(self, amount, /*may_wait=*/true, /*timed=*/true));
  if (outcome == PermitsAction::taken) return settle_now(pool, self);
  start_timer(pool, deadline_ns, self, round, record, kPermitsQueue);
}

}  // namespace

bool try_take_permits(SyncHandle record, std::uint32_t amount, const char* what) {
  return SyncRecords(pool_of_thread(what)).run<PermitsAction>(record, PermitsTake(Pool::self(), amount, /*may_wait=*/false)) == PermitsAction::taken;
}

void take_permits(SyncHandle record, std::uint32_t amount, const char* what) {
  if (try_take_permits(record, amount, what)) return;
  ForPermits queueing{pool_of_thread(what), record, amount};
  Pool::suspend(queue_for_permits, &queueing);
}

bool take_permits_until(SyncHandle record, std::uint32_t amount, std::uint64_t deadline_ns, const char* what) {
  if (try_take_permits(record, amount, what)) return true;
  Pool& pool = pool_of_thread(what);
  if (pool.clock_ns() >= deadline_ns) return false;
  ForPermits queueing{pool, record, amount, deadline_ns};
  Pool::suspend(queue_for_permits_until, &queueing);
  return collect(what);
}

bool give_permits(SyncHandle record, std::uint32_t amount, const char* what, std::uint32_t most) {
  return SyncRecords(pool_of_thread(what)).run<PermitsAction>(record, PermitsGive(amount, most)) != PermitsAction::refuse;
}

}  // namespace kasane::ult
