// SPDX-License-Identifier: Apache-2.0
// Ranks that a launcher with PMIx started (Slurm's srun --mpi=pmix, PRRTE's prterun, Open MPI's mpirun) find
// each other through it: no MPI is loaded. What a rank has is put under a key of the round, a fence collects
// it, and each rank gets what the others have put.
//
// libpmix is reached through a module (kasane-pmix.so), as an MPI is: it is there only where it was installed
// when Kasane was built.
//
// Thread safety: as OutOfBand says. libpmix has a thread of its own until OutOfBand::end().
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "comm/out_of_band.h"

namespace kasane::comm::mpi {

/// Do ranks that were started so, with this --mpi, meet by PMIx? Yes for pmix, and for auto where the
/// launcher has PMIx and is no MPI's.
[[nodiscard]] bool meets_by_pmix(std::string_view which) noexcept;

/// Loads libpmix and connects to the launcher. Collective.
Result<std::unique_ptr<OutOfBand>> meet_by_pmix();

}  // namespace kasane::comm::mpi
