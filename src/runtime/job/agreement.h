// SPDX-License-Identifier: Apache-2.0
// What ranks that were not forked from one process must agree on before they build anything: the options, the
// number of workers and the address of the space. Under mpirun each rank has an environment, a machine and an
// address space of its own.
//
//   options   rank 0's, also where the launcher passed no variables on
//   workers   as rank 0's options say; where they leave it open, what the rank with the fewest cores can run
//   pools     of NUMA memory: as many as the rank with the most nodes wants
//   base      the first candidate (mem/space.h) that is free on all ranks
//
// Thread safety: at the start only, one thread a rank; collective.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "comm/out_of_band.h"
#include "runtime/rank/options.h"

namespace kasane::runtime {

/// options: this rank's, replaced by what was agreed (workers is not 0 then). default_workers: this rank's
/// own default. Returns the space's base, reserved in this process. An error names the rank that differs, on
/// every rank.
Result<std::byte*> agree(comm::OutOfBand&, Options& options, std::uint64_t default_workers);

}  // namespace kasane::runtime
