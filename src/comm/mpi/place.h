// SPDX-License-Identifier: Apache-2.0
// Did an MPI's launcher start this process, and as which rank? Only this file reads the launchers'
// environment variables.
//
//   openmpi   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE             mpirun.openmpi
//   mpich     PMI_RANK, PMI_SIZE; MPI_LOCALNRANKS                  mpirun.mpich, srun --mpi=pmi2
//   unnamed   PMIX_RANK; SLURM_NTASKS, SLURM_NTASKS_PER_NODE     srun --mpi=pmix, which every MPI understands
//
// Thread safety: any thread. place() and find_variable() neither allocate nor read `environ`: the load-time
// start calls them before libc has set it.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm::mpi {

enum class LaunchedFor : std::uint8_t { none, openmpi, mpich, unnamed };

struct Place {
  LaunchedFor mpi = LaunchedFor::none;  ///< none: no launcher of an MPI started this process
  Rank rank{0};
  std::uint32_t ranks = 0;        ///< 0: unknown
  std::uint32_t local_ranks = 0;  ///< on this host; 0: unknown

  [[nodiscard]] bool launched() const noexcept { return mpi != LaunchedFor::none; }
};

/// LaunchedFor::none in a process with borrowed rights, whatever the environment says (base/environment.h).
[[nodiscard]] Place place(char* const* environment) noexcept;

/// An error if Slurm's srun started this process and others, but no launcher of an MPI joins them. May
/// allocate.
[[nodiscard]] Result<void> refuse_unjoined_tasks(char* const* environment);

/// The value of `name` in the environment, or null.
[[nodiscard]] const char* find_variable(char* const* environment, const char* name) noexcept;

}  // namespace kasane::comm::mpi
