// SPDX-License-Identifier: Apache-2.0
// The directory entry of a page and its transitions, pure (docs/design/dsm.md). Four 64-bit words in the
// manager's memory:
//
// word 0 version 32 | reserved 7 | fixed 1 | untouched 1 | busy 1 | tier 2 | owner+1 20 where the page is
//   word 1   readers, named by 64 bits (gas/rank_code.h)      gas/sharing.h
//   word 2   stamp 16 | holders of the location, named by 48   address caches
//   word 3   last user, number and time of moves              gas/relocation_policy.h
//
// Filling an address cache and moving the page exclude each other without a lock. The mover sets busy in word
// 0 (a fetch-or, which also returns where the page is), then swaps word 2: no holders, and the next version
// as the stamp; at the end word 0 gets that version. So the stamp is the version, except between swap and
// end, when word 0 says busy. A rank that caches a location sets its bits in word 2 and reads word 0, *in any
// order*, and keeps the location if the stamp that it found is the version. Then its bits were set after the
// swap of the move that ended with this version, and before the swap of the next move, which takes them
// and recalls the location from this rank before it reads a byte. Every change of the version goes with such
// a swap (registered()).
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

enum class Tier : std::uint8_t {
  dram = 0,
  ssd = 1,
  partial = 2,  ///< as ssd for other ranks; the owner has some of its blocks in DRAM
};

struct Location {
  bool allocated = false;
  Rank owner = kNoRank;
  Tier tier = Tier::dram;
  bool busy = false;  ///< the page is moving; owner is still the old one
  std::uint32_t version = 0;
  /// its bytes are undefined: the first rank that touches it becomes its owner, without data. Until then
  /// owner is provisional
  bool untouched = false;
  bool fixed = false;  ///< its owner does not change, as long as the allocation lives

  friend bool operator==(const Location&, const Location&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return (std::uint64_t{version} << 32) | (busy ? std::uint64_t{1} << 22 : 0) |
           (untouched ? std::uint64_t{1} << 23 : 0) | (fixed ? std::uint64_t{1} << 24 : 0) |
           (static_cast<std::uint64_t>(tier) << 20) | (allocated ? std::uint64_t{raw(owner)} + 1 : 0);
  }
  [[nodiscard]] static constexpr Location of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>(word & 0xFFFFF);
    return {id != 0,
            id != 0 ? Rank{id - 1} : kNoRank,
            static_cast<Tier>((word >> 20) & 3),
            ((word >> 22) & 1) != 0,
            static_cast<std::uint32_t>(word >> 32),
            ((word >> 23) & 1) != 0,
            ((word >> 24) & 1) != 0};
  }
};

inline constexpr std::uint32_t kMaxRanks = 0xFFFFE;  ///< 20 bits of owner, 0 meaning none
inline constexpr std::uint64_t kBusyBit = std::uint64_t{1} << 22;

/// What a mover for rank `to` has found by setting busy in word 0, which was `before`.
enum class MoveVerdict : std::uint8_t {
  claim,  ///< the page is the mover's to move; no other thread changes word 0 until it is not busy any more
  // The next five leave nothing to move. No other thread changes word 0 until the mover has made it again
  // what it was.
  already_there,  ///< rank `to` owns the page
  not_allocated,  ///< no rank owns the page
  fixed,          ///< another rank owns the page, and stays its owner
  on_ssd,         ///< the page's owner must page it in first, if its bytes matter
  in_part,        ///< the page's owner must page the rest in first, in any case
  wait,           ///< another mover had set it
};

struct MoveStep {
  MoveVerdict verdict;
  Location claimed;  ///< word 0 as it is now
};

[[nodiscard]] constexpr MoveStep begin_move(const Location& l, Rank to) noexcept {
  if (l.busy) return {MoveVerdict::wait, l};
  Location claimed = l;
  claimed.busy = true;
  if (!l.allocated) return {MoveVerdict::not_allocated, claimed};
  if (l.fixed && l.owner != to) return {MoveVerdict::fixed, claimed};
  if (l.tier != Tier::dram)
    return {l.tier == Tier::ssd ? MoveVerdict::on_ssd : MoveVerdict::in_part, claimed};
  return {l.owner == to ? MoveVerdict::already_there : MoveVerdict::claim, claimed};
}

/// Word 0 when the bytes have arrived at `to`, or (to == old owner) when the owner refused.
[[nodiscard]] constexpr Location end_move(const Location& claimed, Rank to) noexcept {
  Location l = claimed;
  l.busy = false;
  l.owner = to;
  l.version = claimed.version + 1;  // the stamp with which a Recall has swapped word 2
  l.untouched = claimed.untouched && to == claimed.owner;
  return l;
}

// First touch. A page is allocated untouched: its allocator is the provisional owner, and has its blocks as
// invalid as other ranks. The first rank that faults on it sets busy and, if it is untouched still,
// stores end_touch(). Nothing is recalled, asked for or copied, since no rank holds the location of an
// untouched page, puts to it, or has its blocks. So word 2 is left alone, and the version stays. A direct put
// is a touch by the provisional owner: it first compare-swaps to touched(). Direct gets read the provisional
// owner's frame and keep no location; one that overlaps a touch has begun before the first change.

[[nodiscard]] constexpr Location touched(Location l) noexcept {
  l.untouched = false;
  return l;
}
/// Word 0 of a page that is not busy, when it is decided whether its owner may change. No rank knows the flag
/// but by word 0, and a mover reads it when it sets busy; so nothing is recalled.
[[nodiscard]] constexpr Location with_fixed(Location l, bool fixed) noexcept {
  l.fixed = fixed;
  return l;
}
[[nodiscard]] constexpr Location end_touch(const Location& claimed, Rank by) noexcept {
  Location l = touched(claimed);
  l.busy = false;
  l.owner = by;
  return l;
}

// A page that goes to SSD is moved by its owner. Busy is set, with the result already_there; then
// begin_evict() is stored, so that readers by word 0 notice. Holders are recalled, puts drained, and V is
// protected as for a move; the bytes are written, the frame is punched; end_evict() is stored. The way back
// is the same without recalls (no rank holds the location of a page on SSD), hence with the same version:
// busy, bytes, end_page_in().

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

// A page may begin on SSD without ever having been written there. Where frames are counted (--dram), a rank
// that is made owner without taking part first pages the page in, and counts it, when the page is used. A
// page whose bytes are undefined is taken from SSD without its owner: no rank holds its location and it has
// no frame, so only word 0 changes.

[[nodiscard]] constexpr Location in_tier(Location l, Tier tier) noexcept {
  l.tier = tier;
  return l;
}
[[nodiscard]] constexpr Location end_take(const Location& claimed, Rank by) noexcept {
  Location l = end_page_in(claimed);
  l.owner = by;
  return l;
}

// The owner may have single blocks of a page on SSD in DRAM: then its tier is partial. For other ranks that
// is as ssd, except that the page cannot be taken without its owner. A thread that reads the first blocks
// compare-swaps ssd to partial, holding their bits, while word 0 is not busy. From then on only this rank
// ends partial, with the bits of all blocks held, or held since word 0 became busy. So a thread that holds a
// bit of the page and has seen partial, not busy, may rely on it. No other rank knows the frames, so none is
// recalled, and the version stays.

/// Can a block of the page be read from this rank's spill file alone? Then word 0 must be in_part() before a
/// block is used.
[[nodiscard]] constexpr bool owned_on_ssd(const Location& l, Rank me) noexcept {
  return l.allocated && !l.busy && l.owner == me && l.tier != Tier::dram;
}
[[nodiscard]] constexpr Location in_part(const Location& l) noexcept { return in_tier(l, Tier::partial); }

/// What a rank that makes room may do with a page in whose word 0 it has set busy.
enum class EvictionKind : std::uint8_t {
  wait,  ///< nothing: another thread had set it
  /// its bytes here are not needed: another rank owns it, it is on SSD, or it is untouched. They are dropped
  /// while it is busy, if they can; then word 0 becomes what it was
  drop,
  spill,  ///< an own page: if it can be evicted, begin_evict(); else word 0 becomes what it was
  /// an own, partial page: if its blocks can be evicted, the changed ones are written; then word 0 becomes
  /// what it was, on SSD
  spill_part,
};
[[nodiscard]] constexpr EvictionKind eviction_kind(const Location& before, Rank me) noexcept {
  if (before.busy) return EvictionKind::wait;
  const bool ours = before.allocated && before.owner == me && !before.untouched;
  return !ours || before.tier == Tier::ssd ? EvictionKind::drop
         : before.tier == Tier::dram       ? EvictionKind::spill
                                           : EvictionKind::spill_part;
}

/// Does a rank that has set busy in word 0 page in the missing part? Else word 0 becomes what it was, if no
/// other thread had set busy.
[[nodiscard]] constexpr bool pages_in(const Location& before, Rank me) noexcept {
  return owned_on_ssd(before, me);
}

// A put that replaces every byte of a page on SSD does not need the old ones. It hands its bytes to the
// owner, which makes them the page's in the place of those on SSD: busy, bytes, end_page_in(). No rank sees
// the page in between, so a read gets the old bytes or the new ones.

/// What a rank that has set busy in word 0 makes the page of. nothing: word 0 becomes what it was, if no
/// other thread had set busy.
enum class PageInFrom : std::uint8_t { nothing, ssd, put };
/// handed: a put has handed over the bytes of the page, all of them.
[[nodiscard]] constexpr PageInFrom page_in_from(const Location& before, Rank me, bool handed) noexcept {
  if (!pages_in(before, me)) return PageInFrom::nothing;
  return handed ? PageInFrom::put : PageInFrom::ssd;
}
/// May a put to a page that was found there hand over its bytes? whole: it replaces every byte. Else it is
/// made to the owner's frame, after the page was paged in.
[[nodiscard]] constexpr bool hands_over(const Location& found, bool whole) noexcept {
  return whole && found.allocated && !found.busy && !found.untouched && found.tier != Tier::dram;
}

/// May the owner's frame be read directly? Not one that may be punched. It does not matter if the page moves:
/// its frame stays as it is.
[[nodiscard]] constexpr bool readable(const Location& l) noexcept {
  return l.allocated && l.tier == Tier::dram;
}

/// May the location be kept in an address cache?
[[nodiscard]] constexpr bool keepable(const Location& l) noexcept {
  return readable(l) && !l.busy && !l.untouched;
}

/// Were the bytes that a read brought the page's, if word 0 was `before` (readable) when it began and is
/// `after` now? No move has ended and no eviction has begun to punch: either would show in the version or the
/// tier (rule 9). A touch does not show: the read began before the first change, and need not see it.
[[nodiscard]] constexpr bool stood(const Location& before, const Location& after) noexcept {
  return before.version == after.version && before.tier == after.tier;
}

/// Word 2 has 48 bits of holders (gas/rank_code.h): all ranks that they name are asked to forget.
inline constexpr std::uint32_t kHolderBits = 48;

/// Word 2 of a page with this version that has no holders.
[[nodiscard]] constexpr std::uint64_t unheld(std::uint32_t version) noexcept {
  return std::uint64_t{version} << kHolderBits;
}

/// May a rank keep the location `where`? Its bits were set in word 2, which was `holders`, before or after
/// word 0 was read. The stamp wraps: if 65 536 moves ended between the two, word 0 being read first, this
/// would err; so the bits are sent first.
[[nodiscard]] constexpr bool registered(const Location& where, std::uint64_t holders) noexcept {
  return keepable(where) && (unheld(where.version) ^ holders) >> kHolderBits == 0;
}

}  // namespace kasane::gas
