// SPDX-License-Identifier: Apache-2.0
// System calls of user code work on any global memory, absent, evicted or another rank's
// (docs/design/system_calls.md): caught calls (traps/caught_calls.h) whose memory lies in the space are
// carried out here. What the call table says of them is pinned as in a view, and they are made; those that
// name more than can be pinned at once are made in parts.
//
// Thread safety: the process's calls; any OS thread.
#pragma once

#include <cstdio>

#include "base/call_selector.h"
#include "runtime/rank/descriptors.h"
#include "traps/caught_calls.h"

namespace kasane::runtime {

/// From now on the calls of the program's threads (traps::ProgramThread) are caught, and carried out for
/// Runtime::current(). Where the kernel cannot catch them, those by libc's functions are carried out
/// (call_wrappers.cpp); and rank 0 says so, once, unless the kernel waits for absent memory.
void begin_catching_calls(bool kernel_waits) noexcept;

/// The calling thread runs user code, and the kernel does not catch its calls.
[[gnu::visibility("hidden")]] extern constinit bool g_calls_wrapped;
[[nodiscard]] inline bool calls_are_wrapped() noexcept { return g_calls_wrapped && calls() == Calls::caught; }
/// A call of user code, carried out where its memory lies in the space; the kernel's answer.
[[nodiscard]] long make_call_here(traps::CaughtCall) noexcept;
/// That answer as libc's functions have it, with errno of the OS thread on which the caller is now.
long finish_call(long result) noexcept;
/// Such a call: the result and errno as libc's functions have them.
[[nodiscard, gnu::cold]] long make_wrapped_call(traps::CaughtCall) noexcept;

/// In a child of fork(): as before in its parent, whether that has begun or not. note: called before each.
void catch_calls_of_child(void (*note)(const traps::CaughtCall&) noexcept) noexcept;

/// Before begin_catching_calls(): from now on the descriptors that user code opens have numbers of its
/// rank's.
void number_descriptors(const Descriptors&) noexcept;

/// libc's popen(), with what it names present for its child.
[[nodiscard]] std::FILE* popen_of_libc(const char* command, const char* mode) noexcept;

}  // namespace kasane::runtime
