// SPDX-License-Identifier: Apache-2.0
// Reads blocks of this rank's pages back from its spill file: for dsm/spilled.cpp and dsm/gathering.cpp only.
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstring>

#include "dsm/coherence.h"

namespace kasane::dsm {

/// Runs of claimed blocks whose bytes are to be read.
class Coherence::ReadBack {
 public:
  /// As many runs as blocks of a window, or of what a view gathers at once.
  static constexpr std::size_t kMost = gas::Tiers::kMostAtOnce + kWindowBlocks;

  explicit ReadBack(Coherence& coherence) noexcept : c_(coherence) {}

  /// A block that was never stored has no frame, or its bytes are undefined. If it is to be `saved`, its
  /// frame is cleared, so that spill file and frame are alike.
  void add(mem::BlockRange run, bool saved) noexcept {
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const BlockId b = block_at(run.first, i);
      const std::uint64_t at = mem::offset_of(b);
      if (!c_.tiers_->stored(b)) {
        if (saved) std::memset(c_.space_.a(at), 0, mem::kBlockBytes);
      } else {
        mem::append(ranges_, {at, mem::kBlockBytes});
      }
    }
  }
  /// right: the access that the blocks may get as soon as their bytes arrive. It is write if none of them is
  /// to be saved: then a store may succeed before the busy bit is cleared (background_read.h).
  void read(comm::Blocking& io, mem::Access right) {
    if (!ranges_.empty()) c_.tiers_->read(io, ranges_.all(), {.engine = &c_.engine_, .access = right});
  }

 private:
  Coherence& c_;
  mem::SpillRanges<kMost> ranges_;
};

}  // namespace kasane::dsm
