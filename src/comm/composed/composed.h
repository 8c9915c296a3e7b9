// SPDX-License-Identifier: Apache-2.0
// One transport made of two: shared memory for ranks of this host, a network for the others. Both use the
// same doorbells, so that one sleep serves both.
//
//   read(r, …) ── r near? ── yes ─▶ near (loads and stores; done at once)
//                         └── no ──▶ far
//   progress() ─▶ near, far          sleep() ─▶ far.arm(), then the doorbell
//   set_handler(), attach(), set_peer_lost() ─▶ both
//
// **Atomics** of near and far ranks on one word must be atomic towards each other. If the network's are not
// coherent with the CPU's (facts), all atomics go by network, also those on this rank's own memory (rule 15);
// fence() towards a near rank then fences the network, too.
//
// Thread safety: as every transport. Handlers may run in two threads of a rank at once, one in each part's
// progress().
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/out_of_band.h"
#include "comm/transport.h"

namespace kasane::comm::composed {

struct Parts {
  std::unique_ptr<Transport> near;  ///< completes inline; reaches the ranks of this host, including this one
  std::unique_ptr<Transport> far;   ///< reaches every rank; was created with near's doorbells
  std::vector<bool> is_near;        ///< by rank
};

/// all: over all ranks, outlives the transport; attach() exchanges by it whether every host succeeded.
Result<std::unique_ptr<Transport>> create(Parts parts, OutOfBand& all);

}  // namespace kasane::comm::composed
