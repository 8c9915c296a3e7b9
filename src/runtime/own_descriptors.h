// SPDX-License-Identifier: Apache-2.0
// The descriptors of the runtime: memory files, sockets, userfaultfd, rings, and what a network's library has
// opened. A program may close, replace or list all that are open, and knows nothing of these: daemons, shells
// and Python's subprocess do so.
//
//   which    what is opened while the runtime runs (Calls::passed), or on a thread that it has started: the
//            functions of call_wrappers.cpp, which UCX and the MPIs call, too, hand it over. In a program
//            that attaches (kasane_attach), which shares its libraries with the runtime, only what the
//            runtime itself opens
//   where    from kFirst on, and beyond the limit of open files where that may be raised: not where open()
//            puts the program's, nor where its loops and select() come
//   to user  such a number is not open (EBADF); close_range() leaves it out; dup2() onto it is refused as
//   code     beyond the limit, or with EBUSY where the limit is higher
//   exec     keeps none
//
// A few numbers only, of which a bit says so: others around them are the program's, if it raises its limit.
//
// Thread safety: every call from any thread; async-signal-safe.
#pragma once

#include "mem/caught_calls.h"

namespace kasane::runtime {

/// Once, by the start of a program of Kasane's: what libraries open within the runtime is its own, too.
void own_descriptors_of_libraries() noexcept;

/// The calling thread runs the runtime, or has been started by it and runs no user code.
[[nodiscard]] bool runs_runtime() noexcept;
/// The calling thread has been started where that held.
void note_thread_of_runtime() noexcept;

/// The function at `caller` has opened a descriptor: its number from now on. -1 is passed through, as errno.
int own_descriptor(int opened, const void* caller) noexcept;
/// The runtime is about to close it.
void disown_descriptor(int) noexcept;

/// User code's call closes, copies, replaces or changes such a descriptor.
[[nodiscard]] bool names_own_descriptor(const mem::CaughtCall&) noexcept;
/// The answer to such a call.
[[nodiscard]] long call_beside_own_descriptors(const mem::CaughtCall&) noexcept;

}  // namespace kasane::runtime
