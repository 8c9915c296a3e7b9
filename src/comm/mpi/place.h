// SPDX-License-Identifier: Apache-2.0
// Did an MPI's launcher start this process, and as which rank? Only this file reads the launchers'
// environment variables.
//
//   openmpi   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE             mpirun.openmpi
//   mpich     PMI_RANK, PMI_SIZE; MPI_LOCALNRANKS                  mpirun.mpich, srun --mpi=pmi2
//   unnamed   PMIX_RANK; SLURM_NTASKS, SLURM_NTASKS_PER_NODE     srun --mpi=pmix, prterun: by PMIx, or an MPI
//                                                                that is named
//   agent     KASANE_AGENT_RANK, _RANKS, _HERE, _SOCKET          kasane run --hosts: no MPI
//
// Thread safety: any thread. place() and find_variable() neither allocate nor read `environ`: the load-time
// start calls them before libc has set it.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm::mpi {

enum class LaunchedFor : std::uint8_t { none, openmpi, mpich, unnamed, agent };

/// What an agent (comm/bootstrap/from_host_agent.h) sets for a rank.
inline constexpr char kAgentRank[] = "KASANE_AGENT_RANK", kAgentRanks[] = "KASANE_AGENT_RANKS",
                      kAgentHere[] = "KASANE_AGENT_HERE", kAgentSocket[] = "KASANE_AGENT_SOCKET";

struct Place {
  LaunchedFor mpi = LaunchedFor::none;  ///< none: no launcher of an MPI started this process
  Rank rank{0};
  std::uint32_t ranks = 0;        ///< 0: unknown
  std::uint32_t local_ranks = 0;  ///< on this host; 0: unknown
  int agent = -1;                 ///< LaunchedFor::agent: the socket to it

  [[nodiscard]] bool launched() const noexcept { return mpi != LaunchedFor::none; }
};

/// LaunchedFor::none in a process with borrowed rights, whatever the environment says (base/environment.h).
[[nodiscard]] Place place(char* const* environment) noexcept;

/// Programs that this process starts are not ranks of its agent's. Returns the socket, by another number, or
/// -1.
int take_agent(const Place&) noexcept;

/// An error if Slurm's srun started this process and others, but no launcher of an MPI joins them. May
/// allocate.
[[nodiscard]] Result<void> refuse_unjoined_tasks(char* const* environment);

/// The value of `name` in the environment, or null.
[[nodiscard]] const char* find_variable(char* const* environment, const char* name) noexcept;

}  // namespace kasane::comm::mpi
