// SPDX-License-Identifier: Apache-2.0
// What a rank reports when it dies of a signal: where (rank, OS thread, user-level thread), which signal, at
// which address, what that address is, and the call stack. Then the signal's default action ends the process,
// so that the supervisor, the shell and a core dump see the true cause.
//
// Thread safety: everything may run in a signal handler on an alternate stack, in several threads at once
// (one reports, the others wait for the end).
// Nothing allocates, locks or uses stdio. A crash of the unwinder costs the frames that it did not reach; one
// elsewhere in the report ends the process with the part that was written.
#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "traps/alt_stack.h"

namespace kasane::runtime {

/// Whose handlers of SIGILL, SIGFPE, SIGABRT and SIGTRAP stay: those that libraries installed, or nobody's.
enum class OtherHandlers : bool { go, stay };
/// Fatal signals of this process are reported from now on. Needs process_state. Faults come through mem's
/// signal dispatch.
Result<void> install_crash_handlers(Rank rank, OtherHandlers = OtherHandlers::go);

/// A load or store that nothing can serve, from the runtime's fault handler (or anywhere): reports and dies
/// as by SIGSEGV.
/// meaning: what is wrong with the address, e.g. "nothing is allocated there".
[[noreturn]] void report_wild_access(const void* address, bool write, const char* meaning);

/// Each OS thread of the runtime needs one: all handlers run there, because a user-level stack may be absent
/// or full (rule 14).
using traps::AltStack;

}  // namespace kasane::runtime
