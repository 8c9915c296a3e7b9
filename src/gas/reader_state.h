// SPDX-License-Identifier: Apache-2.0
// What a rank knows of itself as a reader of a page, pure (docs/design/dsm.md, "Who has copies, and who is told"); tests/model walks it.
//
//   joined   its bit is in word 1: who changes the page tells it
//   asked    since it last notices of the page, it has had the owner look at it (a mark): the owner has that mark, or has told this rank of what could be stored to when it looked, and sees
//            its own stores to the rest
//
//   state            a fetch needs                        the page stood      it hears, and keeps other blocks   … keeps none: it leaves
//   –                its bit, then the owner's mark       joined, asked       –                                  –
//   joined           the owner's mark                     joined, asked       joined                             –
//   joined, asked    nothing                              joined, asked       joined                             –
//
// What it keeps needs no new mark: the owner has not told of it, so it sees its own stores there. What it fetches again does.
#pragma once

#include <cstdint>

namespace kasane::gas {

struct ReaderState {
  bool joined = false;
  bool asked = false;
  std::uint32_t notices = 0;   ///< how often it has notices of the page, mod 2^30: who has joined in between did so in vain

  friend bool operator==(const ReaderState&, const ReaderState&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept { return (joined ? 1u : 0u) | (asked ? 2u : 0u) | notices << 2; }
  [[nodiscard]] static constexpr ReaderState of(std::uint32_t word) noexcept { return {(word & 1u) != 0, (word & 2u) != 0, word >> 2}; }

  /// Nothing is to be done before a fetch.
  [[nodiscard]] constexpr bool complete() const noexcept { return joined && asked; }
  /// Its bit and its mark were there before it read, and the page stood.
  [[nodiscard]] constexpr ReaderState after_joining() const noexcept { return {true, true, notices}; }
  /// It has taken what it was told. keeps: it stays a reader, of what was not told; else its bit is taken back.
  [[nodiscard]] constexpr ReaderState after_notice(bool keeps) const noexcept { return {joined && keeps, false, notices + 1}; }
};

}  // namespace kasane::gas
