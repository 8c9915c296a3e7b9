// SPDX-License-Identifier: Apache-2.0
// What this rank says of its user-level threads, and of the program's OS threads where these run on all
// ranks, when the supervisor asks (diagnostics/job_status.h): each thread, what it waits for, which thread
// holds that, and its frames; and since when nothing runs here, by which the supervisor notices that all
// threads of a job are blocked.
//
// It walks control blocks, stacks and records as they are. What threads do meanwhile may be shown half: in a
// job that is blocked they do nothing.
//
// Thread safety: of one OS thread, the service thread. No malloc, no stdio (rule 10).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/ids.h"
#include "diagnostics/job_status.h"
#include "runtime/process/bound_threads.h"
#include "runtime/rank/crash_text.h"
#include "runtime/report/crash_stack.h"
#include "ult/pool.h"

namespace kasane::runtime {

class SuspendedStack;

class ThreadReporter {
 public:
  /// all: of all ranks; null: there is no supervisor, and if this is the only rank it ends itself, with a
  /// report on standard error, after deadlock_ns (0: never). other_main: this rank runs user code beside its
  /// threads.
  ThreadReporter(ult::Pool& pool, diagnostics::ThreadReport* all, std::uint64_t deadlock_ns, bool other_main);
  ~ThreadReporter();
  ThreadReporter(const ThreadReporter&) = delete;
  ThreadReporter& operator=(const ThreadReporter&) = delete;
  /// All threads of the runtime have been started: others are the program's.
  void note_started() noexcept;
  /// Answers if the supervisor asks, and notes whether anything runs. Called at least every 0.1 s, and often,
  /// after a round of progress that found nothing. True: it is to be called again after another such round,
  /// and answers then: what had arrived when the supervisor asked has been served.
  bool serve() noexcept;

 private:
  void look(std::uint64_t now) noexcept;
  void end_alone(std::uint64_t now) noexcept;
  /// Why the job may go on though no thread can: kDoubt… bits.
  [[nodiscard]] std::uint32_t doubt() const noexcept;
  void list() noexcept;
  void describe_all() noexcept;
  /// The worker that runs the thread now.
  [[nodiscard]] std::optional<std::uint32_t> runs_on(SlotId) const noexcept;
  void describe(const diagnostics::ThreadEntry&, SuspendedStack&) noexcept;
  void describe(const BoundThreads::Seen&) noexcept;
  void add_frames(const Backtrace&) noexcept;
  void add_state(CrashText&, const diagnostics::ThreadEntry&, const SuspendedStack&,
                 bool copied) const noexcept;
  void add_wait(CrashText&, SlotId self, const ult::WaitsFor&) const noexcept;
  [[nodiscard]] bool append(const CrashText&) noexcept;

  ult::Pool& pool_;
  std::unique_ptr<diagnostics::ThreadReport> alone_;
  diagnostics::ThreadReport* all_;
  diagnostics::ThreadReport& own_;
  const std::uint64_t deadlock_ns_;
  const bool other_main_;
  std::atomic<std::uint32_t> os_threads_{0};  ///< at the start
  std::uint32_t noticed_ = 0;                 ///< what was asked when serve() was called last
  std::uint64_t looked_ns_ = 0, activity_ = 0, quiet_since_ns_ = 0;
  bool reported_ = false;
};

}  // namespace kasane::runtime
