// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/latch.h"

#include "base/assert.h"
#include "ult/sync/latch_record.h"

namespace kasane::ult {
namespace {

struct AtLatch {
  Pool& pool;
  SyncHandle record;
};

// As in mutex.cpp: the thread's stack is not touched after run().
void wait_at_latch(void* context, SlotId self) {
  const auto [pool, record] = *static_cast<AtLatch*>(context);
  const auto outcome = SyncRecords(pool).run<LatchAction>(record, LatchWait(self, /*may_wait=*/true));
  if (outcome == LatchAction::pass) pool.make_ready(self, pool.config().rank);
}

}  // namespace

Latch::Latch(std::uint32_t expected) {
  SyncRecords records(pool_of_thread("the constructor of a latch"));
  record_ = records.take();
  records.store(record_, SyncField::word, LatchWord{expected, kNoSlot}.pack());
}

Latch::~Latch() {
  SyncRecords records(pool_of_thread("the destructor of a latch"));
  KASANE_CHECK(LatchWord::unpack(records.load(record_, SyncField::word)).newest == kNoSlot,
               "a latch is destroyed while a thread waits at it");
  records.give_back(record_);
}

bool Latch::count_down(std::uint32_t n) {
  const SyncHandle record = record_;  // a thread that passes may destroy the object
  Pool& pool = pool_of_thread("latch::count_down");
  pool.release(Account::fence_others);
  return SyncRecords(pool).run<LatchAction>(record, LatchCount(n)) != LatchAction::refuse;
}

bool Latch::try_wait() const {
  Pool& pool = pool_of_thread("latch::try_wait");
  if (SyncRecords(pool).run<LatchAction>(record_, LatchWait(Pool::self(), /*may_wait=*/false)) !=
      LatchAction::pass)
    return false;
  pool.acquire(Account::fence_others);
  return true;
}

void Latch::wait() const {
  if (try_wait()) return;
  AtLatch waiting{pool_of_thread("latch::wait"), record_};
  Pool::suspend(
      wait_at_latch, &waiting,
      {.kind = WaitsFor::Kind::latch, .call = "latch::wait", .object = record_.value, .address = this});
  // Perhaps on another rank than it began on, with a pool of its own.
  pool_of_thread("latch::wait").acquire(Account::fence_others);
}

}  // namespace kasane::ult
