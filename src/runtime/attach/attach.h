// SPDX-License-Identifier: Apache-2.0
// Kasane in a process that it did not start: the program has its own main, mpirun and MPI, and calls
// kasane_attach() (include/kasane/kasane.h; docs/design/attach.md). No thread crosses ranks there, so ranks
// need no common image: no fork, no second start, no comparison of objects, no user-level threads.
//
//   detached ─ attach ─▶ attached ─ detach, MPI_Finalize ─▶ detached ─ attach ─▶ …
//                          └ exit ─▶ the process ends as it is; the launcher ends the others
//
// Thread safety: attach() and detach() by one thread of each rank, while no other thread uses global memory.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace kasane::runtime {

/// mpi: "openmpi", "mpich", or null: as --mpi says, else by the launcher's variables, else one rank.
/// communicator: an MPI_Comm*, null: the world. Collective. Errc::invalid_argument: nothing has begun on any
/// rank. After another error the process can only end.
Result<void> attach(const char* mpi, const void* communicator);

/// Where the process is attached. Collective.
void detach() noexcept;

/// Which attach of the process holds, from 1; 0: none. Any thread.
[[nodiscard]] std::uint32_t attachment() noexcept;

}  // namespace kasane::runtime
