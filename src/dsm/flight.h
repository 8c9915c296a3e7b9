// SPDX-License-Identifier: Apache-2.0
// Blocks that are on their way from the spill file beside the program: for dsm/spilled.cpp and the constructor of Coherence only.
// Thread safety: belongs to who took it from the free ones, then to the reader.
#pragma once

#include "dsm/coherence.h"

namespace kasane::dsm {

/// Blocks that come ahead, and whose bits nobody's thread holds. Runs of one page or several.
struct Coherence::Flight : mem::Flight {
  Coherence* coherence = nullptr;
  std::uint32_t index = 0;
  BlockId first{0};   ///< of the window that stays without a view
  mem::SpillRanges<kBlocksOfAFlight> runs;
};

}  // namespace kasane::dsm
