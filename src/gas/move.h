// SPDX-License-Identifier: Apache-2.0
// A page that is moving to another rank or tier, as its mover sees it: for gas/mover.cpp and gas/tiers.cpp
// only.
// Thread safety: an object belongs to one thread.
#pragma once

#include "gas/mover.h"

namespace kasane::gas {

struct Mover::Move {
  enum class Outcome : std::uint8_t { under_way, here, retry, needs_page_in, refused };

  PageId page{};
  ByteRange live;
  Outcome outcome = Outcome::under_way;
  Errc why = Errc::busy;  ///< if refused
  MoveStep step{};
  Rank yielding_owner = kNoRank;                    ///< the rank that recall() asks to yield; kNoRank: none
  std::uint64_t before = 0, peeked = 0, taken = 0;  ///< words 0 and 2 as they were found
  std::uint64_t answer = static_cast<std::uint64_t>(YieldAnswer::yielded);
  /// where the owner's answer may bring the whole page; empty: it is read afterwards
  std::span<std::byte> arrival_frame{};
  std::size_t brought = 0;     ///< bytes that came with the answer to the mark, later to the yield
  bool holders_taken = false;  ///< with the mark
  std::uint64_t last = 0;      ///< word 0 when the mark was cleared

  [[nodiscard]] bool claimed() const noexcept { return step.verdict == MoveVerdict::claim; }
  /// On SSD as a whole, and its bytes are undefined.
  [[nodiscard]] bool blank() const noexcept { return step.verdict == MoveVerdict::on_ssd && live.empty(); }
  [[nodiscard]] bool arrived() const noexcept {
    return !arrival_frame.empty() && brought == arrival_frame.size();
  }
  /// Its owner must page it in first.
  [[nodiscard]] bool needs_page_in() const noexcept {
    return step.verdict == MoveVerdict::in_part || (step.verdict == MoveVerdict::on_ssd && !live.empty());
  }
  [[nodiscard]] bool yielded() const noexcept {
    return claimed() && answer == static_cast<std::uint64_t>(YieldAnswer::yielded);
  }
};

}  // namespace kasane::gas
