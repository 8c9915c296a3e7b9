// SPDX-License-Identifier: Apache-2.0
// Sets of blocks that are claimed together. A window is 16 aligned blocks in a row, named by its first block:
// a part of a page, a page, or several small pages. A stripe has blocks at equal distances, of one page or of
// several.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mem/block_table.h"

namespace kasane::dsm {

inline constexpr std::uint64_t kWindowBlocks = 16;

[[nodiscard]] inline BlockId window_of(BlockId b) noexcept {
  return BlockId{raw(b) / kWindowBlocks * kWindowBlocks};
}
[[nodiscard]] inline unsigned index_in_window(BlockId b) noexcept {
  return static_cast<unsigned>(raw(b) % kWindowBlocks);
}
[[nodiscard]] inline BlockId block_at(BlockId window, std::uint64_t i) noexcept {
  return BlockId{raw(window) + i};
}
[[nodiscard]] inline std::uint64_t end_of(mem::BlockRange blocks) noexcept {
  return raw(blocks.first) + blocks.count;
}

/// Which blocks have frames, up to a window below a block b and from b on; all, unless looked for.
struct FramesAround {
  std::array<unsigned char, 2 * kWindowBlocks> frames;

  FramesAround() noexcept { frames.fill(1); }
  [[nodiscard]] bool has(std::int64_t from_b) const noexcept {
    return (frames[static_cast<std::size_t>(from_b + std::int64_t{kWindowBlocks})] & 1) != 0;
  }
  /// How many frames to make together, from b on, whose index in its window is known: as many as lie in a row
  /// just below b, which is a sweep upwards, or as the window has. So about twice as many are made as are
  /// used, and a page that is used at random costs few faults.
  [[nodiscard]] std::uint32_t used_with(unsigned index) const noexcept {
    std::int64_t below = 0, used = 0;
    while (below < std::int64_t{kWindowBlocks} && has(-below - 1)) ++below;
    for (std::int64_t i = 0; i < std::int64_t{kWindowBlocks}; ++i) used += has(i - index);
    return static_cast<std::uint32_t>(std::max(below, used));
  }
};

/// first, first + stride, …, upwards.
struct Stripe {
  constexpr Stripe(BlockId b, std::uint64_t blocks_on, std::uint32_t n) noexcept
      : first(b), stride(blocks_on), count(n) {}
  BlockId first;
  std::uint64_t stride;
  std::uint32_t count;

  [[nodiscard]] BlockId operator[](std::uint64_t i) const noexcept {
    return BlockId{raw(first) + i * stride};
  }
  [[nodiscard]] bool contains(BlockId b) const noexcept {
    return b >= first && (raw(b) - raw(first)) % stride == 0 && (raw(b) - raw(first)) / stride < count;
  }
};

}  // namespace kasane::dsm
