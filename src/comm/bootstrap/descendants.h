// SPDX-License-Identifier: Apache-2.0
// Ends what the ranks started and left behind. The supervisor is their subreaper: a process whose parent died becomes its child, so "nothing is
// left" means "no child is left". Thread safety: one thread, the supervisor's; it must not hold children that it wants to keep.
#pragma once

#include <cstdint>

namespace kasane::comm {

/// Kills every child of this process, and theirs, which become ours as they die. Returns how many could not be ended within limit_ns
/// (a process in an uninterruptible wait), normally 0.
int end_descendants(std::int64_t limit_ns);

}  // namespace kasane::comm
