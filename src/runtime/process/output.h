// SPDX-License-Identifier: Apache-2.0
// Standard output of a job of several ranks. Each rank has a libc of its own, hence a buffer of its own, for
// one common file. So that lines stay whole and a thread's lines stay in its order:
//
//   stdout is line-buffered in every rank, also into pipes and files     a line is one write(2)
//   a part of a line is written when its thread forks, ends, waits or    what another rank prints afterwards
//   lets another thread go on                                            comes behind it
//   std::cout shares stdout's buffer, whatever sync_with_stdio() asks
//
// With --tag-output each rank writes into a pipe of its own. There the thread waits, before it forks, ends or
// calls Kasane, until the supervisor has taken what its rank has written.
//
// With one rank nothing changes: one process, one buffer.
//
// The kernel cuts a write of more than PIPE_BUF (4096) bytes into a pipe that is full, and lets other ranks'
// writes between. So ranks of a host take turns there, by a lock of the pipe (OutputTurn).
//
// Limits: a line of more than 64 KiB is several writes. Over several hosts mpirun joins the output.
//
// Thread safety: order_output() before other threads exist; the rest from any thread.
#pragma once

#include <cstdint>

#include "diagnostics/job_status.h"
#include "ult/pool.h"

namespace kasane::runtime {

/// In a rank of a job of `ranks`, before the constructors of the program's static objects. pump: this rank's
/// status where its output goes through a pipe of its own to the supervisor (--tag-output), else null.
void order_output(std::uint32_t ranks, const diagnostics::RankStatus* pump) noexcept;

/// Writes what this rank's stdout holds, where no thread is printing. For a thread of the runtime, which must
/// not wait for one.
void flush_output_unless_locked() noexcept;

/// At the end of the rank. False: standard output has lost something (a full disk, a reader that has gone),
/// and standard error says so.
[[nodiscard]] bool output_is_written() noexcept;

/// Whether ranks take turns in writing to the descriptor: standard output or error, a pipe of all ranks.
[[nodiscard]] bool writes_in_turns(long descriptor) noexcept;

/// The calling rank's turn. Its threads may share one.
class OutputTurn {
 public:
  explicit OutputTurn(int descriptor) noexcept;
  ~OutputTurn();
  OutputTurn(const OutputTurn&) = delete;
  OutputTurn& operator=(const OutputTurn&) = delete;

 private:
  int descriptor_;  ///< -1: there is nothing to lock
};

/// settle() writes the part of a line that stdout holds, and with --tag-output waits for the supervisor. On a
/// worker: it may block as any printing does.
[[gnu::visibility("hidden")]] extern ult::Leftover g_partial_line;

/// Before another thread may learn what the caller did. Costs four loads.
inline void keep_output_in_order() noexcept {
  if (*g_partial_line.begin != *g_partial_line.end) [[unlikely]]
    g_partial_line.settle();
}

}  // namespace kasane::runtime
