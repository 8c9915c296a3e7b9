// SPDX-License-Identifier: Apache-2.0
// Have a block's bytes changed since this rank last had it? Told by 64 bits of them: an error costs a page that moves for no good reason, once in 2^64 times.
// Thread safety: others may be storing to the block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mem/block_table.h"

namespace kasane::dsm {

[[nodiscard]] inline std::uint64_t fingerprint(const std::byte* block) noexcept {
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};   // side by side, so that the multiplications overlap
  for (std::size_t i = 0; i < mem::kBlockBytes; i += sizeof lanes) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), block + i, sizeof words);
    for (std::size_t k = 0; k < lanes.size(); ++k) lanes[k] = (lanes[k] ^ words[k]) * 0x9E3779B97F4A7C15 + (lanes[k] >> 32);
  }
  std::uint64_t all = 0;
  for (const std::uint64_t lane : lanes) all = (all ^ lane) * 0x9E3779B97F4A7C15;
  return all;
}

}  // namespace kasane::dsm
