// SPDX-License-Identifier: Apache-2.0
// Has somebody else changed a block since this rank last had it? Asked before its bytes are fetched: of the bytes themselves where the owner's memory is mapped here, which the
// transfer then finds in the processor's cache; else of 64 bits of what was here and of what has come (an error costs a page that moves for no good reason, once in 2^64 times).
// Thread safety: others may be storing to the block; an object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mem/block_table.h"

namespace kasane::dsm {

class LastSeen {
 public:
  /// mine: the block as this rank last saw and wrote it; owners: as its owner has it, null if that is not mapped here.
  LastSeen(const std::byte* mine, const std::byte* owners) noexcept
      : mine_(mine), mapped_(owners != nullptr), before_(mapped_ ? std::memcmp(mine, owners, mem::kBlockBytes) != 0 : fingerprint(mine)) {}

  /// When the owner's bytes are at `mine`.
  [[nodiscard]] bool changed() const noexcept { return mapped_ ? before_ != 0 : fingerprint(mine_) != before_; }

 private:
  [[nodiscard]] static std::uint64_t fingerprint(const std::byte* block) noexcept {
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

  const std::byte* mine_;
  bool mapped_;
  std::uint64_t before_;   ///< mapped: did they differ? Else the fingerprint
};

}  // namespace kasane::dsm
