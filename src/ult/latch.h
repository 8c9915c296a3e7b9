// SPDX-License-Identifier: Apache-2.0
// Opens once, when as many have come as it was made for (latch_record.h). Threads on any ranks.
//
// Consistency: whoever passes sees everything that those who counted it down wrote before: each count_down() releases its rank first, and each rank acquires when it
// goes on (rule 1; nothing with one rank).
// Thread safety: every call on any thread of any rank; who has passed may destroy it.
// Misuse is a check failure: counting below zero, destroying it while somebody waits.
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

  void count_down(std::uint32_t n);
  [[nodiscard]] bool try_wait() const;
  void wait() const;

 private:
  SyncHandle record_;
};
static_assert(sizeof(Latch) == 8);

}  // namespace kasane::ult
