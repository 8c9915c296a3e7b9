// SPDX-License-Identifier: Apache-2.0
#include "dsm/coherence.h"

namespace kasane::dsm {

// Fences and Moves keep a reference to the mover, and the mover one to Moves; none of them uses it before all
// are constructed.
Coherence::Coherence(const Parts& parts)
    : blocks(parts),
      frames_(parts.tiers != nullptr ? &parts.tiers->residency() : nullptr),
      fetches_(blocks.parts(), frames_),
      fences(blocks, frames_, fetches_, mover),
      tiering(blocks, frames_, fences),
      moves(blocks, frames_, fences, tiering, mover),
      mover(parts.transport, parts.addresses, moves),
      faults(blocks, frames_, fetches_, fences, tiering, mover),
      views(blocks, tiering, faults) {
  if (parts.tiers != nullptr) parts.tiers->connect(moves, parts.addresses);
}

}  // namespace kasane::dsm
