// SPDX-License-Identifier: Apache-2.0
// Blocks of this rank's pages that are read back from its spill file: for dsm/spilled.cpp and dsm/views.cpp only.
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstring>

#include "dsm/coherence.h"

namespace kasane::dsm {

/// Runs of claimed blocks whose bytes are to be read.
class Coherence::ReadBack {
 public:
  /// Blocks in as many runs: a window, or what a view gathers at once.
  static constexpr std::size_t kMost = gas::Tiers::kMostAtOnce + kWindowBlocks;

  explicit ReadBack(Coherence& coherence) noexcept : c_(coherence) {}

  /// Those that were never stored have no frame, or bytes that do not matter: it is cleared where they are `saved` from now on, so that S and the frame are alike.
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
  /// right: what the blocks may get as soon as they come. To write, if none of them is saved from now on: a store may pass before the bit is given back (background_read.h).
  void read(comm::Blocking& io, mem::Access right) {
    if (!ranges_.empty()) c_.tiers_->read(io, ranges_.all(), {.engine = &c_.engine_, .access = right});
  }

 private:
  Coherence& c_;
  mem::SpillRanges<kMost> ranges_;
};

}  // namespace kasane::dsm
