// SPDX-License-Identifier: Apache-2.0
// Views and hints: ranges that are made present at once (rule 10).
// Thread safety: every call from any thread, which holds nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "dsm/faults.h"

namespace kasane::dsm {

class Views {
 public:
  Views(Blocks& blocks, Tiering& tiering, Faults& faults) noexcept
      : blocks_(blocks), tiering_(tiering), faults_(faults) {}

  /// Makes the range present (and writable), and keeps it so until unpin(). Returns the first block that is
  /// not allocated, if there is one; then nothing is pinned.
  [[nodiscard]] std::optional<BlockId> pin(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);
  void unpin(ThreadContext&, std::uint64_t offset, std::size_t bytes);
  /// A hint. Makes the range present, like a view that ends at once. Blocks on SSD are only requested, and
  /// write_only blocks that lie in the range only in part are skipped.
  void prefetch(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);

 private:
  bool pin_block(ThreadContext&, BlockId, BlockEvent);
  [[nodiscard]] std::uint64_t shown_until(std::uint64_t first, std::uint64_t end, Use) const noexcept;
  [[nodiscard]] std::uint64_t pin_shown(std::uint64_t first, std::uint64_t end, Use) noexcept;

  Blocks& blocks_;
  Tiering& tiering_;
  Faults& faults_;
};

}  // namespace kasane::dsm
