// SPDX-License-Identifier: Apache-2.0
// Keeps what this rank sees in V coherent with the other ranks: serves faults, sends changes at a release,
// and drops cached blocks at an acquire (BACKER's reconcile and flush; Endo's thesis §6.2). Each of its parts
// drives dsm/protocol.h over the block table. Design: docs/design/dsm.md.
//
//   Views    Faults              ranges and single accesses that become present
//     │        │  │
//     │      Moves │             pages that arrive, leave, or are allocated anew
//     ▼        ▼   ▼
//    Tiering ─▶ Fences           room and SSD; releases and acquires
//                 │
//               Fetches          bytes of other ranks
//                 ▼
//    Held, Fence ─▶ Blocks       the blocks' words, V, and the sets of cached and changed blocks
#pragma once

#include "dsm/blocks.h"
#include "dsm/faults.h"
#include "dsm/fences.h"
#include "dsm/fetches.h"
#include "dsm/frames.h"
#include "dsm/moves.h"
#include "dsm/parts.h"
#include "dsm/tiering.h"
#include "dsm/views.h"

namespace kasane::dsm {

/// Thread safety: as its parts say.
class Coherence {
 public:
  /// Sets kReleaseHandler and kChangesHandler, and connects the tiers to this object and its mover.
  explicit Coherence(const Parts&);
  Coherence(const Coherence&) = delete;
  Coherence& operator=(const Coherence&) = delete;

  Blocks blocks;

 private:
  const Frames frames_;
  Fetches fetches_;

 public:
  Fences fences;
  Tiering tiering;
  Moves moves;
  /// Moves pages to this rank and away.
  gas::Mover mover;
  Faults faults;
  Views views;
};

}  // namespace kasane::dsm
