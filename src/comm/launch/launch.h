// SPDX-License-Identifier: Apache-2.0
// Joins the job for a program that uses comm alone (no global address space, no moving threads). One call at
// the beginning of main:
//
//   auto session = comm::launch();                    // options: the variables that kasane run sets
//   if (!session) …                                   // session.error() says what is wrong
//   (*session)->transport().rank();                   // from here on every rank runs main
//
//   under kasane run -n N    forks N ranks here; the calling process becomes their supervisor and exits with
//                            the job's status
//   under mpirun             joins the ranks that mpirun started
//   neither                  one rank, this process
//
// Programs that use all of Kasane (CMake target kasane::kasane) do not need it: they become ranks before
// main.
// Thread safety: call it once, while the process has one thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/bootstrap/start_mark.h"
#include "comm/session/session.h"

namespace kasane::comm {

/// In the program's file: tells kasane run that this program becomes ranks by itself.
[[gnu::used]] static constexpr char kStartMark[] = KASANE_START_MARK_HEAD KASANE_START_MARK_TAIL;

/// Returns in every rank. All ranks destroy the session, then exit.
Result<std::unique_ptr<Session>> launch();

}  // namespace kasane::comm
