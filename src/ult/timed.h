// SPDX-License-Identifier: Apache-2.0
// Shared by all waits with a deadline: the thread's timed word (timed_wait.h) and the rank's timers.
//
//   on the worker's own stack    round = arm(…);  the machine that queues, with kTimedWaiter in the note;
//                                then start_timer(…), or settle_now(…) where it need not wait
//   on the thread, afterwards    collect(…): was it granted?
//
// Thread safety: as said; any rank. Deadlines are in the job's clock (Pool::clock_ns).
#pragma once

#include <cstdint>

#include "ult/sync_record.h"
#include "ult/timers.h"

namespace kasane::ult {

/// Later than any time.
inline constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

/// Begins a wait of self. Called before any thread can see it in a queue.
[[nodiscard]] std::uint64_t arm(const SyncRecords&, SlotId self);
/// Self is in the queue: its deadline counts from here on. Called last, since the thread may go on, and its
/// stack be gone, before this returns.
void start_timer(Pool&, std::uint64_t deadline_ns, SlotId self, std::uint64_t round, SyncHandle record,
                 const TimedQueue&);
/// Self got at once what it would have waited for, and is in no queue.
void settle_now(Pool&, SlotId self);
/// The calling thread goes on. False: its deadline has passed, and it was let go.
[[nodiscard]] bool collect(const char* what);

/// A timer is due. On a worker's own stack.
void fire(Pool&, const Timer&);

}  // namespace kasane::ult
