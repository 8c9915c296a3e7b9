// SPDX-License-Identifier: Apache-2.0
// Blocks that are on their way from the spill file beside the program: for dsm/spilled.cpp and the constructor of Coherence only.
// Thread safety: belongs to who took it from the free ones, then to the reader.
#pragma once

#include "dsm/coherence.h"

namespace kasane::dsm {

inline constexpr BlockId kNoWindow{std::uint64_t{1} << 63};

/// Blocks that come ahead, and whose bits nobody's thread holds. Runs of one page or several.
///
/// A load, and of a background that lands for stores a store, may pass in V as soon as the bytes are there, before the bit is given back. Nothing is lost by that: the page was marked before, and the bits of
/// a page that leaves, or that comes in as a whole for another rank, are claimed first: by then the store is in the frame, and the block not saved (tiers.md).
struct Coherence::BackgroundRead : mem::SpillRead {
  Coherence* coherence = nullptr;
  std::uint32_t index = 0;
  BlockId first{0};   ///< of the window that stays without a view
  Event wanted_for = Event::load;   ///< what the others are wanted for: load or store
  mem::SpillRanges<kBlocksPerRead> runs;
};

}  // namespace kasane::dsm
