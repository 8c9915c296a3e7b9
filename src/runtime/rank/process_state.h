// SPDX-License-Identifier: Apache-2.0
// What this process is in its job: its rank, its status page. For code that runs in signal handlers, in
// exit() or in the child of fork(), at any moment.
// The one place of process-wide state beside Runtime::current(); the load-time start sets it once, before the
// program's main.
//
// Thread safety: set_process() before other threads exist; the rest from any thread, also in signal handlers.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "diagnostics/job_status.h"

namespace kasane::runtime {

class Runtime;

struct Process {
  /// kNoRank: not a rank (the supervisor, a forked child of a rank, a unit test)
  Rank rank = kNoRank;
  std::uint32_t ranks = 0;
  bool main_here = false;                        ///< this rank runs the program's main
  diagnostics::RankStatus* status = nullptr;     ///< its page for the supervisor; null without one
  diagnostics::ThreadReport* threads = nullptr;  ///< of all ranks; null without a supervisor
  const std::byte* space_base = nullptr;
  std::size_t space_bytes = 0;
};

void set_process(const Process&) noexcept;
[[nodiscard]] const Process& process() noexcept;

/// Sets what a rank that no launcher of ours started learns when it joins the others. As set_process().
void note_joined(Rank rank, std::uint32_t ranks, bool main_in_every_rank, const std::byte* space_base,
                 std::size_t space_bytes) noexcept;

/// In a child of fork(): the process is no rank, and does not report for its parent.
void forget_process() noexcept;
/// In a child of a rank's fork(): what was its parent's runtime. Where addresses lie may be asked of it, and
/// nothing else. Null elsewhere.
[[nodiscard]] Runtime* runtime_of_parent() noexcept;
void note_runtime_of_parent(Runtime&) noexcept;

[[nodiscard]] bool in_space(const void*) noexcept;

/// The phase of this rank, by which the supervisor judges its end.
void set_phase(diagnostics::Phase) noexcept;
[[nodiscard]] diagnostics::Phase phase() noexcept;

/// Reports text to the user: on the status page if a supervisor reads it, else on standard error.
/// Async-signal-safe.
void tell(const char* text, std::size_t bytes) noexcept;

/// This rank cannot continue: reports why, and ends the process; the launcher ends the job.
[[noreturn]] void give_up(const Error&) noexcept;

/// The program ends this process, on whatever thread, past exit(): the supervisor then ends the job with
/// its exit code. Async-signal-safe.
void note_end_of_process() noexcept;

/// On a rank that does not run main, which exit() leaves for rank 0 where it can (program_end.cpp): from now
/// on an exit() while the job runs ends the process at once, and with it the job, with exit()'s code.
void install_exit_check();

/// The caller is main.
void note_main_thread() noexcept;
/// Its OS thread lives until the end of the job: who joins it would wait for ever.
[[nodiscard]] bool is_main_thread(pthread_t) noexcept;
/// An address near the end of main's stack, from which it grows down; null where main does not run (yet).
[[nodiscard]] const std::byte* main_stack() noexcept;

}  // namespace kasane::runtime
