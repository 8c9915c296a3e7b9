// SPDX-License-Identifier: Apache-2.0
// Joins the job for a program that uses comm alone (no global address space, no moving threads). One call at the beginning of main:
//
//   auto session = comm::launch();                    // KASANE_RANKS, KASANE_TRANSPORT, KASANE_MPI, as kasane run sets them
//   if (!session) …                                   // says what is wrong
//   (*session)->transport().rank();                   // from here on every rank runs main
//
//   under kasane run -n N    forks N ranks here; the calling process stays behind as their supervisor and exits with the job's status
//   under mpirun             joins the ranks that it started
//   neither                  one rank, this process
//
// Programs of the whole of Kasane (CMake target kasane::kasane) have no use for it: they become ranks before main.
// Thread safety: call it once, while the process has one thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/bootstrap/start_mark.h"
#include "comm/session/session.h"

namespace kasane::comm {

/// In the program's own file: tells kasane run that this program knows how to become ranks.
[[gnu::used]] static constexpr char kStartMark[] = KASANE_START_MARK_HEAD KASANE_START_MARK_TAIL;

/// Returns in every rank. The session's destructor ends the rank's part: all ranks reach it, then exit.
Result<std::unique_ptr<Session>> launch();

}  // namespace kasane::comm
