// SPDX-License-Identifier: Apache-2.0
// A barrier for n threads on any ranks, for any number of phases (barrier_record.h).
//
// Consistency: whoever goes on sees everything that all n wrote before they arrived: each arrival releases its rank first,
// and each rank acquires when it goes on (rule 1; nothing with one rank).
// Thread safety: arrive_and_wait on any thread of any rank.
// Misuse is a check failure: n = 0, destroying it while somebody waits. More than n threads at a time mix their phases.
#pragma once

#include <cstdint>

#include "ult/sync_record.h"

namespace kasane::ult {

class Barrier {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  explicit Barrier(std::uint32_t n);
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Returns when n threads have called it since the last time.
  void arrive_and_wait();

 private:
  SyncHandle record_;
};
static_assert(sizeof(Barrier) == 8);

}  // namespace kasane::ult
