// SPDX-License-Identifier: Apache-2.0
// Claims: a page of another rank costs no more than its fault, its transfer and a microsecond of bookkeeping;
// a release sends a changed page in a few microseconds; clean fences cost next to nothing. Jobs of two ranks
// of this host, by the public API (bench/pages_player.cpp), beside the kernel's bare faults; what is read is
// checked. The fault engines take turns, so that their figures can be compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Rows of suite "core". Cases: page-miss, page-stream, page-stream-down (from the last block), page-stride
/// (each third block), page-stride-wide, page-stream-4k (in pages of 4 KiB), page-view (page-stream's bytes
/// by one view), write-view (a view that is only written: made and ended), release-whole (what was written
/// there), write-miss, release-page, write-stream and write-stride (a byte of each block, or of each third,
/// in order, and the release), write-stream-4k, release-clean, acquire-clean, false-sharing-epoch.
/// Systems: "kasane, ENGINE" for each fault engine named (none: all that the kernel allows), and the physical
/// limits beside them: "fault, mprotect" (a SIGSEGV whose handler only changes the protection of its page:
/// the kernel's part), "fault, uffd" (a SIGBUS whose handler only maps it), "fault, uffd-thread" (a thread
/// maps it while the faulting thread sleeps), "mprotect" (that call by itself) and "memcpy" (the page's bytes
/// alone). `players`: the folder of player-pages. Throws std::runtime_error if a job fails, its values are
/// wrong, or an engine is not available.
std::vector<Row> core_pages(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                            const std::string& players, std::vector<std::string> engines);

}  // namespace kasane::bench
