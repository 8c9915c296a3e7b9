// SPDX-License-Identifier: Apache-2.0
// Automatic relocation (Endo's thesis, §6.2.3): a page that only one rank uses moves to it. This file has the
// decision, which is pure (table: docs/design/gas.md); auto_relocator.h drives it.
//
// What can be known of a page's use is what goes over the network: fetches, gets and puts of a page of
// another rank, and changes that a release sends there. Each rank counts its own uses of each foreign page.
// Every `threshold` uses it looks at word 3 of the directory entry, which says which rank looked last and how
// often the page has moved:
//
//   word 3   time 32 | row 8 | moves 4 | last user + 1 20
//
// As long as no other rank has looked in between, the uses are a streak. Ranks that share memory have a row
// together: how often one of them looked with no other rank between. The row counts against an owner that
// shares memory with none of them: for all of them the page is over the network, and at any of them it would
// be near to all. Which of them gets it is decided afterwards, as between any ranks. Stores of the owner show
// in the fetches of other ranks: a fetch that brings other bytes than this rank last had of the block begins
// a new streak, so a page that its owner writes again and again stays. The owner's loads are not seen, nor
// its stores by ranks that only get and put. Two ranks that use a page in turns move it to and fro; each move
// doubles the streak that the next one needs.
//
// A move is forgotten after a while (kForgetSeconds): what a program did in another phase says nothing of
// this one, and moves that are so far apart cost nothing measurable. `time` says until when moves have been
// forgotten: the second of the last move, and one step more for each move that was forgotten. Hosts' clocks
// may differ: they affect only estimates, and time never runs backwards in word 3, so a clock that is ahead
// of the others forgets no faster than they do, except once.
//
// Invariants: between two moves of a page lie at least threshold · 2^moves uses by the rank that takes it,
// where moves counts those that are not forgotten, at most kMostMoves; or as many, at most threshold ·
// kLongestRow, by ranks that share memory with it and not with the owner. So in s seconds a page moves at
// most kMostMoves + s / kForgetSeconds times, and once more for every threshold · 2^kMostMoves uses.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

/// Uses by one rank alone after which a page that has not moved yet moves to it.
inline constexpr std::uint32_t kStreak = 16;
/// Streaks double at most so often. Then a page that is used in turns moves once in 2^kMostMoves times the
/// threshold, which costs less than a percent of those fetches.
inline constexpr std::uint32_t kMostMoves = 10;
inline constexpr std::uint32_t kForgetSeconds = 1;
inline constexpr std::uint32_t kLongestRow = 255;

struct UseRecord {
  Rank last = kNoRank;  ///< the rank that looked last; kNoRank: none yet
  /// how often the page has moved by itself, less those forgotten, at most kMostMoves
  std::uint32_t moves = 0;
  std::uint32_t time = 0;  ///< seconds
  /// how many looks in a row were by ranks that share memory with `last`, at most kLongestRow
  std::uint32_t row = 0;

  friend bool operator==(const UseRecord&, const UseRecord&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{time} << 32 | std::uint64_t{row} << 24 | std::uint64_t{moves} << 20 |
           (last != kNoRank ? std::uint64_t{raw(last)} + 1 : 0);
  }
  [[nodiscard]] static constexpr UseRecord of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0 ? Rank{id - 1} : kNoRank, static_cast<std::uint32_t>(word >> 20) & 0xF,
            static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word >> 24) & 0xFF};
  }
};

/// Bits in a count of uses. kAnew: the count was restarted since this rank last looked, because other ranks
/// wrote.
inline constexpr std::uint32_t kAnew = 1u << 31;

/// kResting: the page was fixed when this rank last looked. It looks again after kRestingUses, since the
/// memory may have been freed and allocated anew.
inline constexpr std::uint32_t kResting = 1u << 30, kRestingUses = 1u << 16;

/// kOthersChanged: another rank has changed the page since this rank last sent changes of all of it.
inline constexpr std::uint32_t kOthersChanged = 1u << 29;

/// Counts a release that has sent changes of all blocks of the page to its owner, since each of them cost a
/// fault, a twin and a comparison, which an owner saves. Fewer blocks may lie among those of other writers.
inline constexpr std::uint32_t kUsesOfARelease = 2;
[[nodiscard]] constexpr std::uint32_t counted_release(std::uint32_t uses) noexcept {
  return (uses & kOthersChanged) != 0 ? uses & ~kOthersChanged : uses + kUsesOfARelease;
}

/// Counts one more use. others_wrote: it brought bytes that this rank did not have and had not written.
[[nodiscard]] constexpr std::uint32_t counted(std::uint32_t uses, bool others_wrote) noexcept {
  return others_wrote ? (uses & kOthersChanged) | kAnew | 1 : uses + 1;
}

[[nodiscard]] constexpr std::uint32_t streak_needed(const UseRecord& usage,
                                                    std::uint32_t threshold) noexcept {
  return threshold << std::min(usage.moves, kMostMoves);
}

/// What is still known at this second.
[[nodiscard]] constexpr UseRecord forget(UseRecord usage, std::uint32_t second) noexcept {
  if (second <= usage.time) return usage;
  const std::uint32_t forgotten = std::min((second - usage.time) / kForgetSeconds, usage.moves);
  usage.moves -= forgotten;
  usage.time += forgotten * kForgetSeconds;
  return usage;
}

struct RelocationDecision {
  bool take = false;  ///< move the page here
  /// … if its owner shares no memory with this rank; then `after` is the new word 3
  bool take_if_far = false;
  std::uint32_t streak = 0;  ///< uses that remain counted, where the page stays
  UseRecord after;           ///< the new word 3, unless it is so already
  UseRecord stays{};         ///< the new word 3 where take_if_far and the owner is near
};

/// Rank `me` has counted `uses` of the page, found `word` in word 3 at this second, and does not own the
/// page. last_is_near: the rank that looked last is another rank that shares memory with this one.
[[nodiscard]] constexpr RelocationDecision decide_relocation(const UseRecord& word, Rank me,
                                                             bool last_is_near, std::uint32_t uses,
                                                             std::uint32_t threshold,
                                                             std::uint32_t second) noexcept {
  const UseRecord now = forget(word, second);
  const bool alone = now.last == me || now.last == kNoRank;
  const std::uint32_t row =
      (alone || last_is_near) && (uses & kAnew) == 0 ? std::min(now.row + 1, kLongestRow) : 1;
  const UseRecord mine{me, now.moves, now.time, row};
  const UseRecord taken{me, std::min(now.moves + 1, kMostMoves), std::max(now.time, second), 0};
  const std::uint32_t streak = alone ? uses & ~(kAnew | kOthersChanged) : 0;
  if (streak >= streak_needed(now, threshold)) return {.take = true, .after = taken};
  if (last_is_near && row > 1 && row >= std::min(streak_needed(now, 1), kLongestRow))
    return {.take_if_far = true, .streak = streak, .after = taken, .stays = mine};
  return {.streak = streak, .after = mine};
}

}  // namespace kasane::gas
