// SPDX-License-Identifier: Apache-2.0
// The usual calls meet a record whose words the CPU's atomics reach, a free mutex, and no waiter: they take
// some nanoseconds. The machines are the same as elsewhere; their steps are carried out in place.
#include "ult/sync/mutex.h"

#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/misuse.h"
#include "base/time_spent.h"
#include "ult/pool_core.h"
#include "ult/sync/mutex_patience.h"
#include "ult/sync/mutex_record.h"
#include "ult/sync/release_guess.h"

namespace kasane::ult {
namespace {

struct ForMutex {
  Pool& pool;
  SyncHandle record;
};

/// The calling thread, its worker and rank.
Worker& worker_on_thread(const char* what) {
  Worker* const worker = current_worker();
  if (worker == nullptr || worker->self() == kNoSlot) [[unlikely]]
    static_cast<void>(pool_of_thread(what));  // ends the program
  return *worker;
}

SyncRecord* near_record(const Worker& worker, SyncHandle record) noexcept {
  return worker.core->near_record(record.rank(), record.index());
}

// seq_cst, as Words are.
Word load(const Word& word) noexcept { return atomic(const_cast<Word&>(word)).load(); }
bool take_free(SyncRecord& near, SlotId self) noexcept {
  Word expected = MutexWord{}.pack();
  return atomic(near.word).compare_exchange_strong(
      expected, next(MutexWord{}, {MutexEvent::Kind::lock, self}).next.pack());
}

/// The machine's steps (MutexUnlock) where this rank unlocked last and no thread waits. False: no more than
/// `last` was changed.
bool release_alone(const PoolCore& core, SyncRecord& near, SlotId self, bool orders) noexcept {
  if (orders) {
    const Word last =
        core.marks() ? atomic(near.last).fetch_add(0) : load(near.last);  // a full fence, cheaper
    const Word now = last_of(core.config.rank, core.mark());
    if (last != now) [[unlikely]] {
      if (!had_it_last(last, core.config.rank) || load(near.data[2]) != 0) return false;
      atomic(near.last).store(now);
    }
  }
  if (load(near.fifo) != 0) return false;
  const MutexWord held{self, kNoSlot};
  Word expected = held.pack();
  return atomic(near.word).compare_exchange_strong(expected,
                                                   next(held, {MutexEvent::Kind::unlock, self}).next.pack());
}

// Runs when the thread's registers are saved. Once the thread is in the list, or awake, its stack (and
// *context on it) belongs to the worker that runs it, so nothing of it is touched after run().
void queue_for_mutex(void* context, SlotId self) {
  const auto [pool, record] = *static_cast<ForMutex*>(context);
  const auto outcome = SyncRecords(pool).run<MutexAction>(record, MutexLock(self, /*relock=*/false));
  if (outcome == MutexAction::acquired) pool.make_ready(self, pool.config().rank);
}

void nap() noexcept {
  const timespec time{0, static_cast<long>(MutexPatience::kNapNs)};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

/// Looks for a mutex that was held, as long as the worker has nothing else to do. False: the thread is to
/// queue. It stays on its worker.
[[gnu::noinline]] bool take_patiently(Worker& worker, SyncRecord& near, bool leases) {
  PoolCore& core = *worker.core;
  // Where this worker alone could run the holder, nothing is to be seen.
  if (core.config.ranks == 1 && core.config.workers == 1) return false;
  const Spent spent(*worker.counters, Account::wait_locks);
  MutexPatience patience(now_ns());
  while (!Pool::others_here()) {
    const bool free = load(near.word) == MutexWord{}.pack();
    const Word last = leases && free ? load(near.last) : 0;
    const MutexSeen seen{free, last != 0 && !had_it_last(last, core.config.rank),
                         last != 0 ? load(near.data[1]) : 0};
    switch (patience.next(seen, now_ns())) {
      case MutexWish::take:
        if (take_free(near, worker.self())) return true;
        break;
      case MutexWish::look: relax(); break;
      case MutexWish::nap:
        if (!leases) return false;  // to hand it over costs no fence, and no rank is to keep it
        nap();
        break;
      case MutexWish::queue: return false;
    }
    core.answer_if_asked();
  }
  return false;
}

constexpr std::uint32_t kAtUnlock = 32;  ///< blocks

/// The mark of an unlock that orders memory. The first one since the mutex was taken over from another rank
/// may release, if that is little work.
[[gnu::noinline]] ReleaseMark leave_mark(PoolCore& core, SyncRecord* near) {
  const Word last = near != nullptr ? load(near->last) : 0;
  if (last == 0) return core.mark_stores();
  ReleaseGuess guess(load(near->data[2]));
  ReleaseMark mark = kNoMark;
  if (had_it_last(last, core.config.rank)) {
    guess.unlocked_again(now_ns() - load(near->data[1]));
  } else if (guess.releases()) {
    mark = core.pool->release_little(kAtUnlock, Account::fence_locks);
    if (mark != kNoMark) guess.released();
  }
  atomic(near->data[2]).store(guess.word());
  return mark != kNoMark ? mark : core.mark_stores();
}

/// The thread has come to hold the mutex, which was last held by another rank or by none yet.
[[gnu::noinline]] void take_over(SyncHandle record) {
  Pool& pool = pool_of_thread("mutex::lock");
  const SyncRecords records(pool);
  const std::uint32_t releases = records.cross_from_last(record);
  // The guess is noted only where other ranks can read it cheaply: over a network threads queue at once.
  if (SyncRecord* const near = pool.core().near_record(record.rank(), record.index())) {
    ReleaseGuess guess(load(near->data[2]));
    guess.taken_over(releases);
    atomic(near->data[1]).store(now_ns());
    atomic(near->data[2]).store(guess.word());
  }
}

}  // namespace

Mutex::Mutex() : record_(SyncRecords(pool_of_thread("the constructor of a mutex")).take()) {}

Mutex::~Mutex() {
  SyncRecords records(pool_of_thread("the destructor of a mutex"));
  KASANE_REQUIRE(records.load(record_, SyncField::word) == 0,
                 "a mutex is destroyed while a thread holds it: it has to live until all have unlocked it");
  records.give_back(record_);
}

/// This may be another rank afterwards, with a pool of its own: the thread is made ready here, but may be
/// stolen from here before it runs.
void Mutex::enter_slowly(bool orders) {
  Pool& pool = pool_of_thread("mutex::lock");
  const SyncRecords records(pool);
  const SlotId self = Pool::self();
  Worker& worker = *current_worker();
  SyncRecord* const near = near_record(worker, record_);
  const MutexStep first = next(MutexWord{}, {MutexEvent::Kind::lock, self});
  const Word seen =
      near != nullptr ? load(near->word)
                      : records.compare_swap(record_, SyncField::word, MutexWord{}.pack(), first.next.pack());
  if (near == nullptr && seen == MutexWord{}.pack()) return;
  KASANE_REQUIRE(
      MutexWord::unpack(seen).holder != self,
      "a thread locks a mutex that it holds already, and would wait for itself for ever: unlock it "
      "first, or use std::recursive_mutex");
  if (near != nullptr && take_patiently(worker, *near, orders)) return;
  ForMutex queueing{pool, record_};
  Pool::suspend(
      queue_for_mutex, &queueing,
      {.kind = WaitsFor::Kind::mutex, .call = "mutex::lock", .object = record_.value, .address = this});
}

void Mutex::lock() {
  const Worker& worker = worker_on_thread("mutex::lock");
  SyncRecord* const near = near_record(worker, record_);
  if (near != nullptr && take_free(*near, worker.self())) [[likely]] {
    if (had_it_last(load(near->last), worker.core->config.rank)) [[likely]]
      return;
    return take_over(record_);
  }
  const SyncHandle record = record_;
  enter_slowly(/*orders=*/true);
  SyncRecords records(pool_of_thread("mutex::lock"));
  if (!had_it_last(records.load(record, SyncField::last), current_worker()->core->config.rank))
    take_over(record);
}

void Mutex::lock_relaxed() {
  const Worker& worker = worker_on_thread("mutex::lock_relaxed");
  SyncRecord* const near = near_record(worker, record_);
  if (near == nullptr || !take_free(*near, worker.self())) enter_slowly(/*orders=*/false);
}

bool Mutex::try_lock() {
  Pool& pool = pool_of_thread("mutex::try_lock");
  const SyncRecords records(pool);
  const MutexStep first = next(MutexWord{}, {MutexEvent::Kind::lock, Pool::self()});
  if (records.compare_swap(record_, SyncField::word, MutexWord{}.pack(), first.next.pack()) !=
      MutexWord{}.pack())
    return false;
  if (!had_it_last(records.load(record_, SyncField::last), pool.config().rank)) take_over(record_);
  return true;
}

void Mutex::unlock() { leave("mutex::unlock", true); }

void Mutex::unlock_relaxed() { leave("mutex::unlock_relaxed", false); }

void Mutex::leave(const char* what, bool orders) {
  const Worker& worker = worker_on_thread(what);
  PoolCore& core = *worker.core;
  const SlotId self = worker.self();
  SyncRecord* const near = near_record(worker, record_);
  if (near != nullptr && release_alone(core, *near, self, orders)) [[likely]]
    return core.answer_if_asked();
  const MutexUnlock machine =
      orders ? MutexUnlock(self, core.config.rank, leave_mark(core, near)) : MutexUnlock(self, kNoRank);
  const auto outcome = near != nullptr
                           ? SyncRecords::run_near<MutexAction>(*core.pool, record_, *near, machine)
                           : SyncRecords(*core.pool).run<MutexAction>(record_, machine);
  KASANE_REQUIRE(outcome != MutexAction::refuse,
                 "a thread unlocks a mutex that it does not hold: the thread that locked it has to, once");
}

}  // namespace kasane::ult
