// SPDX-License-Identifier: Apache-2.0
// fork(2) on a user-level stack is refused: the stack lies in memory that parent and child share, both would return through the same frames (rule
// 14). posix_spawn, system and popen do not fork in that sense and work. A fork elsewhere is allowed; its child has lost the runtime:
// it may compute, write and exec, but not touch global memory or threads.
#pragma once

namespace kasane::runtime {

/// Once a process, at start.
void install_fork_guard();

}  // namespace kasane::runtime
