// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/place.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/renumbered.h"

namespace kasane::comm::mpi {
namespace {

bool is_number(const char* text) noexcept {
  if (text == nullptr || *text == '\0') return false;
  return std::all_of(text, text + std::strlen(text), [](char c) { return c >= '0' && c <= '9'; });
}

/// 0 if it is no number.
std::uint32_t number(const char* text) noexcept {
  return is_number(text) ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : 0;
}

struct Names {
  LaunchedFor mpi;
  const char *rank, *ranks, *local_ranks;
};

constexpr Names kNames[] = {
    {LaunchedFor::agent, kAgentRank, kAgentRanks, kAgentHere},
    {LaunchedFor::openmpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {LaunchedFor::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {LaunchedFor::unnamed, "PMIX_RANK", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"},
};

}  // namespace

const char* find_variable(char* const* environment, const char* name) noexcept {
  const std::size_t n = std::strlen(name);
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, name, n) == 0 && (*environment)[n] == '=') return *environment + n + 1;
  }
  return nullptr;
}

Place place(char* const* environment) noexcept {
  if (has_borrowed_rights()) return {};
  for (const Names& names : kNames) {
    const char* rank = find_variable(environment, names.rank);
    if (!is_number(rank)) continue;
    const char* const socket =
        names.mpi == LaunchedFor::agent ? find_variable(environment, kAgentSocket) : nullptr;
    return {names.mpi, Rank{number(rank)}, number(find_variable(environment, names.ranks)),
            number(find_variable(environment, names.local_ranks)),
            is_number(socket) ? static_cast<int>(number(socket)) : -1};
  }
  return {};
}

int take_agent(const Place& place) noexcept {
  for (const char* name : {kAgentRank, kAgentRanks, kAgentHere, kAgentSocket}) ::unsetenv(name);
  return place.agent >= 0 ? renumbered(place.agent) : -1;
}

Result<void> refuse_unjoined_tasks(char* const* environment) {
  // The tasks of the step, not of the allocation (SLURM_NTASKS): a batch script and salloc's shell run in an
  // allocation of many tasks, but are one process.
  const std::uint32_t tasks = number(find_variable(environment, "SLURM_STEP_NUM_TASKS"));
  if (tasks < 2 || place(environment).launched() || has_borrowed_rights()) return {};
  const char* task = find_variable(environment, "SLURM_PROCID");
  return fail(
      Errc::unsupported,
      "srun started " + std::to_string(tasks) + " tasks, of which this is task " +
          (task != nullptr ? task : "?") +
          ", but no MPI joins them, so each would be a job of its own: use srun "
          "--mpi=pmix, or --mpi=pmi2 (an MPICH); with KASANE_RANKS=1 in its environment each is one indeed");
}

}  // namespace kasane::comm::mpi
