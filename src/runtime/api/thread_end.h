// SPDX-License-Identifier: Apache-2.0
// pthread_exit() and thrd_exit(): on a user-level thread they end it; in main they end main, and the job
// lives until all other threads have ended. On other OS threads they are libc's.
// Thread safety: as pthread_exit().
#pragma once

namespace kasane::runtime {

using ProgramMain = int (*)(int, char**, char**);

/// The program's main. If it ends by pthread_exit(): exits with status 0 when all user-level threads of the
/// job and all OS threads that the program has started on this rank have ended.
/// Not inlined: pthread_exit() knows its frame by its address.
#ifdef __clang__
[[gnu::noinline]]
#else
[[gnu::noipa]]
#endif
int run_program(ProgramMain main, int argc, char** argv, char** environment);

}  // namespace kasane::runtime
