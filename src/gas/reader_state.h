// SPDX-License-Identifier: Apache-2.0
// What a rank knows of itself as a reader of a page, pure (docs/design/dsm.md, "Readers and notices");
// tests/model walks it.
//
//   joined   its bits are in word 1: a rank that changes the page sends it a notice
//   asked    since it last took a notice of the page, it has asked the owner to examine the page (a mark).
//            So the owner still has that mark; or it has sent a notice of what could be stored to when it
//            looked, and its later stores to the rest fault
//
//   state           a fetch needs                  the page stood   a notice; other blocks   a notice; none
//                                                                   are kept                 is kept: leaves
//   –               its bits, the owner's mark     joined, asked    –                        –
//   joined          the owner's mark               joined, asked    joined                   –
//   joined, asked   nothing                        joined, asked    joined                   –
//
// Blocks that are kept need no new mark: the owner has sent no notice of them, so its stores to them fault. A
// block that is fetched again needs one.
#pragma once

#include <cstdint>

namespace kasane::gas {

struct ReaderState {
  bool joined = false;
  bool asked = false;
  /// how many notices of the page were taken, mod 2^30: a join that overlaps one is void
  std::uint32_t notices = 0;

  friend bool operator==(const ReaderState&, const ReaderState&) = default;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return (joined ? 1u : 0u) | (asked ? 2u : 0u) | notices << 2;
  }
  [[nodiscard]] static constexpr ReaderState of(std::uint32_t word) noexcept {
    return {(word & 1u) != 0, (word & 2u) != 0, word >> 2};
  }

  /// Nothing is to be done before a fetch.
  [[nodiscard]] constexpr bool complete() const noexcept { return joined && asked; }
  /// Its bit and its mark were there before it read, and the page stood.
  [[nodiscard]] constexpr ReaderState after_joining() const noexcept { return {true, true, notices}; }
  /// It has taken a notice. keeps: it stays a reader, of blocks that the notice does not name; else its bit
  /// is taken back.
  [[nodiscard]] constexpr ReaderState after_notice(bool keeps) const noexcept {
    return {joined && keeps, false, notices + 1};
  }
};

}  // namespace kasane::gas
