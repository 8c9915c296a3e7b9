// SPDX-License-Identifier: Apache-2.0
// Has another rank or thread changed a block since this rank last had it? The question is asked before the
// bytes are fetched. If the owner's memory is mapped here, the bytes themselves are compared, and the
// transfer then finds them in the processor's cache. Otherwise 64-bit fingerprints of the old and the new
// bytes are compared (a collision costs an unneeded page move, once in 2^64 times).
// Thread safety: other threads may be storing to the block; an object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mem/block_table.h"

namespace kasane::dsm {

class LastSeen {
 public:
  /// mine: the block as this rank last saw and wrote it; owners: as its owner has it, null if that is not
  /// mapped here.
  LastSeen(const std::byte* mine, const std::byte* owners) noexcept
      : mine_(mine),
        mapped_(owners != nullptr),
        before_(mapped_ ? std::memcmp(mine, owners, mem::kBlockBytes) != 0 : fingerprint(mine)) {}

  /// Call it when the owner's bytes are at `mine`.
  [[nodiscard]] bool changed() const noexcept {
    return mapped_ ? before_ != 0 : fingerprint(mine_) != before_;
  }

 private:
  [[nodiscard]] static std::uint64_t fingerprint(const std::byte* block) noexcept {
    std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};  // four lanes, so that the multiplications overlap
    for (std::size_t i = 0; i < mem::kBlockBytes; i += sizeof lanes) {
      std::array<std::uint64_t, 4> words;
      std::memcpy(words.data(), block + i, sizeof words);
      for (std::size_t k = 0; k < lanes.size(); ++k)
        lanes[k] = (lanes[k] ^ words[k]) * 0x9E3779B97F4A7C15 + (lanes[k] >> 32);
    }
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes) all = (all ^ lane) * 0x9E3779B97F4A7C15;
    return all;
  }

  const std::byte* mine_;
  bool mapped_;
  std::uint64_t before_;  ///< mapped: did they differ? Else the fingerprint
};

}  // namespace kasane::dsm
