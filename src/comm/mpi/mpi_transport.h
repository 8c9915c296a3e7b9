// SPDX-License-Identifier: Apache-2.0
// The transport over an MPI library: the way to machines whose network nothing else here speaks, and a rival to measure the others against. Reads and
// writes go through windows where those are truly one-sided, else as messages that the owner's progress() executes; atomics and messages always do.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/mpi/library.h"
#include "comm/transport.h"

namespace kasane::comm::mpi {

struct Options {
  /// How reads and writes travel. automatic: by windows if an experiment at the start shows that they do not pin memory, though by messages to
  /// targets that are outside the MPI just then if it shows that they need them inside; by messages if there are none. windows: whatever the
  /// experiment shows (attach() then pins, if the MPI does). One choice on all ranks.
  enum class Rma { automatic, windows, messages };
  Rma rma = Rma::automatic;
};

/// Joins the ranks of library. bells: this rank's, which the transport rings; they outlive it. Collective, and so is the destruction.
Result<std::unique_ptr<Transport>> create(std::shared_ptr<Library> library, Bells& bells, Options options = {});

}  // namespace kasane::comm::mpi
