// SPDX-License-Identifier: Apache-2.0
// Did an MPI's launcher start this process, and as which rank? The one reading of what launchers put into the environment; everybody who must know asks here.
//
//   openmpi   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE                  mpirun.openmpi
//   mpich     PMI_RANK, PMI_SIZE; MPI_LOCALNRANKS                       mpirun.mpich, srun --mpi=pmi2
//   unnamed   PMIX_RANK; SLURM_NTASKS, SLURM_NTASKS_PER_NODE            srun --mpi=pmix: every MPI understands it, so which one it is nobody has said
//
// Thread safety: any thread. place() and find_variable() neither allocate nor read `environ`: the load-time start asks before libc has set it.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm::mpi {

enum class LaunchedFor : std::uint8_t { none, openmpi, mpich, unnamed };

struct Place {
  LaunchedFor mpi = LaunchedFor::none;   ///< none: no launcher of an MPI started this process
  Rank rank{0};
  std::uint32_t ranks = 0;               ///< 0: not said
  std::uint32_t local_ranks = 0;         ///< on this host; 0: not said

  [[nodiscard]] bool launched() const noexcept { return mpi != LaunchedFor::none; }
};

/// None in a process with borrowed rights, whatever the environment says (base/environment.h).
[[nodiscard]] Place place(char* const* environment) noexcept;

/// An error where Slurm's srun started this process and others, and no launcher of an MPI is there to join them. May allocate.
[[nodiscard]] Result<void> refuse_unjoined_tasks(char* const* environment);

/// The value of `name` in the environment, or null.
[[nodiscard]] const char* find_variable(char* const* environment, const char* name) noexcept;

}  // namespace kasane::comm::mpi
