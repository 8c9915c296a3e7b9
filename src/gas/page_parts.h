// SPDX-License-Identifier: Apache-2.0
// Names blocks of a page in one word: a page has up to 64 parts of equal length, of one block or, in pages of
// more than 64 blocks, of several adjacent ones.
//
//   64 KiB, 16 blocks     bit 0 … 15: a block each; the others are unused
//   2 MiB, 512 blocks     bit 0 … 63: 8 blocks each
//
// Naming a block names its whole part, so more blocks may be meant than were named, never fewer.
#pragma once

#include <bit>
#include <cstdint>

#include "mem/space.h"

namespace kasane::gas {

using PartMask = std::uint64_t;
inline constexpr PartMask kAllParts = ~PartMask{0};

/// page: its blocks; b: one of them.
[[nodiscard]] constexpr PartMask part_of(mem::BlockRange page, BlockId b) noexcept {
  // as a power of two, which a page's blocks are
  const unsigned blocks_of_a_part =
      page.count <= 64 ? 0 : static_cast<unsigned>(std::countr_zero(page.count)) - 6;
  return PartMask{1} << ((raw(b) - raw(page.first)) >> blocks_of_a_part);
}
/// From the part of `first` to that of `last`, both in the page.
[[nodiscard]] constexpr PartMask parts_of(mem::BlockRange page, BlockId first, BlockId last) noexcept {
  return (part_of(page, last) << 1) - part_of(page, first);  // of the 64th, 2^64: all that is above
}

}  // namespace kasane::gas
