// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol by which ranks append to a kasane::vector, pure: tests/model walks it
/// (docs/design/containers.md has the tables).
///
/// word exclusive 1 | rounds 7 | index 56                               changed by fetch-add of the index
///
/// A fetch-add is a ticket for n elements. The word that it returns says by itself what the ticket is worth,
/// since it has the number of rounds of segments, so the capacity. Of all tickets that do not fit, one begins
/// at or below the capacity: the first. Its thread stores the word with more rounds, or, where memory is
/// exhausted, as it was. Both take back the index that the others have added, which try again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::detail::tail {

using Word = std::uint64_t;

inline constexpr Word kExclusive = Word{1} << 63;
inline constexpr Word kIndex = (Word{1} << 56) - 1;

[[nodiscard]] constexpr Word index(Word w) noexcept { return w & kIndex; }
[[nodiscard]] constexpr unsigned rounds(Word w) noexcept { return static_cast<unsigned>(w >> 56) & 0x7F; }
[[nodiscard]] constexpr Word word(unsigned rounds, Word index) noexcept { return Word{rounds} << 56 | index; }
/// Elements of so many rounds. Round r has first << r, in equal parts at the ranks of the vector.
[[nodiscard]] constexpr Word capacity(unsigned rounds, Word first) noexcept {
  return first * ((Word{1} << rounds) - 1);
}

enum class Ticket : std::uint8_t {
  mine,   ///< [index, index + n)
  grow,   ///< the first that does not fit
  again,  ///< another one grows
  busy,   ///< an exclusive call is under way
};
[[nodiscard]] constexpr Ticket judge(Word w, Word n, Word first) noexcept {
  if ((w & kExclusive) != 0) return Ticket::busy;
  const Word room = capacity(rounds(w), first);
  if (index(w) + n <= room) return Ticket::mine;
  return index(w) <= room ? Ticket::grow : Ticket::again;
}

/// The steps of a push. Each is complete at the owner before the next.
enum class Push : std::uint8_t { take, grow, wait, values, ready, done, refused };
/// After `take`.
[[nodiscard]] constexpr Push next(Ticket t) noexcept {
  switch (t) {
    case Ticket::mine: return Push::values;
    case Ticket::grow: return Push::grow;
    case Ticket::again: return Push::wait;
    case Ticket::busy: break;
  }
  return Push::refused;
}
/// ok: of grow: there was memory; of wait: the word's index is within its capacity again, or it is exclusive.
[[nodiscard]] constexpr Push next(Push step, bool ok) noexcept {
  switch (step) {
    case Push::grow: return ok ? Push::values : Push::refused;
    case Push::wait: return ok ? Push::take : Push::wait;
    case Push::values: return Push::ready;
    case Push::ready:
    case Push::done: return Push::done;
    case Push::take:
    case Push::refused: break;
  }
  return Push::refused;
}
/// What the thread that grows stores: with so many rounds it has its elements, with the old ones it has none.
[[nodiscard]] constexpr Word grown(Word ticket, Word n, unsigned rounds_now) noexcept {
  return word(rounds_now, index(ticket) + (rounds_now != rounds(ticket) ? n : 0));
}
[[nodiscard]] constexpr bool settled(Word w, Word first) noexcept {
  return (w & kExclusive) != 0 || index(w) <= capacity(rounds(w), first);
}

/// The steps of an exclusive call.
enum class Exclusive : std::uint8_t {
  look,   ///< at the word, then at the readable prefix
  take,   ///< compare-swap the word to the same with kExclusive
  alone,  ///< changes; then the next word, without kExclusive
  done,
  refused,
};
/// Of a word, and the prefix that was readable then or later: all that was appended is ready.
[[nodiscard]] constexpr bool complete(Word w, Word readable, Word first) noexcept {
  return (w & kExclusive) == 0 && settled(w, first) && readable == index(w);
}
/// ok: of look: the vector is complete; of take: the word was as it had been seen, so nothing was appended.
[[nodiscard]] constexpr Exclusive next(Exclusive step, bool ok) noexcept {
  switch (step) {
    case Exclusive::look: return ok ? Exclusive::take : Exclusive::refused;
    case Exclusive::take: return ok ? Exclusive::alone : Exclusive::refused;
    case Exclusive::alone:
    case Exclusive::done: return Exclusive::done;
    case Exclusive::refused: break;
  }
  return Exclusive::refused;
}

}  // namespace kasane::detail::tail
