// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/watch.h"

#include <sched.h>

#include <algorithm>
#include <exception>

#include "base/clock.h"
#include "ult/os_thread.h"
#include "ult/pool_core.h"
#include "ult/runtime_section.h"
#include "ult/sync/watch_record.h"
#include "ult/timed_wait.h"

namespace kasane::ult {
namespace {

// Addresses have 47 bits, words of 4 bytes 45. Multiplication by an odd number modulo 2^45 maps each to a
// different number, whose upper bits choose the list and whose lower 32 are the key: so no two words share
// both. The multiplier is 2^45 over the golden ratio (Knuth, "The Art of Computer Programming", 6.4), so
// neighbours lie apart.
constexpr std::uint32_t kWordBits = 45, kKeyBits = 32;
static_assert(kWatchLists == 1u << (kWordBits - kKeyBits));
constexpr std::uint64_t kGolden = 21'745'137'823'721;
constexpr std::uint64_t scatter(std::uint64_t word) noexcept {
  return word * kGolden & ((std::uint64_t{1} << kWordBits) - 1);
}

constexpr std::uint64_t kSpread = 64 * 1024;  ///< bytes in turn at each rank

struct AtWatch {
  Pool& pool;
  SyncHandle list;
  std::uint32_t key, epoch;
  std::uint64_t until_ns;
};

void leave_watch(const SyncRecords& records, SyncHandle list, SlotId waiter) {
  records.run<WatchAction>(list, WatchNotify::late(waiter));
}
constexpr TimedQueue kWatchQueue{.leave = leave_watch, .go_on = nullptr};

// As in mutex.cpp: the thread's stack is not touched after run(). The timer comes first: where it is due
// before the thread is in the list, the thread finds another epoch. One that is left over wakes the thread
// from a later wait for nothing.
void wait_at_watch(void* context, SlotId self) {
  const auto [pool, list, key, epoch, until_ns] = *static_cast<AtWatch*>(context);
  const SyncRecords records(pool);
  if (until_ns != Timers::kNever)
    pool.core().start_timer({.at_ns = until_ns,
                             .slot = self,
                             .round = records.timed(self).round,
                             .record = list,
                             .queue = &kWatchQueue});
  const auto outcome = records.run<WatchAction>(list, WatchWait(self, key, epoch));
  if (outcome == WatchAction::changed) pool.make_ready(self, pool.config().rank);
}

/// A slot for an OS thread that waits, and its sleep.
class OsThreadSlot {
 public:
  explicit OsThreadSlot(PoolCore& core) : core_(core), control_(core.slots.take_for_os_thread()) {
    // relaxed, here and below: it is published with the place in the list
    atomic(control_.rank).store(kOsThread, std::memory_order_relaxed);
    awake_of(control_).store(0, std::memory_order_relaxed);
  }
  ~OsThreadSlot() {
    atomic(control_.rank).store(raw(core_.config.rank), std::memory_order_relaxed);
    core_.slots.release_of_os_thread(control_);
  }
  OsThreadSlot(const OsThreadSlot&) = delete;
  OsThreadSlot& operator=(const OsThreadSlot&) = delete;

  [[nodiscard]] SlotId id() const noexcept { return core_.controls.slot_of(control_); }
  /// Sleeps until the thread is woken, or until_ns has come: false.
  [[nodiscard]] bool sleep(std::uint64_t until_ns) const noexcept {
    const std::atomic<std::uint32_t>& awake = awake_of(control_);
    const OpenForSignals waits;
    while (awake.load(std::memory_order_acquire) == 0) {  // acquire: pairs with wake_os_thread()
      const std::uint64_t now = now_ns();
      if (until_ns <= now) return false;
      const std::uint64_t left = std::min<std::uint64_t>(until_ns - now, OutsideWaits::kForever);
      futex_wait(awake, 0, until_ns == Timers::kNever ? -1 : static_cast<std::int64_t>(left));
    }
    return true;
  }

 private:
  PoolCore& core_;
  SlotControl& control_;
};

}  // namespace

Watch::Watch(std::uint64_t offset, std::uint32_t ranks, const void* word) : word_(word) {
  const std::uint64_t scattered = scatter(offset / 4);
  list_ = SyncHandle::of(Rank{static_cast<std::uint32_t>(offset / kSpread % ranks)},
                         kSyncRecords + static_cast<std::uint32_t>(scattered >> kKeyBits));
  key_ = static_cast<std::uint32_t>(scattered);
}

std::uint32_t Watch::prepare(Pool& here) const {
  return static_cast<std::uint32_t>(SyncRecords(here).run<Word>(list_, WatchPrepare()));
}

void Watch::wait(std::uint32_t epoch, const char* call, std::uint64_t until_ns) const {
  AtWatch waiting{pool_of_thread(call), list_, key_, epoch, until_ns};
  Pool::suspend(wait_at_watch, &waiting,
                {.kind = WaitsFor::Kind::word,
                 .timed = until_ns != Timers::kNever,
                 .call = call,
                 .object = list_.value,
                 .address = word_});
  if (until_ns != Timers::kNever) pool_of_thread(call).core().timers.remove(Pool::self());
}

void Watch::sleep(Pool& here, std::uint32_t epoch, std::uint64_t until_ns) const try {
  const RuntimeSection section;
  const SyncRecords records(here);
  const OsThreadSlot self(here.core());
  if (records.run<WatchAction>(list_, WatchWait(self.id(), key_, epoch)) == WatchAction::changed) return;
  if (self.sleep(until_ns)) return;
  leave_watch(records, list_, self.id());
  static_cast<void>(self.sleep(Timers::kNever));
} catch (const std::exception&) {
  // The rank has no slot left. The caller looks again.
  ::sched_yield();
}

void Watch::notify(Pool& here, bool all) const {
  SyncRecords(here).run<WatchAction>(list_, WatchNotify(key_, all));
}

}  // namespace kasane::ult
