// SPDX-License-Identifier: Apache-2.0
// fork(2) by the program: in main, on a thread, on an OS thread of its own.
//
//   the child     is no rank: no threads, no kasane calls; new and malloc give private memory
//   its stack     is a private copy: stacks of the space are shared memory, so it is copied before
//   global memory is absent in the child. What it touches comes from its parent, a block at a time, and is
//                 private then; where the parent has ended or nothing is allocated, the child ends by SIGSEGV
//                 with a message
//   its calls     are caught as its parent's, since their memory may be absent
//
// The child reads what the parent has when the child first touches it. So the parent goes on when the child
//
//   has become another program, or has ended
//   makes a call that may wait for others (a read, a wait, a full pipe)
//   has used kChildTimeNs of a processor; or after kMostWaitMs
//
// Thread safety: as fork().
#pragma once

namespace kasane::runtime {

/// Once a process, at start.
void install_fork_guard();

}  // namespace kasane::runtime
