// SPDX-License-Identifier: Apache-2.0
// Is a copy of another rank's page used again before the page changes? If not, its rank does better to drop it and to leave the page's readers, since who changes
// the page then has nobody to tell (self-invalidation, Endo's thesis §2.6.1–2). Pure functions of what a rank has seen of one page; dsm/self_invalidation.cpp acts
// on what they say. They only guess: whatever they say costs time at most, since a page that is given up takes the way of one that another rank has told of.
//
// A load of what V shows is seen by nobody, so there are two ways to guess (docs/design/dsm.md has the walk of a page through them):
//
//   decay (after Esteve and others)       an age without a fault ─▶ the copy dozes: its next use is a fault, though nothing is fetched ─▶ another age ─▶ given up
//                                         woken: the next time it dozes after twice as many ages
//   last touch (after Lai and Falsafi)    a life from fetch to notice has a trace: how many faults it took, and how many acquires lay between the first and the last.
//                                         The same trace life after life: given up at the first fence after its last fault
#pragma once

#include <algorithm>
#include <cstdint>

namespace kasane::dsm {

enum class Prediction : std::uint8_t { off, decay, last_touch };

/// What a rank remembers of one page at another rank; 32 bits.
struct History {
  bool copy = false;             ///< there is one since the last drop
  bool given_up = false;         ///< with a copy: it is to go. Without: the last one did, and it is open whether that was right
  // decay
  std::uint8_t quiet = 0;        ///< ages since its last use that was seen
  std::uint8_t patience = 0;     ///< it dozes after 2^patience ages
  // last touch
  std::uint8_t began = 0;        ///< acquires of this rank at the first fault of this life, mod 32
  std::uint8_t faults = 0;       ///< of this life, kMany at most
  std::uint8_t acquires = 0;     ///< between its first fault and its last
  std::uint8_t last_faults = 0, last_acquires = 0;   ///< of the last life that ended with a notice
  std::uint8_t sure = 0;         ///< so many lives before it had the same trace
  std::uint8_t wrong = 0;        ///< it was given up too early so often

  friend bool operator==(const History&, const History&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return static_cast<std::uint32_t>(copy) | static_cast<std::uint32_t>(given_up) << 1 | static_cast<std::uint32_t>(quiet) << 2 | static_cast<std::uint32_t>(patience) << 8 |
           static_cast<std::uint32_t>(began) << 11 | static_cast<std::uint32_t>(faults) << 16 | static_cast<std::uint32_t>(acquires) << 19 |
           static_cast<std::uint32_t>(last_faults) << 22 | static_cast<std::uint32_t>(last_acquires) << 25 | static_cast<std::uint32_t>(sure) << 28 |
           static_cast<std::uint32_t>(wrong) << 30;
  }
  [[nodiscard]] static constexpr History of(std::uint32_t w) noexcept {
    const auto field = [w](unsigned at, std::uint32_t mask) { return static_cast<std::uint8_t>(w >> at & mask); };
    return {(w & 1u) != 0, (w & 2u) != 0, field(2, 63), field(8, 7), field(11, 31), field(16, 7), field(19, 7), field(22, 7), field(25, 7), field(28, 3), field(30, 3)};
  }
};

enum class Seen : std::uint8_t {
  used,       ///< a fault or a view: it was fetched, stored to, or woken
  fence,      ///< decay: an age has passed. Last touch: a release or an acquire, after it was used
  dropped,    ///< it is gone: another rank has changed it, or it was given up
  changed,    ///< fetched again after it was given up: others had changed it meanwhile
  unchanged,  ///< … nobody had: it was given up too early
};

enum class Advice : std::uint8_t { keep, doze, give_up };

struct Foresight {
  History after;
  Advice advice = Advice::keep;
};

inline constexpr std::uint8_t kMostPatience = 5;   ///< so a copy that is used, and never changed, takes a fault in 33 ages
inline constexpr std::uint8_t kMany = 7;           ///< as many faults or acquires, or more: no trace that could come again
inline constexpr std::uint8_t kSure = 2;           ///< lives with the same trace before one is trusted; one more after it was wrong once
inline constexpr std::uint8_t kMostWrong = 2;      ///< then never again: a fetch costs as much as some fifty notices

/// What all guesses have in common: when a life ends, and that it is decided once.
[[nodiscard]] constexpr History lived(History h, Seen seen) noexcept {
  if (seen == Seen::used && !h.copy) {
    h.copy = true;
    h.given_up = false;   // what it fetches was not among what was given up: open for good
  }
  if (seen == Seen::dropped) h.copy = false;
  if (seen == Seen::changed || seen == Seen::unchanged) h.given_up = false;
  return h;
}

[[nodiscard]] constexpr Foresight decay(const History& h, Seen seen) noexcept {
  History after = lived(h, seen);
  const auto dozes_at = static_cast<std::uint8_t>((1u << h.patience) + 1);   // its first age may have been in use for the most part
  const bool dozes = h.quiet >= dozes_at;
  switch (seen) {
    case Seen::used:
      if (dozes) after.patience = std::min<std::uint8_t>(h.patience + 1, kMostPatience);
      after.quiet = 0;
      return {after};
    case Seen::fence:
      if (!h.copy) after.given_up = false;
      after.copy = true;
      after.quiet = static_cast<std::uint8_t>(h.quiet + 1);
      if (after.quiet < dozes_at) return {after};
      if (!dozes) return {after, Advice::doze};
      after.quiet = dozes_at;   // however often it is looked at before it goes
      after.given_up = true;
      return {after, Advice::give_up};
    case Seen::dropped:
      if (dozes && !h.given_up && h.patience != 0) --after.patience;   // told before we were sure
      after.quiet = 0;
      return {after};
    case Seen::unchanged:
      after.patience = std::min<std::uint8_t>(h.patience + 1, kMostPatience);
      return {after};
    case Seen::changed: break;
  }
  return {after};
}

/// acquires: of this rank so far.
[[nodiscard]] constexpr Foresight last_touch(const History& h, Seen seen, std::uint64_t acquires) noexcept {
  History after = lived(h, seen);
  const bool same = h.faults == h.last_faults && h.acquires == h.last_acquires;
  switch (seen) {
    case Seen::used:
      if (!h.copy) {
        after.began = acquires & 31;
        after.faults = 1;
        after.acquires = 0;
      } else {
        after.faults = std::min<std::uint8_t>(h.faults + 1, kMany);
        after.acquires = static_cast<std::uint8_t>(std::min<std::uint64_t>((acquires - h.began) & 31, kMany));
      }
      return {after};
    case Seen::fence:
      if (!h.copy || !same || h.sure < kSure + h.wrong) return {after};
      after.given_up = true;
      return {after, Advice::give_up};
    case Seen::dropped:
      if (!h.copy || h.given_up) return {after};
      after.sure = !same || h.faults == kMany || h.acquires == kMany ? 0 : std::min<std::uint8_t>(h.sure + 1, 3);
      after.last_faults = h.faults;
      after.last_acquires = h.acquires;
      return {after};
    case Seen::unchanged:
      after.sure = 0;
      after.wrong = std::min<std::uint8_t>(h.wrong + 1, kMostWrong);
      return {after};
    case Seen::changed: break;
  }
  return {after};
}

}  // namespace kasane::dsm
