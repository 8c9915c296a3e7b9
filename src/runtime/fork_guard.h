// SPDX-License-Identifier: Apache-2.0
// fork(2) on a user-level stack is refused: parent and child share the memory of that stack, so both would
// return through the same frames (rule 14). posix_spawn, system and popen do not fork in that sense and work.
// A fork elsewhere is allowed; its child has no runtime:
// it may compute, write and exec, but not touch global memory or threads.
#pragma once

namespace kasane::runtime {

/// Once a process, at start.
void install_fork_guard();

}  // namespace kasane::runtime
