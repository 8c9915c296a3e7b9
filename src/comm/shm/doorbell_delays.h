// SPDX-License-Identifier: Apache-2.0
// For which ranks a delayed doorbell pays (PendingReply::doorbell_delay_ns). A rank whose threads fork
// answers between two forks, which costs nothing. A rank that computes without forking lets the whole delay
// pass and must be rung after all. So after a delay has expired for a rank, the next requests to it ring at
// once: 1 after the first time, then 2, 4 … 32, until one is answered in time.
//
// Thread safety: every call from any thread. Two threads at once may lose one update, which costs only time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace kasane::comm::shm {

class DoorbellDelays {
 public:
  explicit DoorbellDelays(std::uint32_t ranks) : ranks_(ranks) {}

  /// Before a request whose doorbell could be delayed: should it be?
  [[nodiscard]] bool may_delay(Rank to) noexcept {
    Learnt& learnt = ranks_[raw(to)];
    // relaxed, here and below: a hint that orders nothing.
    const std::uint32_t left = learnt.left.load(std::memory_order_relaxed);
    if (left == 0) return true;
    learnt.left.store(left - 1, std::memory_order_relaxed);
    return false;
  }
  void answered_in_time(Rank by) noexcept { ranks_[raw(by)].in_a_row.store(0, std::memory_order_relaxed); }
  void expired(Rank to) noexcept {
    Learnt& learnt = ranks_[raw(to)];
    const std::uint32_t row = std::clamp(learnt.in_a_row.load(std::memory_order_relaxed) * 2, 1u, kMost);
    learnt.in_a_row.store(row, std::memory_order_relaxed);
    learnt.left.store(row, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kMost = 32;
  struct Learnt {
    /// how many ring at once since the last expired delay; 0: none expired
    std::atomic<std::uint32_t> in_a_row{0};
    std::atomic<std::uint32_t> left{0};  ///< how many of them are still to come
  };
  std::vector<Learnt> ranks_;
};

}  // namespace kasane::comm::shm
