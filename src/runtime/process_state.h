// SPDX-License-Identifier: Apache-2.0
// What this process is in its job, for code that a signal, exit() or fork() may bring here at any moment: which rank, whose status page.
// The one place of process-wide state beside Runtime::current(); it is set once, by the load-time start, before the program's main.
//
// Thread safety: set_process() before other threads exist; the rest from any thread, also in signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "comm/bootstrap/job_status.h"

namespace kasane::runtime {

struct Process {
  Rank rank = kNoRank;                    ///< kNoRank: not a rank (the supervisor, a forked child of a rank, a unit test)
  std::uint32_t ranks = 0;
  bool main_here = false;                 ///< this rank runs the program's main
  comm::RankStatus* status = nullptr;     ///< where to tell the supervisor; null without one
  const std::byte* space_base = nullptr;
  std::size_t space_bytes = 0;
};

void set_process(const Process&) noexcept;
[[nodiscard]] const Process& process() noexcept;

/// What this rank learnt when it met the others, where no launcher of ours knew it before. As set_process().
void note_joined(Rank rank, std::uint32_t ranks, bool main_in_every_rank, const std::byte* space_base, std::size_t space_bytes) noexcept;

/// A child of fork(): it is no rank, and must not speak for its parent.
void forget_process() noexcept;

[[nodiscard]] bool in_space(const void*) noexcept;

/// How far this rank is; the supervisor judges its end by that.
void set_phase(comm::Phase) noexcept;
[[nodiscard]] comm::Phase phase() noexcept;

/// Says text in a way that reaches the user: on the status page if a supervisor reads it, else on standard error. Async-signal-safe.
void tell(const char* text, std::size_t bytes) noexcept;

/// This rank cannot go on: says why, and ends the process; the launcher ends the job.
[[noreturn]] void give_up(const Error&) noexcept;

/// Watches for exit() while the job runs. `end_job` is called where that is orderly: in main's own flow on a rank that runs main. Elsewhere (a serving
/// rank, a user-level thread) the process ends at once with a message and a status that is not 0.
void install_exit_check(void (*end_job)() noexcept);

/// The caller is main: an exit() on the stack it runs on is main's own.
void note_main_thread() noexcept;
/// An address near the end of main's stack, from which it grows down; null where main does not run (yet).
[[nodiscard]] const std::byte* main_stack() noexcept;

}  // namespace kasane::runtime
