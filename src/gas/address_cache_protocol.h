// SPDX-License-Identifier: Apache-2.0
// What a rank knows of the location of one page, as a pure function (table and walk: docs/design/gas.md;
// after the address caches of W. Endo's thesis, ch. 5). address_cache.cpp drives it with compare-swaps on one
// 64-bit word a page; tests/model walks it. No I/O, no state.
//
//   word     state 2 | owner+1 20 | uses 12 | stamp 30
//
// A *use* is a put under way through the entry. The page's mover waits for it, so the thread of a use waits
// for nothing but its own completion. A read is no use, since it may belong to a user-level thread, which
// lets others run meanwhile. A read looks at its entry again when it has its bytes (stood()), and is repeated
// if the entry was recalled. So a frame may be punched when all holders have answered, whatever reads are
// under way (rule 9).
//
// Filling an entry blocks no other thread: any number of threads may set the rank's bit and read word 0 at
// once. The stamp counts recalls, so that what one of them read before a recall cannot become valid after it
// (a wrap needs 2^30 moves during one read of word 0). The stamp of word 2 is another one: it says whether
// the bit was set for the location that word 0 names.
//
// Invariants (checked by check()): none ⇔ no owner is named;  leaving or watched ⇒ uses;  uses ⇒ not none
// and, across ranks (tests/model): an entry whose page is not busy names the owner, and its rank's bit is in
// word 2 of the directory.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

enum class AddressState : std::uint8_t {
  none = 0,
  valid = 1,
  leaving = 2,  ///< recalled by message while there were uses; the end of the last use sends the answer
  /// recalled directly while there were uses; no answer is needed, since the mover sees this word
  watched = 3,
};

struct AddressEntry {
  AddressState state = AddressState::none;
  Rank owner = kNoRank;
  std::uint32_t uses = 0;
  std::uint32_t stamp = 0;

  static constexpr std::uint32_t kMostUses = 0xFFF, kStamps = 1u << 30;

  friend bool operator==(const AddressEntry&, const AddressEntry&) = default;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return (static_cast<std::uint64_t>(state) << 62) |
           (owner != kNoRank ? (std::uint64_t{raw(owner)} + 1) << 42 : 0) | (std::uint64_t{uses} << 30) |
           stamp;
  }
  [[nodiscard]] static constexpr AddressEntry of(std::uint64_t word) noexcept {
    const auto id = static_cast<std::uint32_t>((word >> 42) & 0xFFFFF);
    return {static_cast<AddressState>(word >> 62), id != 0 ? Rank{id - 1} : kNoRank,
            static_cast<std::uint32_t>((word >> 30) & kMostUses),
            static_cast<std::uint32_t>(word & (kStamps - 1))};
  }
  [[nodiscard]] constexpr bool check() const noexcept {
    const bool named = state != AddressState::none;
    return named == (owner != kNoRank) && (uses == 0 || named) &&
           (uses != 0 || state == AddressState::none || state == AddressState::valid);
  }
};

enum class AddressEvent : std::uint8_t {
  read,    ///< a thread wants to read the page's bytes
  put,     ///< a thread wants to change them
  end,     ///< a use ends: its bytes have arrived
  recall,  ///< a move takes the location back, in a handler. One at a time for each page
  /// a move takes the location back by itself, in words that are mapped to the mover: those of its own rank,
  /// and of ranks of its host
  watch,
};

enum class AddressAction : std::uint8_t {
  none,
  go,  ///< to `after`'s owner; a put is counted there
  /// set the rank's bit in word 2 and read word 0, at once; if registered(), compare-swap the entry from what
  /// was read to filled()
  fill,
  wait,    ///< for completions of the rank's puts, then look again
  answer,  ///< nothing is under way through the entry
  keep,    ///< the reply token; it must be stored before the step is taken
  answer_kept,
};

struct AddressStep {
  AddressAction action = AddressAction::none;
  AddressEntry after{};  ///< compare-swap from what was read to this, unless they are equal
};

[[nodiscard]] constexpr AddressStep next(const AddressEntry& e, AddressEvent event) noexcept {
  using enum AddressAction;
  AddressEntry after = e;
  switch (event) {
    // leaving and watched too: until the uses have ended, no other rank owns the page
    case AddressEvent::read:
    case AddressEvent::put:
      if (e.state == AddressState::none) return {fill, e};
      if (event == AddressEvent::read) return {go, e};
      if (e.state != AddressState::valid || e.uses == AddressEntry::kMostUses) return {wait, e};
      ++after.uses;
      return {go, after};
    case AddressEvent::end:
      --after.uses;
      if (e.state == AddressState::valid || after.uses != 0) return {none, after};
      return {e.state == AddressState::leaving ? answer_kept : none,
              {AddressState::none, kNoRank, 0, e.stamp}};
    case AddressEvent::recall:
    case AddressEvent::watch: {
      const bool by_message = event == AddressEvent::recall;
      after.stamp = (e.stamp + 1) % AddressEntry::kStamps;
      if (e.uses != 0) {
        after.state = by_message ? AddressState::leaving : AddressState::watched;
        return {by_message ? keep : wait, after};
      }
      return {by_message ? answer : none, {AddressState::none, kNoRank, 0, after.stamp}};
    }
  }
  return {none, e};
}

/// The entry after word 0 named `owner`, if the rank is registered(). `before` (none) was read before word 2
/// and word 0.
[[nodiscard]] constexpr AddressEntry filled(const AddressEntry& before, Rank owner,
                                            AddressEvent wanted) noexcept {
  return {AddressState::valid, owner, wanted == AddressEvent::put ? 1u : 0u, before.stamp};
}

/// Were the bytes that a read brought the page's, if it went through `before` and the entry is `after` now?
/// The frame is not punched before this rank was recalled and has answered.
[[nodiscard]] constexpr bool stood(const AddressEntry& before, const AddressEntry& after) noexcept {
  return before.state == after.state && before.stamp == after.stamp;
}

}  // namespace kasane::gas
