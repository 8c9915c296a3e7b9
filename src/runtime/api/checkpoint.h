// SPDX-License-Identifier: Apache-2.0
// Checkpoints of global memory, written and read by all ranks together: each rank handles the chunks that it
// owns (docs/design/checkpoint.md). Built from user-level threads, views and moves, as a program could do it.
//
// Thread safety: any thread; one checkpoint of a name at a time.
// Invariant: a thread uses what belongs to a process (descriptors, malloc's memory, the Runtime) only until
// it moves; all else lies in global memory.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "checkpoint/format.h"

namespace kasane::runtime {

/// The error of a checkpoint, as plain bytes, which cross ranks. code 0: none.
struct CheckpointFailure {
  int code = 0;
  char text[448] = {};
};

/// Both on a user-level thread, which may be on another rank afterwards; in attached processes by a thread of
/// each rank, together, with the same arguments. The range lies in the space.
[[nodiscard]] CheckpointFailure persist(const char* path, const void* data, const checkpoint::Contents&);
[[nodiscard]] CheckpointFailure restore(const char* path, void* data, const checkpoint::Contents&);
/// What the file holds, without reading its data. On any thread.
[[nodiscard]] CheckpointFailure describe_checkpoint(const char* path, checkpoint::Contents&);

}  // namespace kasane::runtime
