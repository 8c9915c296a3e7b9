// SPDX-License-Identifier: Apache-2.0
// Claims: a page of another rank costs no more than its fault, its transfer and a microsecond of bookkeeping; a release sends a changed page in a few
// microseconds; clean fences cost next to nothing. Two ranks of this host over shm, real faults; what is read is checked.
#pragma once

#include <vector>

#include "row.h"

namespace kasane::bench {

/// Rows suite "core", cases page-miss, page-stream, release-page, release-clean, acquire-clean, false-sharing-epoch, systems kasane and the physical
/// limits beside them: "fault" (a SIGSEGV whose handler only changes the protection of its page: what the kernel alone takes), "mprotect" (that call by itself) and "memcpy" (the page's
/// bytes alone). Throws std::runtime_error if bytes are wrong or a rank fails.
std::vector<Row> core_pages(bool quick);

}  // namespace kasane::bench
