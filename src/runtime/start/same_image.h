// SPDX-License-Identifier: Apache-2.0
// Makes the processes that mpirun starts alike enough that threads can move between them (design rule 14), as
// those are that our launcher forks.
//
//   mpirun ── exec ──▶ program, randomised      .preinit_array: not randomised, fixed stack limit, exec
//                        └─ exec ──▶ program    .preinit_array: equal canary and pointer guard
//                                      └─ where that is refused: maps and enters itself (load_again.h)
//
// .preinit_array of the executable (src/runtime/entry) runs before the constructors of all shared libraries:
// no thread exists, no pointer has been mangled with the old guard (atexit, setjmp), and no running function
// has a canary on its stack.
//
// The guards are derived from the program's build and the first of these that is set: Open MPI's own random
// key, which its mpirun gives to every rank;
// KASANE_JOB_KEY (from kasane run, or from the user, for all ranks); PMIX_NAMESPACE. Under a bare
// mpirun.mpich there is none: the guards are equal, but not secret.
// Runtime::create compares them when the ranks have joined.
//
// Thread safety: start only, one thread.
#pragma once

#include "comm/mpi/place.h"

namespace kasane::runtime {

/// kasane run sets it for the ranks that mpirun starts: a text that no other job has.
inline constexpr char kJobKeyVariable[] = "KASANE_JOB_KEY";

/// Which rank of an mpirun's this process is. None if it is asked to fork ranks of its own (KASANE_RANKS).
[[nodiscard]] comm::mpi::Place mpi_place(char* const* environment) noexcept;

/// Called first of all in a process (kasane_start_process). In a rank of mpirun the first start does not
/// return. Its callers have no stack-protector canary.
void become_same_image(char** argv, char** environment) noexcept;

/// True if this process was started again without randomisation, and has the job's guards.
[[nodiscard]] bool same_image() noexcept;

}  // namespace kasane::runtime
