// SPDX-License-Identifier: Apache-2.0
// The coherence protocol of one block on one rank, as a pure function (table: docs/design/dsm.md; after
// Endo's thesis ch. 6.2 and the owner-based multiple-writer protocols of its ch. 2.5). src/dsm drives it with
// compare-swaps on the block table; tests/model walks it exhaustively. No I/O, no state.
//
// A step has two halves. The *claim* is one compare-swap from `before` to `claimed`, which sets the busy bit.
// When the actions were carried out in their order, the *finish* stores `after`. Only the holder of the busy
// bit changes a word, so the finish cannot fail.
//
// Invariants (checked by check()):
//   - owned ⇒ neither twin nor whole;  one of them, not both ⇔ access is write and not owned
//   - a block with pins has an access
//   - saved ⇒ owned, and V does not allow stores
//   - the holder of a busy bit never waits for another block's bit
#pragma once

#include <array>
#include <cstdint>

#include "gas/relocation.h"
#include "mem/fault_engine.h"

namespace kasane::dsm {

using mem::Access;

struct BlockState {
  bool busy = false;
  bool owned = false;            ///< M here holds the master copy
  Access access = Access::none;  ///< what V allows
  bool twin = false;             ///< T holds the owner's bytes of when this rank began to write
  /// all bytes in M are this rank's: it writes them all and never reads the owner's (a view of write_only)
  bool whole = false;
  std::uint32_t pins = 0;
  /// the spill file has the same bytes, or they are undefined: the block need not be written when it leaves
  bool saved = false;

  /// Are there changes that were not sent?
  [[nodiscard]] constexpr bool dirty() const noexcept { return twin || whole; }

  friend bool operator==(const BlockState&, const BlockState&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return (busy ? 1u : 0u) | (owned ? 2u : 0u) | (static_cast<std::uint32_t>(access) << 2) |
           (twin ? 16u : 0u) | (whole ? 32u : 0u) | (saved ? 64u : 0u) | (pins << 8);
  }
  [[nodiscard]] static constexpr BlockState of(std::uint32_t word) noexcept {
    return {(word & 1u) != 0,  (word & 2u) != 0,  static_cast<Access>((word >> 2) & 3u),
            (word & 16u) != 0, (word & 32u) != 0, word >> 8,
            (word & 64u) != 0};
  }
  [[nodiscard]] constexpr bool check() const noexcept {
    return !(owned && dirty()) && !(twin && whole) &&
           (busy || owned || dirty() == (access == Access::write)) && (pins == 0 || access != Access::none) &&
           !(saved && (!owned || (access == Access::write && !busy)));
  }
};

enum class BlockEvent : std::uint8_t {
  load,  ///< a fault, or a thread that reads
  store,
  release,  ///< release_all reached this block
  acquire,  ///< acquire_all reached this block; also: memory last used elsewhere is taken into use (rule 7)
  /// the same of a block that this rank changes again and again: it stays writable
  release_open,
  acquire_open,
  pin_read,
  pin_write,
  /// like pin_write, by a thread that stores to every byte of the block before the pin ends, and reads none
  /// before
  pin_whole,
  unpin,
  discard,  ///< bytes of this block are freed here: unreleased changes to them must never be sent (rule 7)
  discard_block,  ///< all of its bytes are freed
  /// the page leaves: another rank becomes its owner (rule 8), or a stack goes back to its birth rank
  yield,
  arrive,   ///< the page arrives with its bytes: this rank becomes its owner
  page_in,  ///< this rank's page, which is on SSD or partial, is paged in as a whole for other ranks
  /// this rank becomes the page's owner, and its bytes are undefined (fresh memory, a recycled stack)
  arrive_blank,
  /// a fetch or a put found in the directory that this rank is the owner (busy, from load, store or pin; from
  /// release, acquire or discard: not in DRAM)
  found_own,
  retire,  ///< the pager wants to know whether this own block is accessed again
  /// memory is short: nothing of the page stays visible here, whatever rank owns it. Only where nothing is
  /// lost with its frame
  evict,
  watch,  ///< a release wants to notice later stores of this rank to this own block
  blank,  ///< the bytes of this own block become undefined; its page is partial, so no other rank puts to it
  /// the block is invisible and lies between blocks that are hidden: with its bit held, one call changes V
  /// for all
  pass,
  /// an atomic of this rank has changed bytes at the owner: a copy of them here is brought up to date
  renew,
};

/// What a pinned range is for. write_only: every byte is stored to before the pin ends, and none is read
/// before.
enum class Use : std::uint8_t { read, read_write, write_only };
/// covered: the range holds the whole block.
[[nodiscard]] constexpr BlockEvent pin_event(Use use, bool covered) noexcept {
  if (use == Use::read) return BlockEvent::pin_read;
  return use == Use::write_only && covered ? BlockEvent::pin_whole : BlockEvent::pin_write;
}

enum class Action : std::uint8_t {
  end,
  fetch,      ///< owner's bytes → M. Not visible yet, so a plain copy
  find,       ///< find the owner and join the page's readers, without fetching bytes
  make_twin,  ///< M → T; V does not allow stores now
  allow_read,
  allow_write,
  protect_read,  ///< returns when no further store can succeed
  protect_none,
  diff_put,  ///< bytes where M ≠ T → owner, remotely complete (V does not allow stores now)
  /// as diff_put while stores may happen: each byte is loaded once, for the message and for T
  diff_put_live,
  put_all,  ///< all bytes → owner, remotely complete
  /// as put_all while stores may happen: each byte is loaded once, for the message and for T. A whole block
  /// has a twin afterwards
  put_all_live,
  /// owner's bytes, where they differ from T (or from M without a twin) → M and T: the merge of rule 4
  refresh,
  /// the old owner's bytes where they differ from T (all of them without a twin, none of them if M is whole)
  /// → M
  merge_arrival,
  read_back,  ///< this rank's spill file → M: the bytes of an own block that is not in DRAM
  /// T → M over the freed bytes: then this rank has changed nothing there and holds the owner's bytes
  restore_bytes,
  /// the next release examines the page: from here on stores of this rank's threads are not noticed
  mark_page,
};

enum class Verdict : std::uint8_t {
  done,     ///< nothing to do
  proceed,  ///< claim, act, finish
  wait,     ///< another thread holds the bit: try again
  refuse,   ///< the page stays: the block is pinned, or has changes that would be lost
};

struct BlockStep {
  Verdict verdict = Verdict::done;
  BlockState claimed{};
  std::array<Action, 4> actions{};  ///< in order, up to Action::end
  BlockState after{};
};

[[nodiscard]] constexpr BlockStep next(const BlockState& s, BlockEvent event) noexcept {
  const auto proceed = [&](BlockState after, std::array<Action, 4> actions) {
    BlockState claimed = s;
    claimed.busy = true;
    after.busy = false;
    return BlockStep{Verdict::proceed, claimed, actions, after};
  };
  const auto with = [&](Access access, bool twin, std::uint32_t pins) {
    return BlockState{false, s.owned, access, twin, false, pins};
  };
  const auto owner = [](std::uint32_t pins) {
    return BlockState{false, true, Access::write, false, false, pins};
  };
  const auto whole = [](std::uint32_t pins) {
    return BlockState{false, false, Access::write, false, true, pins};
  };
  const auto saved = [](Access access, std::uint32_t pins) {
    return BlockState{false, true, access, false, false, pins, true};
  };
  using enum Action;

  if (event == BlockEvent::found_own) {  // the caller holds the bit: no claim
    return BlockStep{Verdict::proceed, s, {mark_page, allow_write}, owner(s.pins)};
  }
  if (s.busy) return BlockStep{Verdict::wait, s, {}, s};

  const bool pin =
      event == BlockEvent::pin_read || event == BlockEvent::pin_write || event == BlockEvent::pin_whole;
  const std::uint32_t pins = s.pins + (pin ? 1u : 0u);
  const auto pinned = [&] {  // only the pin count changes
    BlockState after = s;
    after.pins = pins;
    return pin ? proceed(after, {}) : BlockStep{};
  };
  switch (event) {
    case BlockEvent::load:
    case BlockEvent::pin_read:
      if (s.access != Access::none) return pinned();
      if (s.owned && s.saved) return proceed(saved(Access::read, pins), {allow_read});
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      return proceed(with(Access::read, false, pins), {fetch, allow_read});

    case BlockEvent::store:
    case BlockEvent::pin_write:
      if (s.access == Access::write) return pinned();
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      if (s.access == Access::read) return proceed(with(Access::write, true, pins), {make_twin, allow_write});
      return proceed(with(Access::write, true, pins), {fetch, make_twin, allow_write});

    case BlockEvent::pin_whole:
      if (s.access == Access::write) return pinned();
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      if (s.access == Access::read) return proceed(whole(pins), {allow_write});
      return proceed(whole(pins), {find, allow_write});

    case BlockEvent::unpin: {
      BlockState after = s;
      --after.pins;
      return proceed(after, {});
    }

    case BlockEvent::release:  // rule 3
      if (!s.dirty()) return BlockStep{};
      if (s.pins != 0) return proceed(with(s.access, true, s.pins), {s.whole ? put_all_live : diff_put_live});
      return proceed(with(Access::read, false, 0), {protect_read, s.whole ? put_all : diff_put});

    case BlockEvent::acquire:  // rule 2; unreleased bytes are sent first, so nothing is lost
      if (s.owned || s.access == Access::none) return BlockStep{};
      // no byte of it is another rank's: it stays, but this rank must stay among the readers
      if (s.whole) return proceed(s, {find});
      if (s.pins != 0 && s.twin) return proceed(s, {diff_put_live, refresh});
      if (s.pins != 0) return proceed(s, {refresh});
      if (s.twin) return proceed(with(Access::none, false, 0), {protect_none, diff_put});
      return proceed(with(Access::none, false, 0), {protect_none});

    case BlockEvent::release_open:
      if (!s.twin || s.pins != 0) return next(s, BlockEvent::release);
      return proceed(s, {diff_put_live});

    // what this rank has not sent stays: the merge leaves it as it is
    case BlockEvent::acquire_open:
      if (!s.twin || s.pins != 0) return next(s, BlockEvent::acquire);
      return proceed(s, {refresh});

    // rule 7. A whole block has no diff from which freed bytes can be left out: all is sent before any of it
    // is freed
    case BlockEvent::discard:
    case BlockEvent::discard_block:
      if (s.twin) return proceed(s, {restore_bytes});
      if (!s.whole) return BlockStep{};
      if (s.pins != 0) return proceed(with(s.access, true, s.pins), {put_all_live});
      if (event == BlockEvent::discard_block) return proceed(with(Access::none, false, 0), {protect_none});
      return proceed(with(Access::read, false, 0), {protect_read, put_all});

    case BlockEvent::yield:  // rule 8: the bytes stay in M, so late readers find them
      if (s.pins != 0) return BlockStep{Verdict::refuse, s, {}, s};
      if (!s.owned) return BlockStep{};
      return proceed(BlockState{}, {protect_none});

    case BlockEvent::arrive:
      if (s.owned) return BlockStep{};
      return proceed(owner(s.pins), {merge_arrival, mark_page, allow_write});

    // what is here stays; other ranks may put to it from now on, so it is not known to be saved
    case BlockEvent::page_in:
      if (s.owned) return proceed(owner(s.pins), {mark_page, allow_write});
      return proceed(owner(s.pins), {s.dirty() ? merge_arrival : read_back, mark_page, allow_write});

    // claimed even if nothing is to be done: while all of a range is held, none of it can leave
    case BlockEvent::arrive_blank:
      if (s.owned && s.access == Access::write) return proceed(s, {});
      return proceed(owner(s.pins), {mark_page, allow_write});

    // a retired block, too: else it would count as changed, though no thread here touches it
    case BlockEvent::watch:
      if (!s.owned || s.saved || s.access == Access::read || s.pins != 0) return BlockStep{};
      return proceed(BlockState{false, true, Access::read, false, false, 0},
                     {s.access == Access::write ? protect_read : allow_read});

    case BlockEvent::retire:
      if (!s.owned || s.access == Access::none || s.pins != 0) return BlockStep{};
      return proceed(
          s.saved ? saved(Access::none, 0) : BlockState{false, true, Access::none, false, false, 0},
          {protect_none});

    case BlockEvent::pass:
      if (s.access != Access::none) return BlockStep{};
      return proceed(s, {});

    // by the merge of rule 4, of those bytes alone; of a whole block no byte is the owner's
    case BlockEvent::renew:
      if (s.owned || s.access == Access::none || s.whole) return BlockStep{};
      return proceed(s, {refresh});

    case BlockEvent::blank:  // as if the spill file had the same bytes
      if (!s.owned || s.pins != 0) return BlockStep{};
      return proceed(saved(Access::none, 0), {s.access == Access::none ? end : protect_none});

    case BlockEvent::evict:
      if (s.pins != 0 || s.dirty()) return BlockStep{Verdict::refuse, s, {}, s};
      return proceed(BlockState{}, {s.access == Access::none ? end : protect_none});

    case BlockEvent::found_own: break;
  }
  return BlockStep{};
}

/// Does V allow all that a pin needs, so that only the pin count changes? Agrees with next(). Then claim and
/// finish can be one compare-swap.
[[nodiscard]] constexpr bool shows(const BlockState& s, Use use) noexcept {
  return !s.busy && (use == Use::read ? s.access != Access::none : s.access == Access::write);
}

/// The step of a thread that holds the bit of an invalid block for a load, store or pin, and has found that
/// this rank has the page on SSD or partial: the block is read by itself, and the page stays partial.
[[nodiscard]] constexpr BlockStep found_on_ssd(const BlockState& s, BlockEvent event) noexcept {
  using enum Action;
  const bool pin = event == BlockEvent::pin_read || event == BlockEvent::pin_write ||
                   event == BlockEvent::pin_whole,
             loads = event == BlockEvent::load || event == BlockEvent::pin_read;
  BlockState after{false, true, loads ? Access::read : Access::write, false, false, s.pins + (pin ? 1u : 0u),
                   loads};
  if (loads) return {Verdict::proceed, s, {read_back, allow_read}, after};
  if (event == BlockEvent::pin_whole) return {Verdict::proceed, s, {mark_page, allow_write}, after};
  // a store may succeed as soon as the bytes are there
  return {Verdict::proceed, s, {mark_page, read_back, allow_write}, after};
}

/// Where can a fault of rank `me` get a page's bytes, if it has read word 0? Not from this rank's M while the
/// page is leaving: then M is neither the master copy nor yet a cached copy. Puts that were counted before
/// the move may still change M, and the move may be refused. A twin made now could later send another rank's
/// old byte as a change of this rank.
enum class Fetched : std::uint8_t {
  yes,               ///< from its owner
  own,               ///< M here has them
  on_ssd,            ///< this rank's spill file has them, but for own blocks that are in DRAM
  leaving,           ///< not now
  untouched,         ///< no rank has touched it: the first that does becomes its owner
  on_ssd_elsewhere,  ///< its owner, another rank, must page it in first
  not_allocated,     ///< it is not allocated
};
[[nodiscard]] constexpr Fetched fetch_source(const gas::Location& where, Rank me) noexcept {
  if (!where.allocated) return Fetched::not_allocated;
  const bool not_in_dram = where.tier != gas::Tier::dram;
  if (where.busy && (where.owner == me || not_in_dram || where.untouched)) return Fetched::leaving;
  if (not_in_dram) return where.owner == me ? Fetched::on_ssd : Fetched::on_ssd_elsewhere;
  if (where.untouched) return Fetched::untouched;
  return where.owner == me ? Fetched::own : Fetched::yes;
}

// A release examines every marked page: a page that another rank has fetched since, that arrived here, or
// that this rank put to. Ranks that have copies of it get notices of the blocks whose bytes may have changed:
// those that this rank put to; and where its threads may have stored without a fault, those for which
// may_have_changed() is true.

/// False if the block is owned and protected: a store to it would have marked the page again. A block that is
/// not owned (any more), or is on SSD, may be what the page was marked for. A retired block counts as
/// changed, since a release that has taken the mark may look after the block was retired. So does a saved
/// one: it may have been stored to, evicted, and read back since.
[[nodiscard]] constexpr bool may_have_changed(const BlockState& s) noexcept {
  return s.busy || s.saved || !s.owned || s.access != Access::read;
}
/// Can threads of this rank store to it without a fault, or will they when its bit is free?
[[nodiscard]] constexpr bool may_be_ours(const BlockState& s) noexcept { return s.busy || s.owned; }

}  // namespace kasane::dsm
