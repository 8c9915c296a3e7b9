// SPDX-License-Identifier: Apache-2.0
// Automatic relocation (Endo's thesis, §6.2.3): a page that only one rank uses moves to it. Here: the decision, pure (table: docs/design/gas.md); attractor.h drives it.
//
// What is known of a page's use is what goes over the network: a rank that fetches a block of it, gets or puts, at another rank. Each rank counts its own uses of each foreign page, and
// every `threshold` of them it looks at word 3 of the directory entry, which says who looked last and how often the page has moved:
//
//   word 3   reserved 36 | moves 8 | last user + 1 20
//
// As long as nobody else has looked in between, the uses are a streak. Owners' own uses are not seen, so two ranks that use a page in turns draw it to and fro: each move
// doubles the streak that the next one takes.
//
// Invariant: between two moves of a page lie at least threshold · 2^min(moves before, kMostDoublings) uses by the rank that takes it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

struct Usage {
  Rank last = kNoRank;        ///< who looked last; kNoRank: nobody yet
  std::uint32_t moves = 0;    ///< how often the page was drawn to a rank, at most kMostMoves

  static constexpr std::uint32_t kMostMoves = 0xFF;

  friend bool operator==(const Usage&, const Usage&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{moves} << 20 | (last != kNoRank ? std::uint64_t{raw(last)} + 1 : 0);
  }
  [[nodiscard]] static constexpr Usage of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0 ? Rank{id - 1} : kNoRank, static_cast<std::uint32_t>(word >> 20) & kMostMoves};
  }
};

/// Streaks double up to this often: at the end a page that is used in turns moves once in 2^kMostDoublings times the threshold, which costs less than a percent of those fetches.
inline constexpr std::uint32_t kMostDoublings = 10;

[[nodiscard]] constexpr std::uint32_t streak_needed(const Usage& usage, std::uint32_t threshold) noexcept {
  return threshold << std::min(usage.moves, kMostDoublings);
}

struct Attraction {
  bool take = false;           ///< the page comes here
  std::uint32_t streak = 0;    ///< uses that count on
  Usage after;                 ///< word 3, unless it is so already
};

/// Rank `me` has used the page `streak` times since it last began to count, found word 3 to be `now`, and does not own the page.
[[nodiscard]] constexpr Attraction consider(const Usage& now, Rank me, std::uint32_t streak, std::uint32_t threshold) noexcept {
  if (now.last != me && now.last != kNoRank) return {false, 0, {me, now.moves}};
  const Usage mine{me, now.moves};
  if (streak < streak_needed(now, threshold)) return {false, streak, mine};
  return {true, 0, {me, std::min(now.moves + 1, Usage::kMostMoves)}};
}

}  // namespace kasane::gas
