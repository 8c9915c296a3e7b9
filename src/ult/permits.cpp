// SPDX-License-Identifier: Apache-2.0
#include "ult/permits.h"

namespace kasane::ult {
namespace {

struct Queueing {
  Pool& pool;
  SyncHandle record;
  std::uint32_t amount;
};

// As in mutex.cpp: the thread's stack is not touched after run().
void queue(void* context, SlotId self) {
  const auto [pool, record, amount] = *static_cast<Queueing*>(context);
  const auto outcome = SyncRecords(pool).run<PermitsAction>(record, PermitsTake(self, amount, /*may_wait=*/true));
  if (outcome == PermitsAction::taken) pool.make_ready(self, pool.config().rank);
}

}  // namespace

bool try_take_permits(SyncHandle record, std::uint32_t amount, const char* what) {
  return SyncRecords(pool_of_thread(what)).run<PermitsAction>(record, PermitsTake(Pool::self(), amount, /*may_wait=*/false)) == PermitsAction::taken;
}

void take_permits(SyncHandle record, std::uint32_t amount, const char* what) {
  if (try_take_permits(record, amount, what)) return;
  Queueing queueing{pool_of_thread(what), record, amount};
  Pool::suspend(queue, &queueing);
}

bool give_permits(SyncHandle record, std::uint32_t amount, const char* what, std::uint32_t most) {
  return SyncRecords(pool_of_thread(what)).run<PermitsAction>(record, PermitsGive(amount, most)) != PermitsAction::refuse;
}

}  // namespace kasane::ult
