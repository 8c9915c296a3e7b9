// SPDX-License-Identifier: Apache-2.0
// Blocks that are read from the spill file while the program runs: for dsm/spilled.cpp and the constructor of
// Coherence only.
// Thread safety: belongs to the thread that took it from the free ones, then to the reader thread.
#pragma once

#include "dsm/coherence.h"

namespace kasane::dsm {

inline constexpr BlockId kNoWindow{std::uint64_t{1} << 63};

/// Reads blocks ahead of their use. No thread holds their busy bits. The blocks are runs of one page or
/// several.
///
/// As soon as the bytes are in M, a load in V may succeed, and a store too if the blocks are wanted for
/// stores, before the busy bit is cleared. Nothing is lost by that: the page was marked before; and a page
/// that leaves, or that is paged in as a whole for another rank, has the bits of all its blocks claimed
/// first. By then the store is in the frame, and the block is not saved (tiers.md).
struct Coherence::BackgroundRead : mem::SpillRead {
  Coherence* coherence = nullptr;
  std::uint32_t index = 0;
  BlockId first{0};                          ///< of the window whose blocks stay invisible in V
  BlockEvent wanted_for = BlockEvent::load;  ///< what the other blocks are wanted for: load or store
  mem::SpillRanges<kBlocksPerRead> runs;
};

}  // namespace kasane::dsm
