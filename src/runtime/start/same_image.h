// SPDX-License-Identifier: Apache-2.0
// Makes the processes that mpirun starts alike enough that threads can move between them (design rule 14), as those are that our launcher forks.
//
//   mpirun ── exec ──▶ program, randomised      .preinit_array: no randomisation, fixed stack limit, exec itself again
//                        └─ exec ──▶ program    .preinit_array: equal stack-protector canary and pointer guard, then on as ever
//                                      └─ maps and enters itself once more, where the system refuses the first (load_again.h)
//
// .preinit_array of the executable (src/runtime/entry) runs before the constructors of all shared libraries: no thread exists, no pointer has been mangled with the old
// guard (atexit, setjmp), and no function that is still running has a canary on its stack.
//
// The guards are derived from the program's build and the first of these that is set: Open MPI's own random key, which its mpirun gives to every rank;
// KASANE_JOB_KEY (from kasane run, or the user, who passes it to all ranks); PMIX_NAMESPACE. Under a bare mpirun.mpich there is none: equal, but no secret.
// Whether they are equal is compared when the ranks have met (Runtime::create).
//
// Thread safety: start only, one thread.
#pragma once

#include "comm/mpi/place.h"

namespace kasane::runtime {

/// Set by kasane run for the ranks that mpirun starts: text that this job alone has.
inline constexpr char kJobKeyVariable[] = "KASANE_JOB_KEY";

/// Which rank of an mpirun's this process is. None if it is asked to fork ranks of its own (KASANE_RANKS).
[[nodiscard]] comm::mpi::Place mpi_place(char* const* environment) noexcept;

/// At the very first moment of a process (kasane_start_process): of an mpirun's ranks the first start does not return. Its callers must have no stack-protector canary.
void become_same_image(char** argv, char** environment) noexcept;

/// True if this process was started again without randomisation, and has the job's guards.
[[nodiscard]] bool same_image() noexcept;

}  // namespace kasane::runtime
