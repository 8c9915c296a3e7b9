// SPDX-License-Identifier: Apache-2.0
// One transport made of two: ranks of this host by shared memory, the others by a network. Both use the same doorbells, so that one sleep serves both.
//
//   read(r, …) ── r near? ── yes ─▶ near (loads and stores; done at once)      progress() ─▶ near, far      sleep() ─▶ far.arm(), then the bell
//                         └── no ──▶ far                                       set_handler(), attach(), set_peer_lost() ─▶ both
//
// **Atomics** of near and far ranks on one word must be atomic towards each other. If the network's are not coherent with the CPU's (facts), all of
// them go by network, also those on this rank's own memory (rule 15); fence() towards a near rank then asks the network too.
//
// Thread safety: as every transport. Handlers may run in two threads of a rank at once, one in each part's progress().
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/out_of_band.h"
#include "comm/transport.h"

namespace kasane::comm::composed {

struct Parts {
  std::unique_ptr<Transport> near;   ///< completes inline; reaches the ranks of this host, this one among them
  std::unique_ptr<Transport> far;    ///< reaches every rank; was created with near's doorbells
  std::vector<bool> is_near;         ///< by rank
};

/// all: over all ranks, outlives the transport; attach() tells by it whether every host succeeded.
Result<std::unique_ptr<Transport>> create(Parts parts, OutOfBand& all);

}  // namespace kasane::comm::composed
