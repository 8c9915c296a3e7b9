// SPDX-License-Identifier: Apache-2.0
// The program's signal handlers beside ours. signals.cpp defines sigaction() and signal() for the whole
// program (the dynamic loader finds them before libc's):
//
//   SIGSEGV, SIGBUS   ours stays installed, since page faults of the space arrive there; the program's
//                     handler is stored, returned by sigaction(), and called for faults outside of the space,
//                     on our alternate stack
//   SIGSYS            the same, where system calls are caught (runtime/process/system_calls.h)
//   all others        one handler of ours calls the program's, in user code and where a worker sleeps. Where
//                     it interrupts the runtime it blocks the signal and queues it again; when the runtime is
//                     left, the kernel delivers it (base/call_selector.h, docs/design/system_calls.md). So
//                     the program's handlers may touch global memory. On the alternate stack: on a user-level
//                     stack the kernel may find no memory for a frame (rule 14)
//
// A mask of the program's (pthread_sigmask, sigprocmask, sa_mask, sigsuspend, ppoll, pselect, epoll_pwait)
// never blocks these three: a blocked fault ends the process.
//
// Until guard_fault_signals() everything passes through unchanged. Thread safety: all from any thread;
// installing is as in libc.
#pragma once

#include <signal.h>

#include <cstdint>

namespace kasane::runtime {

/// Called once, before our fault handlers are installed. A handler that the program has installed by then is
/// stored as its own.
void guard_fault_signals() noexcept;

/// Called before the handler of caught calls is installed. Stores the program's handler of SIGSYS as its own.
void guard_call_signal() noexcept;

/// The calling thread does not block what the runtime needs: the parent's mask may.
void let_faults_through() noexcept;

/// From now on tell() tells all ranks what the program's sigaction() names; it returns when they have it.
void tell_actions_by(void (*tell)(int signal, const struct sigaction&) noexcept) noexcept;

/// Another rank's sigaction(): taken if no action of a higher number has come for the signal
/// (runtime/process/signal_actions.h). Async-signal-safe.
void take_action(int signal, const struct sigaction&, std::uint64_t number) noexcept;

/// A SIGSYS that is no caught call goes to the program's handler, or ends the process. The handler's own
/// calls pass, since it may let through only what its own instructions do.
void call_other_sigsys(int signal, siginfo_t*, void* context);

/// Calls the program's own handler for a fault that is not ours, as the kernel would. False: it has none.
bool call_program_fault_handler(int signal, siginfo_t* info, void* context) noexcept;

/// The job ends, and with it the memory that handlers use: from now on the signals for which the program has
/// handlers are taken and forgotten.
void end_signal_handlers() noexcept;

/// Whether a handler of the program's has returned since the last call: what it stored waits for a release.
[[nodiscard]] bool handlers_have_run() noexcept;

}  // namespace kasane::runtime
