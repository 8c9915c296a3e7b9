// SPDX-License-Identifier: Apache-2.0
// The spill engine of any kernel: a few threads that call pread and pwrite.
//
//   start ─▶ the slot's bit ─▶ semaphore ─▶ a thread takes a bit ─▶ pread/pwrite ─▶ ring of results ─▶ reap
//
// Thread safety: as spill_engine.h says. Its threads take no signals.
#pragma once

#include <memory>

#include "base/result.h"
#include "mem/spill_engine.h"

namespace kasane::mem {

/// Starts min(depth, 8) threads. Errc::limit: the machine allows no more.
Result<std::unique_ptr<SpillEngine>> make_spill_threads(unsigned depth);

}  // namespace kasane::mem
