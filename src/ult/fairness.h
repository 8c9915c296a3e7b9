// SPDX-License-Identifier: Apache-2.0
// What calls of the public interface do that may wait and often need not: without it a thread that polls by
// such calls keeps its worker for ever, and what it polls for may be a thread that is ready there.
//
// Thread safety: any OS thread; where no user-level thread runs nothing happens. The caller holds nothing
// that another thread could wait for but what stays() tells of, and uses nothing afterwards that belongs to
// the OS thread. Cost: a decrement.
#pragma once

#include "ult/pool.h"
#include "ult/worker.h"

namespace kasane::ult {

/// Counts a call, and lets other threads of this worker run when the calling thread's turn is over
/// (ult/turns.h), unless stays(): the thread holds what another one would wait for with the worker. The
/// thread goes on on the same worker.
inline void let_others_run(bool (*stays)() noexcept) {
  Worker* const worker = current_worker();
  if (worker != nullptr && worker->turn.call()) [[unlikely]]
    Pool::look_at_turn(stays());
}

}  // namespace kasane::ult
