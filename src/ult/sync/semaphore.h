// SPDX-License-Identifier: Apache-2.0
// A counting semaphore for threads on any ranks: permits taken one at a time, first come first served
// (semaphore_record.h).
//
// Consistency: acquire() sees what was written before all earlier releases: each release() releases its rank
// first, and each rank acquires when it has taken a permit (rule 1; nothing with one rank).
// Thread safety: every call on any thread of any rank.
// Misuse is a check failure: destroying it while a thread waits.
#pragma once

#include <cstdint>

#include "ult/sync_record.h"

namespace kasane::ult {

class Semaphore {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  explicit Semaphore(std::uint32_t permits);
  ~Semaphore();
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  void acquire();
  [[nodiscard]] bool try_acquire();
  /// Waits no longer than to a time of the job's clock (Pool::clock_ns). False: that time has passed, and the
  /// thread has no permit.
  [[nodiscard]] bool try_acquire_until(std::uint64_t deadline_ns);
  /// False: the semaphore would have more than kMaxPermits permits; nothing happened.
  bool release(std::uint32_t permits);

 private:
  SyncHandle record_;
};
static_assert(sizeof(Semaphore) == 8);

}  // namespace kasane::ult
