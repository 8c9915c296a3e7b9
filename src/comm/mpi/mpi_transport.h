// SPDX-License-Identifier: Apache-2.0
// The transport over an MPI library: for machines whose network no other transport here supports, and as a
// reference to measure the others against. Reads and writes go through windows where those are truly
// one-sided, else as messages that the owner's progress() executes. Atomics and messages are always messages.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/mpi/library.h"
#include "comm/transport.h"

namespace kasane::comm::mpi {

struct Options {
  /// How reads and writes travel. An experiment at the start shows whether the MPI's windows pin memory, and
  /// whether they need the target inside the MPI. automatic: by windows that do not pin, but by messages to a
  /// target that is outside the MPI at present if it is needed there; by messages if there are no such
  /// windows. windows: whatever the experiment shows (attach() then pins, if the MPI does). All ranks give
  /// the same value.
  enum class Rma { automatic, windows, messages };
  Rma rma = Rma::automatic;
};

/// Joins the ranks of library. bells: this rank's doorbells, which the transport rings; they outlive it.
/// Creation and destruction are collective.
Result<std::unique_ptr<Transport>> create(std::shared_ptr<Library> library, Bells& bells,
                                          Options options = {});

}  // namespace kasane::comm::mpi
