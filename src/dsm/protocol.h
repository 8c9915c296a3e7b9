// SPDX-License-Identifier: Apache-2.0
// The coherence protocol of one block on one rank, as a pure function (table: docs/design/dsm.md; after Endo's thesis ch. 6.2 and the
// owner-based multiple-writer protocols of its ch. 2.5). coherence.cpp drives it with compare-swaps on the block table; tests/model
// walks it exhaustively. No I/O, no state.
//
// A step has two halves: the *claim* (one compare-swap from `before` to `claimed`, which sets the busy bit) and, after the
// actions were carried out in their order, the *finish* (a store of `after`). Only the holder of the busy bit changes a word, so the finish cannot fail.
//
// Invariants (checked by check()):
//   - owned ⇒ no twin;  twin ⇔ view is write and not owned
//   - a block with pins has a view
//   - the holder of a busy bit never waits for another block's bit
#pragma once

#include <array>
#include <cstdint>

namespace kasane::dsm {

enum class View : std::uint8_t { none = 0, read = 1, write = 2 };   ///< what V allows

struct BlockState {
  bool busy = false;
  bool owned = false;            ///< M here holds the master copy
  View view = View::none;
  bool twin = false;             ///< T holds what the owner had when we began to write (the block is dirty)
  std::uint32_t pins = 0;

  friend bool operator==(const BlockState&, const BlockState&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return (busy ? 1u : 0u) | (owned ? 2u : 0u) | (static_cast<std::uint32_t>(view) << 2) | (twin ? 16u : 0u) | (pins << 8);
  }
  [[nodiscard]] static constexpr BlockState of(std::uint32_t word) noexcept {
    return {(word & 1u) != 0, (word & 2u) != 0, static_cast<View>((word >> 2) & 3u), (word & 16u) != 0, word >> 8};
  }
  [[nodiscard]] constexpr bool check() const noexcept {
    return !(owned && twin) && (busy || owned || twin == (view == View::write)) && (pins == 0 || view != View::none);
  }
};

enum class Event : std::uint8_t {
  load,          ///< a fault, or somebody who wants to read
  store,
  release,       ///< release_all reached this block
  acquire,       ///< acquire_all reached this block; also: memory last used elsewhere is taken into use (rule 7)
  pin_read,
  pin_write,
  unpin,
  discard,       ///< bytes of this block are freed here: our unreleased changes to them must never be sent (rule 7)
  yield,         ///< the page leaves: somebody else becomes its owner (rule 8), or the stack goes back to its birth rank
  arrive,        ///< the page comes: we become its owner, its bytes arrive
  arrive_blank,  ///< we become its owner and its bytes do not matter (fresh memory, a recycled stack)
  found_own,     ///< fetch found in the directory that we are the owner (busy, from load, store or pin)
  watch,         ///< a release wants to know of later stores of ours to this block
};

enum class Action : std::uint8_t {
  end,
  fetch,           ///< owner's bytes → M. Not visible yet, so a plain copy
  make_twin,       ///< M → T; V does not allow stores now
  allow_read,
  allow_write,
  protect_read,    ///< returns when no store can land any more
  protect_none,
  diff_put,        ///< bytes where M ≠ T → owner, remotely complete (V does not allow stores now)
  diff_put_live,   ///< as diff_put while stores may land: each byte is loaded once, for the message and for T
  refresh,         ///< owner's bytes, where they differ from T (or from M without a twin) → M and T: the merge of rule 4
  merge_arrival,   ///< the old owner's bytes where they differ from T (all of them without a twin) → M
  discard_bytes,   ///< T := M over the freed bytes
  mark_page,       ///< our next release looks at the page: from here on our threads store to it unseen
};

enum class Verdict : std::uint8_t {
  done,      ///< nothing to do
  proceed,   ///< claim, act, finish
  wait,      ///< somebody holds the bit: come back
  refuse,    ///< yield of a pinned block
};

struct Step {
  Verdict verdict = Verdict::done;
  BlockState claimed{};
  std::array<Action, 4> actions{};   ///< in order, up to Action::end
  BlockState after{};
};

[[nodiscard]] constexpr Step next(const BlockState& s, Event event) noexcept {
  const auto proceed = [&](BlockState after, std::array<Action, 4> actions) {
    BlockState claimed = s;
    claimed.busy = true;
    after.busy = false;
    return Step{Verdict::proceed, claimed, actions, after};
  };
  const auto with = [&](View view, bool twin, std::uint32_t pins) { return BlockState{false, s.owned, view, twin, pins}; };
  const BlockState owner{false, true, View::write, false, s.pins};
  using enum Action;

  if (event == Event::found_own) {   // the holder of the bit asks: no claim
    return Step{Verdict::proceed, s, {mark_page, allow_write}, owner};
  }
  if (s.busy) return Step{Verdict::wait, s, {}, s};

  const bool pin = event == Event::pin_read || event == Event::pin_write;
  const std::uint32_t pins = s.pins + (pin ? 1u : 0u);
  switch (event) {
    case Event::load:
    case Event::pin_read:
      if (s.view != View::none) return pin ? proceed(with(s.view, s.twin, pins), {}) : Step{};
      if (s.owned) return proceed(BlockState{false, true, View::write, false, pins}, {mark_page, allow_write});
      return proceed(with(View::read, false, pins), {fetch, allow_read});

    case Event::store:
    case Event::pin_write:
      if (s.view == View::write) return pin ? proceed(with(s.view, s.twin, pins), {}) : Step{};
      if (s.owned) return proceed(BlockState{false, true, View::write, false, pins}, {mark_page, allow_write});
      if (s.view == View::read) return proceed(with(View::write, true, pins), {make_twin, allow_write});
      return proceed(with(View::write, true, pins), {fetch, make_twin, allow_write});

    case Event::unpin:
      return proceed(with(s.view, s.twin, s.pins - 1), {});

    case Event::release:   // rule 3
      if (!s.twin) return Step{};
      if (s.pins != 0) return proceed(s, {diff_put_live});
      return proceed(with(View::read, false, 0), {protect_read, diff_put});

    case Event::acquire:   // rule 2; unreleased bytes go out first, so nothing is lost
      if (s.owned || s.view == View::none) return Step{};
      if (s.pins != 0) return s.twin ? proceed(s, {diff_put_live, refresh}) : proceed(s, {refresh});
      if (s.twin) return proceed(with(View::none, false, 0), {protect_none, diff_put});
      return proceed(with(View::none, false, 0), {protect_none});

    case Event::discard:   // rule 7
      return s.twin ? proceed(s, {discard_bytes}) : Step{};

    case Event::yield:     // rule 8: the bytes stay in M, so readers that still come find them
      if (s.pins != 0) return Step{Verdict::refuse, s, {}, s};
      if (!s.owned) return Step{};
      return proceed(BlockState{}, {protect_none});

    case Event::arrive:
      if (s.owned) return Step{};
      return proceed(owner, {merge_arrival, mark_page, allow_write});

    case Event::arrive_blank:
      if (s.owned && s.view == View::write) return Step{};
      return proceed(owner, {mark_page, allow_write});

    case Event::watch:
      if (!s.owned || s.view != View::write || s.pins != 0) return Step{};
      return proceed(BlockState{false, true, View::read, false, 0}, {protect_read});

    case Event::found_own: break;
  }
  return Step{};
}

// A release looks at every page that is marked: one that a rank has fetched since, that came into our hands, or that we put to. Who has a copy must hear of it
// if its bytes may have changed.

/// What its blocks say of a page here, one look at each word.
enum class Openness : std::uint8_t {
  foreign,   ///< none is ours (any more): whatever made it marked, we cannot know
  watched,   ///< of those that are ours each is protected: a store to it would have marked the page again
  open,      ///< our threads can store to it, or may just have
};

[[nodiscard]] constexpr Openness with_block(Openness before, const BlockState& s) noexcept {
  if (before == Openness::open || s.busy || (s.owned && s.view == View::write)) return Openness::open;
  return s.owned ? Openness::watched : before;
}

/// Are its readers to be told? changed: we have put to it since it was last looked at.
[[nodiscard]] constexpr bool must_tell(bool changed, Openness openness) noexcept { return changed || openness != Openness::watched; }

}  // namespace kasane::dsm
