// SPDX-License-Identifier: Apache-2.0
#include "ult/barrier.h"

#include "base/assert.h"
#include "ult/barrier_record.h"

namespace kasane::ult {
namespace {

struct Arriving {
  Pool& pool;
  SyncHandle record;
};

// As in mutex.cpp: the thread's stack is not touched after run(). The last arrival was not pushed and wakes itself.
void arrive_suspended(void* context, SlotId self) {
  const auto [pool, record] = *static_cast<Arriving*>(context);
  const auto outcome = SyncRecords(pool).run<BarrierAction>(record, BarrierArrival(self, /*may_wait=*/true));
  if (outcome == BarrierAction::open) pool.make_ready(self, pool.config().rank);
}

}  // namespace

Barrier::Barrier(std::uint32_t n) {
  KASANE_CHECK(n != 0, "a barrier for no threads");
  SyncRecords records(pool_of_thread("the constructor of a barrier"));
  record_ = records.take();
  records.store(record_, SyncField::data0, n);
  records.store(record_, SyncField::word, BarrierWord{n, kNoSlot}.pack());
}

Barrier::~Barrier() {
  SyncRecords records(pool_of_thread("the destructor of a barrier"));
  const BarrierWord word = BarrierWord::unpack(records.load(record_, SyncField::word));
  KASANE_CHECK(word.newest == kNoSlot, "a barrier is destroyed while a thread waits at it");
  records.give_back(record_);
}

void Barrier::arrive_and_wait() {
  Pool& pool = pool_of_thread("barrier::arrive_and_wait");
  const SyncHandle record = record_;
  pool.release();
  const auto outcome = SyncRecords(pool).run<BarrierAction>(record, BarrierArrival(Pool::self(), /*may_wait=*/false));
  if (outcome == BarrierAction::declined) {
    Arriving arriving{pool, record};
    Pool::suspend(arrive_suspended, &arriving);
  }
  // Perhaps on another rank than it arrived on, with a pool of its own.
  pool_of_thread("barrier::arrive_and_wait").acquire();
}

}  // namespace kasane::ult
