// SPDX-License-Identifier: Apache-2.0
// Ends the processes that the ranks started and left behind. The supervisor is their subreaper: a process
// whose parent died becomes its child, so "no descendant is left" means "no child is left". Thread safety:
// one thread, the supervisor's, which must have no children that it wants to keep.
#pragma once

#include <cstdint>

namespace kasane::comm {

/// Kills every child of this process, and their children, which become ours as their parents die. Returns how
/// many could not be ended within limit_ns (processes in an uninterruptible wait), normally 0.
int end_descendants(std::int64_t limit_ns);

}  // namespace kasane::comm
