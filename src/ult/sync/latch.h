// SPDX-License-Identifier: Apache-2.0
// Opens once, after as many arrivals as it was made for (latch_record.h). Threads on any ranks.
//
// Consistency: a thread that passes sees what the threads that counted it down wrote before: each
// count_down() releases its rank first, and each rank acquires when its thread goes on (rule 1; nothing with
// one rank).
// Thread safety: every call on any thread of any rank; a thread that has passed may destroy it.
// Misuse is a check failure: destroying it while a thread waits.
#pragma once

#include <cstdint>

#include "ult/sync_record.h"

namespace kasane::ult {

class Latch {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  explicit Latch(std::uint32_t expected);
  ~Latch();
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  /// False: more than are still to come; nothing happened.
  bool count_down(std::uint32_t n);
  [[nodiscard]] bool try_wait() const;
  void wait() const;

 private:
  SyncHandle record_;
};
static_assert(sizeof(Latch) == 8);

}  // namespace kasane::ult
