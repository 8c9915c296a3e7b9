// SPDX-License-Identifier: Apache-2.0
// Condition variable of threads on any ranks, used with a Mutex. A notified thread is moved to the mutex's
// own list of waiters and wakes up as its holder; waiters are notified oldest first
// (condition_variable_record.h).
//
// Consistency: as the mutex that wait() locks again; a notification by itself orders nothing.
// Thread safety: every call on any thread of any rank; a notifier needs not hold the mutex. Spurious wake-ups
// are possible.
// Misuse is a check failure: waiting without holding the mutex, with two mutexes at a time, destroying it
// while a thread waits.
#pragma once

#include <cstdint>

#include "ult/sync/mutex.h"
#include "ult/sync_record.h"

namespace kasane::ult {

class ConditionVariable {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  ConditionVariable();
  ~ConditionVariable();
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;

  /// Unlocks mutex, waits to be notified, and locks it again.
  void wait(Mutex& mutex);
  /// As wait, but no longer than to a time of the job's clock (Pool::clock_ns). False: that time has passed,
  /// and the thread was not notified.
  [[nodiscard]] bool wait_until(Mutex& mutex, std::uint64_t deadline_ns);
  void notify_one();
  void notify_all();

 private:
  void check_held(const Mutex& mutex) const;
  void notify(bool all);
  SyncHandle record_;
};
static_assert(sizeof(ConditionVariable) == 8);

}  // namespace kasane::ult
