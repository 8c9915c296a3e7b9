// SPDX-License-Identifier: Apache-2.0
// Has another rank or thread changed a block since this rank last had it? The question is asked before the
// bytes are fetched. If the owner's memory is mapped here, the bytes themselves are compared, and the
// transfer then finds them in the processor's cache. Otherwise 64-bit hashes of the old and the new bytes
// are compared (a collision costs an unneeded page move, once in 2^64 times).
// Thread safety: other threads may be storing to the block; an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/checksum.h"
#include "mem/block_table.h"

namespace kasane::dsm {

class LastSeen {
 public:
  /// mine: the block as this rank last saw and wrote it; owners: as its owner has it, null if that is not
  /// mapped here.
  LastSeen(const std::byte* mine, const std::byte* owners) noexcept
      : mine_(mine),
        mapped_(owners != nullptr),
        before_(mapped_ ? std::memcmp(mine, owners, mem::kBlockBytes) != 0 : hash(mine)) {}

  /// Call it when the owner's bytes are at `mine`.
  [[nodiscard]] bool changed() const noexcept { return mapped_ ? before_ != 0 : hash(mine_) != before_; }

 private:
  [[nodiscard]] static std::uint64_t hash(const std::byte* block) noexcept {
    return checksum(block, mem::kBlockBytes);
  }

  const std::byte* mine_;
  bool mapped_;
  std::uint64_t before_;  ///< mapped: did they differ? Else the hash
};

}  // namespace kasane::dsm
