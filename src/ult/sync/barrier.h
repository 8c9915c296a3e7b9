// SPDX-License-Identifier: Apache-2.0
// A barrier for n arrivals of threads on any ranks, for any number of phases (barrier_record.h).
//
// Consistency: a thread that goes on sees everything that all wrote before they arrived: each arrival
// releases its rank first, and each rank acquires when it goes on (rule 1; nothing with one rank).
// Thread safety: every call on any thread of any rank.
// Misuse: a thread that has arrived in a phase must wait for it before it arrives again, or phases mix. More
// arrivals at once than are missing are refused. A check failure: n = 0, destroying it while a thread waits.
#pragma once

#include <cstdint>
#include <optional>

#include "ult/sync/barrier_record.h"
#include "ult/sync_record.h"

namespace kasane::ult {

class Barrier {
 public:
  /// n: 1 to kMostAtBarrier. Takes a record of the calling thread's rank; throws std::runtime_error when the
  /// rank has none left.
  explicit Barrier(std::uint32_t n);
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // False, or nothing: refused, and not done.

  /// Returns when the phase is over.
  [[nodiscard]] bool arrive_and_wait();
  /// Arrives k times in the phase that is given back, and does not wait.
  [[nodiscard]] std::optional<std::uint32_t> arrive(std::uint32_t k);
  /// Arrives, for the last time: later phases have one arrival less.
  [[nodiscard]] bool arrive_and_drop();
  /// Returns when that phase is over.
  void wait(std::uint32_t phase);

 private:
  /// Runs a call that may have to wait, to its end; make(may_wait). False: refused.
  template <class Make>
  bool run_to_the_end(Pool& pool, const Make& make);
  SyncHandle record_;
};
static_assert(sizeof(Barrier) == 8);

}  // namespace kasane::ult
