// SPDX-License-Identifier: Apache-2.0
// The program's signal handlers beside ours. signals.cpp defines sigaction() and signal() for the whole
// program (the dynamic loader finds them before libc's):
//
//   SIGSEGV, SIGBUS   ours stays installed, since page faults of the space arrive there; the program's
//                     handler is stored, returned by sigaction(), and called for faults outside of the space,
//                     on our alternate stack
//   all others        the program's handler is installed with SA_ONSTACK: on a user-level stack the kernel
//                     may find no memory for a frame (rule 14)
//
// Until guard_fault_signals() everything passes through unchanged. Thread safety: all from any thread;
// installing is as in libc.
#pragma once

#include <signal.h>

namespace kasane::runtime {

/// Called once, before our fault handlers are installed. A handler that the program has installed by then is
/// stored as its own.
void guard_fault_signals() noexcept;

/// Calls the program's own handler for a fault that is not ours, as the kernel would. False: it has none.
bool call_program_fault_handler(int signal, siginfo_t* info, void* context) noexcept;

}  // namespace kasane::runtime
