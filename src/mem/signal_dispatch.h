// SPDX-License-Identifier: Apache-2.0
// Who answers for a fault at an address: the one process-wide table of address ranges behind the SIGSEGV and SIGBUS handlers. Signal
// actions belong to the process, so this table does too: it is the exception to "no mutable globals".
//
//   fault ─► kernel ─► handler on the thread's alternate stack ─► range found ─► its function ─► true: the instruction runs again
//                                                                └► no range, or false ─► the fallback (crash report, user's handler)
//
// How the handlers are installed, and why:
//   SA_ONSTACK   the running stack may be what faults (an overflow, a stack page that moved): see alt_stack.h.
//   SA_NODEFER   a fault *inside* a fault function is our bug. With the signal blocked the kernel would end the process without a
//                word; so it is delivered again and goes to the fallback at once, never to a range: a function that waits for itself cannot hang.
//   sa_mask      everything but the signals of crashes is held back meanwhile: no handler of the user's runs in the middle of a protocol
//                step, where its own touch of the space would look like a fault inside a fault function.
//
// Thread safety: registering takes a lock and must not be done in a handler; the lookup is lock-free and async-signal-safe.
// Invariant: after unregister_range() returned, no thread is in that range's function.
#pragma once

#include <signal.h>

#include <cstddef>

#include "base/result.h"

namespace kasane::mem {

/// An access at address was not possible, which came as signal (SIGSEGV or SIGBUS). true: it is now, run it again; false: not ours to answer. Where the
/// machine does not say whether it was a store, write is true. Runs on the alternate stack: async-signal-safe code only; errno is kept by the caller.
using FaultFunction = bool (*)(void* context, void* address, bool write, int signal);

/// What happens to a fault that no range answers; the arguments of an SA_SIGINFO handler. Returning runs the instruction again.
using FaultFallback = void (*)(int signal, siginfo_t* info, void* ucontext);

/// Which faults of a range go to its function. A SIGBUS in a map of a memory file means that there is no memory for the page: who serves
/// only protection faults must not get it, or the access would be tried for ever.
enum class FaultSignals { segv, segv_and_bus };

/// From now on faults in [base, base+bytes) go to function. Ranges are disjoint; at most 64 at a time (Errc::limit). The first one
/// installs the handlers; what was installed before becomes the end of the default fallback.
Result<void> register_range(const void* base, std::size_t bytes, FaultFunction function, void* context,
                            FaultSignals signals = FaultSignals::segv);
/// Takes the range registered at base back and waits until nobody runs its function. Not from within that function.
void unregister_range(const void* base) noexcept;

/// Sets the fallback. Without one, a fault goes to the action that was installed before ours: a handler is called; else the default action is
/// restored, so that the instruction, run again (or the signal, sent again where a process sent it), ends the process with the right signal.
/// Any thread, any time.
void set_fallback(FaultFallback) noexcept;

/// libc's own sigaction under its other exported name. The runtime defines a `sigaction` of its own to see the user's handlers; whoever means the
/// kernel's action of this process calls this one. (Sanitizers define `sigaction` too, and are passed by likewise.)
int raw_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept;

}  // namespace kasane::mem
