// SPDX-License-Identifier: Apache-2.0
// Automatic relocation (Endo's thesis, §6.2.3): a page that only one rank uses moves to it. Here: the decision, pure (table: docs/design/gas.md); attractor.h drives it.
//
// What is known of a page's use is what goes over the network: a rank that fetches a block of it, gets or puts, at another rank. Each rank counts its own uses of each foreign page, and
// every `threshold` of them it looks at word 3 of the directory entry, which says who looked last and how often the page has moved:
//
//   word 3   time 32 | row 8 | moves 4 | last user + 1 20
//
// As long as nobody else has looked in between, the uses are a streak. Ranks that share memory have one together: a row, how often one of them looked with no other rank between.
// It counts against an owner with whom they share none: for all of them the page is over the network, and with any of them it would be near to all; which of them has it is
// decided then, as between any ranks. An owner's stores show in what others fetch: a fetch that brings other bytes than this
// rank last had of the block begins a new streak, so a page that its owner writes again and again stays with it. Its loads are not seen, nor its stores by
// those who only get and put; two ranks that use a page so in turns draw it to and fro: each move doubles the streak that the next one takes.
//
// A move is forgotten after a while (kForgetSeconds): what a program did in another phase says nothing of this one, and moves that are so far apart cost nothing that can be
// measured. `time` is until when moves have been forgotten: the second of the last move, and one step more for each that was forgotten. Hosts' clocks may differ: nothing but
// estimates hangs on them, and time never runs backwards in word 3, so a clock that is ahead of the others forgets no faster than they do, but once.
//
// Invariants: between two moves of a page lie at least threshold · 2^moves uses by the rank that takes it, where moves are those, at most kMostMoves, that are not
// forgotten, or as many, at most threshold · kLongestRow, by ranks that share memory with it and not with the owner; so in s seconds a page moves at most kMostMoves + s / kForgetSeconds times and once more for every threshold · 2^kMostMoves uses.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

/// Uses by one rank alone after which a page that has not moved yet comes to it.
inline constexpr std::uint32_t kStreak = 16;
/// Streaks double up to this often: at the end a page that is used in turns moves once in 2^kMostMoves times the threshold, which costs less than a percent of those fetches.
inline constexpr std::uint32_t kMostMoves = 10;
inline constexpr std::uint32_t kForgetSeconds = 1;
inline constexpr std::uint32_t kLongestRow = 255;

struct Usage {
  Rank last = kNoRank;        ///< who looked last; kNoRank: nobody yet
  std::uint32_t moves = 0;    ///< how often the page was drawn to a rank, less those forgotten, at most kMostMoves
  std::uint32_t time = 0;     ///< seconds
  std::uint32_t row = 0;      ///< how many looks in a row were by ranks that share memory with `last`, at most kLongestRow

  friend bool operator==(const Usage&, const Usage&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{time} << 32 | std::uint64_t{row} << 24 | std::uint64_t{moves} << 20 | (last != kNoRank ? std::uint64_t{raw(last)} + 1 : 0);
  }
  [[nodiscard]] static constexpr Usage of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0 ? Rank{id - 1} : kNoRank, static_cast<std::uint32_t>(word >> 20) & 0xF, static_cast<std::uint32_t>(word >> 32),
            static_cast<std::uint32_t>(word >> 24) & 0xFF};
  }
};

/// In a count of uses: it began anew since this rank last looked, because others wrote.
inline constexpr std::uint32_t kAnew = 1u << 31;

/// Uses that count, after one more. others_wrote: it brought bytes that this rank did not have, and had not written.
[[nodiscard]] constexpr std::uint32_t counted(std::uint32_t uses, bool others_wrote) noexcept { return others_wrote ? kAnew | 1 : uses + 1; }

[[nodiscard]] constexpr std::uint32_t streak_needed(const Usage& usage, std::uint32_t threshold) noexcept {
  return threshold << std::min(usage.moves, kMostMoves);
}

/// What is still known at this second.
[[nodiscard]] constexpr Usage forget(Usage usage, std::uint32_t second) noexcept {
  if (second <= usage.time) return usage;
  const std::uint32_t forgotten = std::min((second - usage.time) / kForgetSeconds, usage.moves);
  usage.moves -= forgotten;
  usage.time += forgotten * kForgetSeconds;
  return usage;
}

struct Attraction {
  bool take = false;           ///< the page comes here
  bool take_if_far = false;    ///< … if its owner shares no memory with this rank: `after` is what then becomes of word 3
  std::uint32_t streak = 0;    ///< uses that count on, where the page stays
  Usage after;                 ///< word 3, unless it is so already
  Usage stays{};               ///< word 3 where take_if_far, and the owner is near
};

/// Rank `me` has counted `uses` of the page, found word 3 to be `word` at this second, and does not own the page.
/// last_is_near: who looked last is another rank that shares memory with this one.
[[nodiscard]] constexpr Attraction consider(const Usage& word, Rank me, bool last_is_near, std::uint32_t uses, std::uint32_t threshold, std::uint32_t second) noexcept {
  const Usage now = forget(word, second);
  const bool alone = now.last == me || now.last == kNoRank;
  const std::uint32_t row = (alone || last_is_near) && (uses & kAnew) == 0 ? std::min(now.row + 1, kLongestRow) : 1;
  const Usage mine{me, now.moves, now.time, row};
  const Usage taken{me, std::min(now.moves + 1, kMostMoves), std::max(now.time, second), 0};
  const std::uint32_t streak = alone ? uses & ~kAnew : 0;
  if (streak >= streak_needed(now, threshold)) return {.take = true, .after = taken};
  if (last_is_near && row > 1 && row >= std::min(streak_needed(now, 1), kLongestRow)) return {.take_if_far = true, .streak = streak, .after = taken, .stays = mine};
  return {.streak = streak, .after = mine};
}

}  // namespace kasane::gas
