// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/barrier.h"

#include "base/assert.h"

namespace kasane::ult {
namespace {

struct AtBarrier {
  Pool& pool;
  SyncHandle record;
  BarrierCall call;
  BarrierAction outcome = BarrierAction::wait;
};

// As in mutex.cpp: if the thread was pushed, its stack is not touched after run(). If not, no other worker
// has it, and it is made ready here.
void call_suspended(void* context, SlotId self) {
  auto* const waiting = static_cast<AtBarrier*>(context);
  Pool& pool = waiting->pool;
  const BarrierAction outcome =
      BarrierCall::action_of(SyncRecords(pool).run<Word>(waiting->record, waiting->call));
  if (outcome == BarrierAction::wait) return;
  waiting->outcome = outcome;
  pool.make_ready(self, pool.config().rank);
}

}  // namespace

Barrier::Barrier(std::uint32_t n) {
  KASANE_CHECK(n != 0, "a barrier for no threads");
  KASANE_CHECK(n <= kMostAtBarrier, "a barrier for more threads than its record can count");
  SyncRecords records(pool_of_thread("the constructor of a barrier"));
  record_ = records.take();
  records.store(record_, SyncField::data0, n);
  records.store(record_, SyncField::word, BarrierWord{n, 0, kNoSlot}.pack());
}

Barrier::~Barrier() {
  SyncRecords records(pool_of_thread("the destructor of a barrier"));
  const BarrierWord word = BarrierWord::unpack(records.load(record_, SyncField::word));
  KASANE_CHECK(word.newest == kNoSlot, "a barrier is destroyed while a thread waits at it");
  records.give_back(record_);
}

template <class Make>
bool Barrier::run_to_the_end(Pool& pool, const Make& make) {
  const SyncHandle record = record_;
  BarrierAction outcome =
      BarrierCall::action_of(SyncRecords(pool).run<Word>(record, make(/*may_wait=*/false)));
  if (outcome == BarrierAction::declined) {
    AtBarrier waiting{pool, record, make(/*may_wait=*/true)};
    Pool::suspend(
        call_suspended, &waiting,
        {.kind = WaitsFor::Kind::barrier, .call = "barrier", .object = record.value, .address = this});
    outcome = waiting.outcome;
  }
  if (outcome == BarrierAction::refuse) return false;
  // Perhaps on another rank than it arrived on, with a pool of its own.
  pool_of_thread("a barrier").acquire(Account::fence_barriers);
  return true;
}

bool Barrier::arrive_and_wait() {
  Pool& pool = pool_of_thread("barrier::arrive_and_wait");
  pool.release(Account::fence_barriers);
  return run_to_the_end(
      pool, [self = Pool::self()](bool may_wait) { return BarrierCall::arrive_and_wait(self, may_wait); });
}

std::optional<std::uint32_t> Barrier::arrive(std::uint32_t k) {
  Pool& pool = pool_of_thread("barrier::arrive");
  pool.release(Account::fence_barriers);
  const Word outcome = SyncRecords(pool).run<Word>(record_, BarrierCall::arrive(k));
  if (BarrierCall::action_of(outcome) == BarrierAction::refuse) return std::nullopt;
  return BarrierCall::phase_of(outcome);
}

bool Barrier::arrive_and_drop() {
  Pool& pool = pool_of_thread("barrier::arrive_and_drop");
  pool.release(Account::fence_barriers);
  return BarrierCall::action_of(SyncRecords(pool).run<Word>(record_, BarrierCall::drop())) !=
         BarrierAction::refuse;
}

void Barrier::wait(std::uint32_t phase) {
  run_to_the_end(pool_of_thread("barrier::wait"), [self = Pool::self(), phase](bool may_wait) {
    return BarrierCall::wait(self, may_wait, phase);
  });
}

}  // namespace kasane::ult
