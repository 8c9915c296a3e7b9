// SPDX-License-Identifier: Apache-2.0
// The spill engine over io_uring (by liburing). start() fills entries of the submission ring, flush() is one
// system call. Results come through the completion ring, which has room for more than can be under way, so it
// never overflows.
// Thread safety: as spill_engine.h says; each ring has one user.
#pragma once

#include <memory>

#include "base/result.h"
#include "mem/spill_engine.h"

namespace kasane::mem {

/// Errc::unsupported with what is missing: io_uring itself (old kernel, kernel.io_uring_disabled, seccomp),
/// or its reads and writes. Tried by a first round trip through the ring.
Result<std::unique_ptr<SpillEngine>> make_spill_uring(unsigned depth);

}  // namespace kasane::mem
