// SPDX-License-Identifier: Apache-2.0
// The directory entry of a page and its transitions, pure (docs/design/dsm.md). Four 64-bit words in the manager's memory:
//
//   word 0   version 32 | reserved 9 | busy 1 | tier 2 | owner+1 20      where the page is
//   word 1   writers 32 | readers 32                                     sharing summary (classification, a later step)
//   word 2   holders of the location, a bit for ranks_per_bit ranks      address caches (gas/address_cache_protocol.h)
//   word 3   kept zero                                                   a count of reads under way, once frames are punched (rule 9)
//
// Who takes a location into its cache and a move exclude each other without a lock: the rank sets its bit in word 2 and then reads word 0;
// the mover sets busy in word 0 (a fetch-or, which also says where the page is) and then swaps word 2 with 0. Both are read-modify-writes followed by a look at the other's
// word, totally ordered, so the mover sees the bit, and takes the location back before it reads a byte, or the rank sees busy and keeps nothing (Dekker).
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

enum class Tier : std::uint8_t { dram = 0, ssd = 1 };

struct Location {
  bool allocated = false;
  Rank owner = kNoRank;
  Tier tier = Tier::dram;
  bool busy = false;             ///< the page is moving; owner is still the old one
  std::uint32_t version = 0;

  friend bool operator==(const Location&, const Location&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return (std::uint64_t{version} << 32) | (busy ? std::uint64_t{1} << 22 : 0) | (static_cast<std::uint64_t>(tier) << 20) |
           (allocated ? std::uint64_t{raw(owner)} + 1 : 0);
  }
  [[nodiscard]] static constexpr Location of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0, id != 0 ? Rank{id - 1} : kNoRank, static_cast<Tier>((word >> 20) & 3), ((word >> 22) & 1) != 0,
            static_cast<std::uint32_t>(word >> 32)};
  }
};

inline constexpr std::uint32_t kMaxRanks = 0xFFFFE;   ///< 20 bits of owner, 0 meaning none
inline constexpr std::uint64_t kBusyBit = std::uint64_t{1} << 22;

/// What a mover that wants the page for rank `to` has found by setting busy in word 0, which was `before`.
enum class MoveVerdict : std::uint8_t {
  claim,           ///< the page is the mover's to move; nobody else changes word 0 until it is not busy any more
  already_there,   ///< likewise, but there is nothing to move: word 0 becomes what it was
  not_allocated,   ///< likewise
  wait,            ///< somebody else had set it
};

struct MoveStep {
  MoveVerdict verdict;
  Location claimed;   ///< word 0 as it is now
};

[[nodiscard]] constexpr MoveStep begin_move(const Location& l, Rank to) noexcept {
  if (l.busy) return {MoveVerdict::wait, l};
  Location claimed = l;
  claimed.busy = true;
  return {!l.allocated ? MoveVerdict::not_allocated : l.owner == to ? MoveVerdict::already_there : MoveVerdict::claim, claimed};
}

/// Word 0 when the bytes have arrived at `to`, or (to == old owner) when the owner refused.
[[nodiscard]] constexpr Location end_move(const Location& claimed, Rank to) noexcept {
  Location l = claimed;
  l.busy = false;
  l.owner = to;
  l.version = claimed.version + 1;
  return l;
}

/// Word 2 has 64 bits: in larger jobs a bit stands for several consecutive ranks, all of which are asked to forget.
[[nodiscard]] constexpr std::uint32_t ranks_per_bit(std::uint32_t ranks) noexcept { return (ranks + 63) / 64; }

[[nodiscard]] constexpr std::uint64_t holder_bit(Rank rank, std::uint32_t ranks) noexcept {
  return std::uint64_t{1} << (raw(rank) / ranks_per_bit(ranks));
}

}  // namespace kasane::gas
