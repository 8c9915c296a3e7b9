// SPDX-License-Identifier: Apache-2.0
// Which function serves a fault at an address: the one process-wide table of address ranges behind the
// handlers of SIGSEGV and SIGBUS. Signal actions belong to the process, so this table does too: it is the
// exception to "no mutable globals".
//
//   fault ─► kernel ─► handler on the thread's alternate stack ─► range found ─► its function
//                          │                             false ◄───┴──► true: the instruction runs again
//                          └─ no range, or false ─► the fallback (crash report, user's handler)
//
// How the handlers are installed, and why:
//   SA_ONSTACK   the running stack may be what faults (an overflow, a stack page that moved): see alt_stack.h
//   SA_NODEFER   a fault *inside* a fault function is our bug. With the signal blocked the kernel would end
//                the process without a message. So it is delivered again, and goes to the fallback at once,
//                never to a range: a function that waits for itself cannot hang.
//   sa_mask      all signals but those of crashes are held back meanwhile: no handler of the user's runs in
//                the middle of a protocol step, where its own access to the space would look like a fault
//                inside a fault function.
//
// Thread safety: registering takes a lock and must not be done in a handler; the lookup is lock-free and
// async-signal-safe.
// Invariant: after unregister_range() has returned, no thread runs that range's function.
#pragma once

#include <signal.h>

#include <cstddef>

#include "base/result.h"

namespace kasane::traps {

/// Serves an access at address that was not possible, and came as `signal` (SIGSEGV or SIGBUS). true: it is
/// possible now, run it again; false: this range cannot serve it, and errno says why where the kernel has
/// refused (0: it has not). Where the machine does not tell whether it was a store, write is true. Runs on
/// the alternate stack: async-signal-safe code only; the caller keeps errno.
using FaultFunction = bool (*)(void* context, void* address, bool write, int signal);

/// Handles a fault that no range serves; the arguments of an SA_SIGINFO handler. errno is what the range's
/// function has left, or 0. Returning runs the instruction again.
using FaultFallback = void (*)(int signal, siginfo_t* info, void* ucontext);

/// Which faults of a range go to its function. A SIGBUS in a mapping of a memory file means that there is no
/// memory for the page: a function that serves only protection faults must not get it, or the access would be
/// tried forever.
enum class FaultSignals { segv, segv_and_bus };

/// From now on faults in [base, base+bytes) go to function. Ranges are disjoint; at most 64 at a time
/// (Errc::limit). The first one installs the handlers; the default fallback ends with the actions that were
/// installed before.
Result<void> register_range(const void* base, std::size_t bytes, FaultFunction function, void* context,
                            FaultSignals signals = FaultSignals::segv);
/// Removes the range registered at base, and waits until no thread runs its function. Not from within that
/// function.
void unregister_range(const void* base) noexcept;

/// Sets the fallback. Without one, a fault goes to the action that was installed before: a handler is called;
/// else the default action is restored, so that the instruction, run again (or the signal, sent again where a
/// process sent it), ends the process with the right signal. Any thread, any time.
void set_fallback(FaultFallback) noexcept;

/// The ucontext of the access whose fault the calling thread serves in a range's function; null: it serves
/// none.
[[nodiscard]] const void* faulting_context() noexcept;

/// libc's own sigaction under its other exported name. The runtime defines a `sigaction` of its own to see
/// the user's handlers; code that means the kernel's action of this process calls this one. (Sanitizers
/// define `sigaction`, too; this call does not reach theirs.)
int raw_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept;

}  // namespace kasane::traps
