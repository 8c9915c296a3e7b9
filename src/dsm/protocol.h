// SPDX-License-Identifier: Apache-2.0
// The coherence protocol of one block on one rank, as a pure function (table: docs/design/dsm.md; after Endo's thesis ch. 6.2 and the
// owner-based multiple-writer protocols of its ch. 2.5). src/dsm drives it with compare-swaps on the block table; tests/model
// walks it exhaustively. No I/O, no state.
//
// A step has two halves: the *claim* (one compare-swap from `before` to `claimed`, which sets the busy bit) and, after the
// actions were carried out in their order, the *finish* (a store of `after`). Only the holder of the busy bit changes a word, so the finish cannot fail.
//
// Invariants (checked by check()):
//   - owned ⇒ neither twin nor whole;  one of them, not both ⇔ view is write and not owned
//   - a block with pins has a view
//   - saved ⇒ owned, and V does not allow stores
//   - the holder of a busy bit never waits for another block's bit
#pragma once

#include <array>
#include <cstdint>

#include "gas/relocation.h"

namespace kasane::dsm {

enum class View : std::uint8_t { none = 0, read = 1, write = 2 };   ///< what V allows

struct BlockState {
  bool busy = false;
  bool owned = false;            ///< M here holds the master copy
  View view = View::none;
  bool twin = false;             ///< T holds what the owner had when we began to write
  bool whole = false;            ///< all bytes in M are ours: we write them all, and never read what the owner had (a view of write_only)
  std::uint32_t pins = 0;
  bool saved = false;            ///< the spill file has the same bytes, or they do not matter: nothing need be written when the block leaves

  /// Are there changes that no release has sent?
  [[nodiscard]] constexpr bool dirty() const noexcept { return twin || whole; }

  friend bool operator==(const BlockState&, const BlockState&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return (busy ? 1u : 0u) | (owned ? 2u : 0u) | (static_cast<std::uint32_t>(view) << 2) | (twin ? 16u : 0u) | (whole ? 32u : 0u) | (saved ? 64u : 0u) | (pins << 8);
  }
  [[nodiscard]] static constexpr BlockState of(std::uint32_t word) noexcept {
    return {(word & 1u) != 0, (word & 2u) != 0, static_cast<View>((word >> 2) & 3u), (word & 16u) != 0, (word & 32u) != 0, word >> 8, (word & 64u) != 0};
  }
  [[nodiscard]] constexpr bool check() const noexcept {
    return !(owned && dirty()) && !(twin && whole) && (busy || owned || dirty() == (view == View::write)) && (pins == 0 || view != View::none) &&
           !(saved && (!owned || (view == View::write && !busy)));
  }
};

enum class Event : std::uint8_t {
  load,          ///< a fault, or somebody who wants to read
  store,
  release,       ///< release_all reached this block
  acquire,       ///< acquire_all reached this block; also: memory last used elsewhere is taken into use (rule 7)
  pin_read,
  pin_write,
  pin_whole,     ///< the same for who will store to every byte of the block before the pin ends, and reads none that it has not stored
  unpin,
  discard,       ///< bytes of this block are freed here: our unreleased changes to them must never be sent (rule 7)
  discard_block, ///< all of its bytes are
  yield,         ///< the page leaves: somebody else becomes its owner (rule 8), or the stack goes back to its birth rank
  arrive,        ///< the page comes: we become its owner, its bytes arrive
  come_in,       ///< the page of ours is on SSD, or in part, and comes in as a whole, for others
  arrive_blank,  ///< we become its owner and its bytes do not matter (fresh memory, a recycled stack)
  found_own,     ///< fetch, or a put of what was changed, found in the directory that we are the owner (busy, from load, store or pin; from release, acquire or discard: not in DRAM)
  rest,          ///< whoever makes room wants to know whether this block of ours is touched again
  let_go,        ///< memory is short: nothing of the page stays visible here, whoever owns it. Only where nothing is lost with its frame
  watch,         ///< a release wants to know of later stores of ours to this block
  blank,         ///< the bytes of this block of ours do not matter any more, and its page is in part: nobody else puts to it
  pass,          ///< it shows nothing and lies between blocks that are to show nothing: with it held, V changes for all by one call
};

/// What a pinned range is for. write_only: every byte is stored to before the pin ends, and none is read that was not.
enum class Use : std::uint8_t { read, read_write, write_only };
/// covered: the range holds the whole block.
[[nodiscard]] constexpr Event pin_event(Use use, bool covered) noexcept {
  if (use == Use::read) return Event::pin_read;
  return use == Use::write_only && covered ? Event::pin_whole : Event::pin_write;
}

enum class Action : std::uint8_t {
  end,
  fetch,           ///< owner's bytes → M. Not visible yet, so a plain copy
  find,            ///< the same without the bytes: who owns the page, and that we are among its readers
  make_twin,       ///< M → T; V does not allow stores now
  allow_read,
  allow_write,
  protect_read,    ///< returns when no store can land any more
  protect_none,
  diff_put,        ///< bytes where M ≠ T → owner, remotely complete (V does not allow stores now)
  diff_put_live,   ///< as diff_put while stores may land: each byte is loaded once, for the message and for T
  put_all,         ///< all bytes → owner, remotely complete
  put_all_live,    ///< the same while stores may land: each byte is loaded once, for the message and for T. What was whole has a twin from now on
  refresh,         ///< owner's bytes, where they differ from T (or from M without a twin) → M and T: the merge of rule 4
  merge_arrival,   ///< the old owner's bytes where they differ from T (all of them without a twin, none of them if M is whole) → M
  read_back,       ///< this rank's spill file → M: the bytes of a block of ours that is not here
  restore_bytes,   ///< T → M over the freed bytes: this rank has changed nothing there, and holds what the owner had
  mark_page,       ///< our next release looks at the page: from here on our threads store to it unseen
};

enum class Verdict : std::uint8_t {
  done,      ///< nothing to do
  proceed,   ///< claim, act, finish
  wait,      ///< somebody holds the bit: come back
  refuse,    ///< the page stays: the block is pinned, or has changes that would be lost
};

struct Step {
  Verdict verdict = Verdict::done;
  BlockState claimed{};
  std::array<Action, 4> actions{};   ///< in order, up to Action::end
  BlockState after{};
};

/// Does it put while stores may land?
[[nodiscard]] constexpr bool puts_live(const Step& step) noexcept {
  return step.actions[0] == Action::diff_put_live || step.actions[0] == Action::put_all_live;
}

[[nodiscard]] constexpr Step next(const BlockState& s, Event event) noexcept {
  const auto proceed = [&](BlockState after, std::array<Action, 4> actions) {
    BlockState claimed = s;
    claimed.busy = true;
    after.busy = false;
    return Step{Verdict::proceed, claimed, actions, after};
  };
  const auto with = [&](View view, bool twin, std::uint32_t pins) { return BlockState{false, s.owned, view, twin, false, pins}; };
  const auto owner = [](std::uint32_t pins) { return BlockState{false, true, View::write, false, false, pins}; };
  const auto whole = [](std::uint32_t pins) { return BlockState{false, false, View::write, false, true, pins}; };
  const auto saved = [](View view, std::uint32_t pins) { return BlockState{false, true, view, false, false, pins, true}; };
  using enum Action;

  if (event == Event::found_own) {   // the holder of the bit asks: no claim
    return Step{Verdict::proceed, s, {mark_page, allow_write}, owner(s.pins)};
  }
  if (s.busy) return Step{Verdict::wait, s, {}, s};

  const bool pin = event == Event::pin_read || event == Event::pin_write || event == Event::pin_whole;
  const std::uint32_t pins = s.pins + (pin ? 1u : 0u);
  const auto pinned = [&] {   // nothing to do but to count
    BlockState after = s;
    after.pins = pins;
    return pin ? proceed(after, {}) : Step{};
  };
  switch (event) {
    case Event::load:
    case Event::pin_read:
      if (s.view != View::none) return pinned();
      if (s.owned && s.saved) return proceed(saved(View::read, pins), {allow_read});
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      return proceed(with(View::read, false, pins), {fetch, allow_read});

    case Event::store:
    case Event::pin_write:
      if (s.view == View::write) return pinned();
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      if (s.view == View::read) return proceed(with(View::write, true, pins), {make_twin, allow_write});
      return proceed(with(View::write, true, pins), {fetch, make_twin, allow_write});

    case Event::pin_whole:
      if (s.view == View::write) return pinned();
      if (s.owned) return proceed(owner(pins), {mark_page, allow_write});
      if (s.view == View::read) return proceed(whole(pins), {allow_write});
      return proceed(whole(pins), {find, allow_write});

    case Event::unpin: {
      BlockState after = s;
      --after.pins;
      return proceed(after, {});
    }

    case Event::release:   // rule 3
      if (!s.dirty()) return Step{};
      if (s.pins != 0) return proceed(with(s.view, true, s.pins), {s.whole ? put_all_live : diff_put_live});
      return proceed(with(View::read, false, 0), {protect_read, s.whole ? put_all : diff_put});

    case Event::acquire:   // rule 2; unreleased bytes go out first, so nothing is lost
      if (s.owned || s.view == View::none) return Step{};
      if (s.whole) return proceed(s, {find});   // no byte of it is another's: it stays, but this rank must stay among the readers, too
      if (s.pins != 0 && s.twin) return proceed(s, {diff_put_live, refresh});
      if (s.pins != 0) return proceed(s, {refresh});
      if (s.twin) return proceed(with(View::none, false, 0), {protect_none, diff_put});
      return proceed(with(View::none, false, 0), {protect_none});

    case Event::discard:   // rule 7. What is whole is no diff from which bytes can be taken: all goes out before any of it is freed
    case Event::discard_block:
      if (s.twin) return proceed(s, {restore_bytes});
      if (!s.whole) return Step{};
      if (s.pins != 0) return proceed(with(s.view, true, s.pins), {put_all_live});
      if (event == Event::discard_block) return proceed(with(View::none, false, 0), {protect_none});
      return proceed(with(View::read, false, 0), {protect_read, put_all});

    case Event::yield:     // rule 8: the bytes stay in M, so readers that still come find them
      if (s.pins != 0) return Step{Verdict::refuse, s, {}, s};
      if (!s.owned) return Step{};
      return proceed(BlockState{}, {protect_none});

    case Event::arrive:
      if (s.owned) return Step{};
      return proceed(owner(s.pins), {merge_arrival, mark_page, allow_write});

    case Event::come_in:   // whatever is here stays, and others may put to it from now on, so it is not known to be saved
      if (s.owned) return proceed(owner(s.pins), {mark_page, allow_write});
      return proceed(owner(s.pins), {s.dirty() ? merge_arrival : read_back, mark_page, allow_write});

    case Event::arrive_blank:   // claimed even if nothing is to be done: while all of a range is held, none of it can leave
      if (s.owned && s.view == View::write) return proceed(s, {});
      return proceed(owner(s.pins), {mark_page, allow_write});

    case Event::watch:
      if (!s.owned || s.view != View::write || s.pins != 0) return Step{};
      return proceed(BlockState{false, true, View::read, false, false, 0}, {protect_read});

    case Event::rest:
      if (!s.owned || s.view == View::none || s.pins != 0) return Step{};
      return proceed(s.saved ? saved(View::none, 0) : BlockState{false, true, View::none, false, false, 0}, {protect_none});

    case Event::pass:
      if (s.view != View::none) return Step{};
      return proceed(s, {});

    case Event::blank:   // as if the spill file had whatever is here
      if (!s.owned || s.pins != 0) return Step{};
      return proceed(saved(View::none, 0), {s.view == View::none ? end : protect_none});

    case Event::let_go:
      if (s.pins != 0 || s.dirty()) return Step{Verdict::refuse, s, {}, s};
      return proceed(BlockState{}, {s.view == View::none ? end : protect_none});

    case Event::found_own: break;
  }
  return Step{};
}

/// Has V all that a pin needs, so that it is only to be counted? As next() has it: then the claim and the finish, with nothing between them, can be one compare-swap.
[[nodiscard]] constexpr bool shows(const BlockState& s, Use use) noexcept {
  return !s.busy && (use == Use::read ? s.view != View::none : s.view == View::write);
}

/// The step of who holds the bit of an invalid block for a load, store or pin, and has found the page ours and on SSD, or in part: the block comes by itself, the page stays there.
[[nodiscard]] constexpr Step found_on_ssd(const BlockState& s, Event event) noexcept {
  using enum Action;
  const bool pin = event == Event::pin_read || event == Event::pin_write || event == Event::pin_whole, loads = event == Event::load || event == Event::pin_read;
  BlockState after{false, true, loads ? View::read : View::write, false, false, s.pins + (pin ? 1u : 0u), loads};
  if (loads) return {Verdict::proceed, s, {read_back, allow_read}, after};
  if (event == Event::pin_whole) return {Verdict::proceed, s, {mark_page, allow_write}, after};
  return {Verdict::proceed, s, {mark_page, read_back, allow_write}, after};   // a store may pass as soon as the bytes are there
}

/// Can a page's bytes be had, by a fault of rank `me` that has found it by word 0? Not from our own M while the page leaves: then it is neither ours nor yet a copy. Puts counted before the
/// move may still change M, and the move may be refused, so a twin taken now could later send another rank's old byte as our change.
enum class Fetched : std::uint8_t {
  yes,         ///< from its owner
  own,         ///< our M has them
  on_ssd,      ///< our spill file has them, but for blocks that are ours here
  leaving,     ///< not now
  untouched,   ///< nobody has touched it: whoever does is its owner
  asleep,      ///< its owner, another rank, must bring them in first
  wild,        ///< it is not allocated
};
[[nodiscard]] constexpr Fetched whence(const gas::Location& where, Rank me) noexcept {
  if (!where.allocated) return Fetched::wild;
  const bool asleep = where.tier != gas::Tier::dram;
  if (where.busy && (where.owner == me || asleep || where.untouched)) return Fetched::leaving;
  if (asleep) return where.owner == me ? Fetched::on_ssd : Fetched::asleep;
  if (where.untouched) return Fetched::untouched;
  return where.owner == me ? Fetched::own : Fetched::yes;
}

// A release looks at every page that is marked: one that a rank has fetched since, that came into our hands, or that we put to. Who has copies of it must hear of the blocks whose bytes may
// have changed: those that we put to; and, where our threads may have stored to the page unseen, those of which one look at their word says so.

/// Not if the block is ours and protected: a store to it would have marked the page again. A block that is not ours (any more), or is on SSD, may be what the page was marked for. One at rest
/// counts as open, since a release that has taken the mark may look after it was laid to rest; so does one that is saved: it may have been stored to, left, and come back since.
[[nodiscard]] constexpr bool may_have_changed(const BlockState& s) noexcept { return s.busy || s.saved || !s.owned || s.view != View::read; }
/// Can our threads store to it unseen, or will they be able to when its bit is free?
[[nodiscard]] constexpr bool may_be_ours(const BlockState& s) noexcept { return s.busy || s.owned; }

}  // namespace kasane::dsm
