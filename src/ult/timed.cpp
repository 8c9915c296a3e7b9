// SPDX-License-Identifier: Apache-2.0
#include "ult/timed.h"

#include <algorithm>

#include "base/assert.h"
#include "ult/pool_core.h"
#include "ult/timed_wait.h"

namespace kasane::ult {

std::uint64_t arm(const SyncRecords& records, SlotId self) {
  const TimedStep step = records.advance(self, TimedEvent::arm);
  KASANE_CHECK(step.action != TimedAction::refuse, "a thread waits twice");
  return step.next.round;
}

void start_timer(Pool& pool, std::uint64_t deadline_ns, SlotId self, std::uint64_t round, SyncHandle record,
                 const TimedQueue& queue) {
  if (deadline_ns == kNoDeadline) return;
  const std::uint64_t offset = pool.config().clock_offset_ns;
  pool.core().start_timer({.at_ns = deadline_ns - std::min(deadline_ns, offset),
                           .slot = self,
                           .round = round,
                           .record = record,
                           .queue = &queue});
}

void settle_now(Pool& pool, SlotId self) {
  KASANE_CHECK(SyncRecords(pool).advance(self, TimedEvent::grant).action == TimedAction::go,
               "a thread that is in no queue was let go");
  pool.make_ready(self, pool.config().rank);
}

bool collect(const char* what) {
  Pool& pool = pool_of_thread(what);
  const SyncRecords records(pool);
  const SlotId self = Pool::self();
  pool.core().timers.remove(self);
  const bool granted = records.timed(self).state == TimedState::granted;
  KASANE_CHECK(records.advance(self, TimedEvent::collect).action != TimedAction::refuse,
               "a thread goes on whose wait is not over");
  return granted;
}

void fire(Pool& pool, const Timer& timer) {
  const SyncRecords records(pool);
  if (timer.queue->go_on == nullptr) return timer.queue->leave(records, timer.record, timer.slot);
  if (records.advance(timer.slot, TimedEvent::due, timer.round).action != TimedAction::ask) return;
  timer.queue->leave(records, timer.record, timer.slot);
  if (records.advance(timer.slot, TimedEvent::asked).action == TimedAction::go)
    timer.queue->go_on(records, timer.record, timer.slot);
}

}  // namespace kasane::ult
