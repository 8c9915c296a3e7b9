// SPDX-License-Identifier: Apache-2.0
// Blocks that a fault takes in hand together: those of a mask over a window. A window is 16 blocks in a row, aligned, and is named by its
// first: a part of a page, a page, or several small pages.
#pragma once

#include <bit>
#include <cstdint>

#include "mem/block_table.h"

namespace kasane::dsm {

/// Bit i stands for the window's i-th block.
using Mask = std::uint32_t;

inline constexpr std::uint64_t kWindowBlocks = 16;

[[nodiscard]] inline BlockId window_of(BlockId b) noexcept { return BlockId{raw(b) / kWindowBlocks * kWindowBlocks}; }
[[nodiscard]] inline unsigned index_in_window(BlockId b) noexcept { return static_cast<unsigned>(raw(b) % kWindowBlocks); }
[[nodiscard]] inline BlockId block_at(BlockId window, std::uint64_t i) noexcept { return BlockId{raw(window) + i}; }
[[nodiscard]] inline std::uint64_t end_of(mem::BlockRange blocks) noexcept { return raw(blocks.first) + blocks.count; }

template <class F>
void for_each_bit(Mask mask, const F& f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(std::countr_zero(mask)));
}

/// Calls f(first, count) for every run of ones.
template <class F>
void for_each_run(Mask mask, const F& f) {
  while (mask != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(mask));
    const auto count = static_cast<unsigned>(std::countr_one(mask >> first));
    f(first, count);
    mask &= ~(((Mask{1} << count) - 1) << first);
  }
}

}  // namespace kasane::dsm
