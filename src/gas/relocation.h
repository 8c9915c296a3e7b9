// SPDX-License-Identifier: Apache-2.0
// The directory entry of a page and its transitions, pure (docs/design/dsm.md). Four 64-bit words in the manager's memory:
//
//   word 0   version 32 | reserved 8 | untouched 1 | busy 1 | tier 2 | owner+1 20   where the page is
//   word 1   readers, a bit for one or several ranks                            who may have copies (gas/sharing.h)
//   word 2   stamp 16 | holders of the location 48, a bit for ranks_per_bit ranks   address caches (gas/address_cache_protocol.h)
//   word 3   who used the page last, how often it has moved, and when (gas/relocation_policy.h)
//
// Who takes a location into its cache and a move exclude each other without a lock. The mover sets busy in word 0 (a fetch-or, which also says where the page is), then swaps word 2:
// no holders, and the next version as the stamp; then, at the end, word 0 gets that version. So the stamp is the version, except between swap and end, when word 0 says busy. The rank sets
// its bit in word 2 and reads word 0, *in any order*, and keeps the location if the stamp that it found is the version: then the bit was set after the swap of the move that ended with this
// version and before that of the next one, which takes it, and asks this rank before it reads a byte. Every change of the version goes with such a swap (registered()).
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

enum class Tier : std::uint8_t {
  dram = 0,
  ssd = 1,
  partial = 2,   ///< as ssd for everybody but its owner, who has some of its blocks in DRAM
};

struct Location {
  bool allocated = false;
  Rank owner = kNoRank;
  Tier tier = Tier::dram;
  bool busy = false;             ///< the page is moving; owner is still the old one
  std::uint32_t version = 0;
  bool untouched = false;        ///< its bytes do not matter yet: whoever touches it first becomes its owner, without data; until then owner is provisional

  friend bool operator==(const Location&, const Location&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return (std::uint64_t{version} << 32) | (busy ? std::uint64_t{1} << 22 : 0) | (untouched ? std::uint64_t{1} << 23 : 0) | (static_cast<std::uint64_t>(tier) << 20) |
           (allocated ? std::uint64_t{raw(owner)} + 1 : 0);
  }
  [[nodiscard]] static constexpr Location of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0, id != 0 ? Rank{id - 1} : kNoRank, static_cast<Tier>((word >> 20) & 3), ((word >> 22) & 1) != 0,
            static_cast<std::uint32_t>(word >> 32), ((word >> 23) & 1) != 0};
  }
};

inline constexpr std::uint32_t kMaxRanks = 0xFFFFE;   ///< 20 bits of owner, 0 meaning none
inline constexpr std::uint64_t kBusyBit = std::uint64_t{1} << 22;

/// What a mover that wants the page for rank `to` has found by setting busy in word 0, which was `before`.
enum class MoveVerdict : std::uint8_t {
  claim,           ///< the page is the mover's to move; nobody else changes word 0 until it is not busy any more
  already_there,   ///< likewise, but there is nothing to move: word 0 becomes what it was
  not_allocated,   ///< likewise
  on_ssd,          ///< likewise; its owner must bring it in first, if its bytes matter
  in_part,         ///< likewise; its owner must bring the rest in first, whatever it is wanted for
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
  if (!l.allocated) return {MoveVerdict::not_allocated, claimed};
  if (l.tier != Tier::dram) return {l.tier == Tier::ssd ? MoveVerdict::on_ssd : MoveVerdict::in_part, claimed};
  return {l.owner == to ? MoveVerdict::already_there : MoveVerdict::claim, claimed};
}

/// Word 0 when the bytes have arrived at `to`, or (to == old owner) when the owner refused.
[[nodiscard]] constexpr Location end_move(const Location& claimed, Rank to) noexcept {
  Location l = claimed;
  l.busy = false;
  l.owner = to;
  l.version = claimed.version + 1;   // as recall's swap has stamped word 2
  l.untouched = claimed.untouched && to == claimed.owner;
  return l;
}

// First touch. A page is allocated untouched, its allocator being the provisional owner, who keeps it disarmed like everybody else. The first rank that faults on it marks
// it busy and, finding it untouched still, stores end_touch(): nothing is recalled, asked or copied, since nobody holds the location of an untouched page, puts to it or has its
// blocks. So word 2 is left alone, and the version stays. A direct put is a touch by the provisional owner: it first compare-swaps to touched(). Direct gets read the provisional
// owner's frame and keep no location; one under way meanwhile has begun before the first change.

[[nodiscard]] constexpr Location touched(Location l) noexcept {
  l.untouched = false;
  return l;
}
[[nodiscard]] constexpr Location end_touch(const Location& claimed, Rank by) noexcept {
  Location l = touched(claimed);
  l.busy = false;
  l.owner = by;
  return l;
}

// A page that leaves for SSD is moved by its owner: busy is set, and found to be the owner's (already_there); then begin_evict() is stored, so that whoever reads
// by word 0 alone finds out; holders are recalled, puts drained and V is protected as for a move; the bytes are written, the frame is punched; end_evict() is stored. The way
// back is the same without recalls (nobody holds the location of a page on SSD), hence with the same version: busy, bytes, end_page_in().

[[nodiscard]] constexpr Location begin_evict(const Location& claimed) noexcept {
  Location l = claimed;
  l.tier = Tier::ssd;
  return l;
}
[[nodiscard]] constexpr Location end_evict(const Location& evicting) noexcept {
  Location l = end_move(evicting, evicting.owner);
  l.tier = Tier::ssd;
  return l;
}
[[nodiscard]] constexpr Location end_page_in(const Location& claimed) noexcept {
  Location l = claimed;
  l.busy = false;
  l.tier = Tier::dram;
  return l;
}

// Memory may begin on SSD without ever having been written there: where frames are counted (--dram), whoever is made the owner of a page without its help first brings it in, and counts it,
// when the page is used. Whose bytes do not matter is taken from SSD without its owner: nobody holds its location and it has no frame, so again nothing but word 0 changes.

[[nodiscard]] constexpr Location in_tier(Location l, Tier tier) noexcept {
  l.tier = tier;
  return l;
}
[[nodiscard]] constexpr Location end_take(const Location& claimed, Rank by) noexcept {
  Location l = end_page_in(claimed);
  l.owner = by;
  return l;
}

// Its owner may have single blocks of a page on SSD in DRAM: then its tier is partial. For everybody else that is as ssd, only that the page cannot be taken without its owner. Who brings the
// first blocks in compare-swaps ssd to partial, holding their bits, while word 0 is not busy. From then on only this rank ends partial, and whoever does has the bits of all blocks, or has
// had them since word 0 is busy: so who holds a bit of the page and has seen partial, not busy, may rely on it. Nobody else knows the frames, so nobody is recalled, and the version stays.

/// Can a block of the page be had from this rank's spill file alone? Then word 0 is to be in_part() before a block is used.
[[nodiscard]] constexpr bool at_home_on_ssd(const Location& l, Rank me) noexcept { return l.allocated && !l.busy && l.owner == me && l.tier != Tier::dram; }
[[nodiscard]] constexpr Location in_part(const Location& l) noexcept { return in_tier(l, Tier::partial); }

/// What a rank that makes room may do with a page in whose word 0 it has set busy.
enum class Leaving : std::uint8_t {
  wait,        ///< nothing: somebody else had set it
  drop,        ///< its bytes here do not matter: another rank owns it, it is on SSD, or nobody has touched it. They go while it is busy, if they can; then word 0 becomes what it was
  spill,       ///< ours: if it can leave, begin_evict(); else word 0 becomes what it was
  spill_part,  ///< ours, in part: if its blocks can leave, those that changed are written; then word 0 becomes what it was, on SSD
};
[[nodiscard]] constexpr Leaving way_out(const Location& before, Rank me) noexcept {
  if (before.busy) return Leaving::wait;
  const bool ours = before.allocated && before.owner == me && !before.untouched;
  return !ours || before.tier == Tier::ssd ? Leaving::drop : before.tier == Tier::dram ? Leaving::spill : Leaving::spill_part;
}

/// Does a rank that has set busy in word 0 bring in what of the page is not here? Else word 0 becomes what it was, if nobody else had set it.
[[nodiscard]] constexpr bool pages_in(const Location& before, Rank me) noexcept { return at_home_on_ssd(before, me); }

/// May a read go straight to the owner's frame? Not to one that may be punched. That the page moves does not matter: its frame stays as it is.
[[nodiscard]] constexpr bool readable(const Location& l) noexcept { return l.allocated && l.tier == Tier::dram; }

/// May the location be kept, in an address cache?
[[nodiscard]] constexpr bool keepable(const Location& l) noexcept { return readable(l) && !l.busy && !l.untouched; }

/// Were the bytes that a read brought the page's, if word 0 was `before` (readable) when it began and is `after` now? No move has ended and no eviction has begun to
/// punch: either would show in the version or the tier (rule 9). A touch does not: what was read before the first change need not be that.
[[nodiscard]] constexpr bool stood(const Location& before, const Location& after) noexcept {
  return before.version == after.version && before.tier == after.tier;
}

/// Word 2 has 48 bits of holders: in larger jobs a bit stands for several consecutive ranks, all of which are asked to forget.
inline constexpr std::uint32_t kHolderBits = 48;
inline constexpr std::uint64_t kHolders = (std::uint64_t{1} << kHolderBits) - 1;
[[nodiscard]] constexpr std::uint32_t ranks_per_bit(std::uint32_t ranks) noexcept { return (ranks + kHolderBits - 1) / kHolderBits; }

[[nodiscard]] constexpr std::uint64_t holder_bit(Rank rank, std::uint32_t ranks) noexcept {
  return std::uint64_t{1} << (raw(rank) / ranks_per_bit(ranks));
}

/// Word 2 of a page with this version that nobody holds.
[[nodiscard]] constexpr std::uint64_t unheld(std::uint32_t version) noexcept { return std::uint64_t{version} << kHolderBits; }

/// May a rank keep the location `where`, whose bit was set in word 2 when that was `holders`, before or after word 0 was read? The stamp wraps: if 65 536 moves ended between the
/// two, word 0 being read first, this would err; so the bit is sent first.
[[nodiscard]] constexpr bool registered(const Location& where, std::uint64_t holders) noexcept {
  return keepable(where) && (unheld(where.version) ^ holders) >> kHolderBits == 0;
}

}  // namespace kasane::gas
