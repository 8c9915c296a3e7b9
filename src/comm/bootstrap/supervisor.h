// SPDX-License-Identifier: Apache-2.0
// The original process of a job: it forks the ranks from its own image and then watches them. It never runs
// the program.
//
//   supervisor ──fork──▶ rank 0 … rank n-1      passes on signals, stdin, (tagged) output; collects deaths
//
// **Ends.** The job's exit status is rank 0's, or that of a program that ended itself on another rank (phase
// exited). A rank that dies of a signal, exits otherwise before main on rank 0 has ended, or exits with a
// status other than 0 ends the job: one message names the rank and the reason; the
// others get SIGTERM and, a second later, SIGKILL. The status is then 128 + signal, or the exit code, and
// never 0. Processes that the ranks started and left behind are killed (the supervisor is their subreaper).
// If the supervisor itself dies, the kernel kills the ranks (parent-death signal).
//
// **Signals.** INT, TERM, HUP, QUIT, USR1 and USR2 are for the program, so they go to the ranks that run its
// main: to rank 0, or to all. A signal from the terminal has reached every process of the group already and
// is not sent again. Ranks that only serve ignore these signals. QUIT also prints a report on the threads of
// all ranks, and ends no rank that has no handler of it. TSTP and CONT stop and continue all ranks.
//
// **Deadlocks.** When all threads of all ranks have been blocked for long (deadlock_ns), the same report is
// printed, and the job ends with kDeadlockStatus, unless something else than a thread may act
// (thread_reports.h).
//
// Thread safety: one thread; the process must have no other (fork).
// Invariant: a rank's pid is valid until it is reaped here.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/bootstrap/output_pump.h"
#include "diagnostics/job_status.h"
#include "diagnostics/thread_reports.h"

struct signalfd_siginfo;

namespace kasane::comm {

struct SupervisorOptions {
  bool tag_output = false;          ///< "[rank] " before each line
  bool main_in_every_rank = false;  ///< else ranks other than 0 only serve
  std::uint64_t deadlock_ns = 0;    ///< 0: a job whose threads are all blocked waits for ever
};

class Supervisor {
 public:
  /// Descriptors and shared memory; forks nothing yet.
  static Result<Supervisor> create(std::uint32_t ranks, SupervisorOptions options);

  /// Forks the ranks. Returns in each rank with its number, set up to run the program, and in the supervisor
  /// with kNoRank. If a fork fails, ends the ranks forked so far and returns an error.
  Result<Rank> fork_ranks();

  /// In the supervisor, after fork_ranks(): watches until no process of the job is left. Returns the job's
  /// exit status.
  int run();

  [[nodiscard]] const diagnostics::JobStatus& status() const noexcept { return status_; }

 private:
  struct Child {
    pid_t pid = 0;
    bool alive = false;
  };

  Supervisor(diagnostics::JobStatus status, std::uint32_t ranks, SupervisorOptions options)
      : status_(status), options_(options), threads_(status, ranks, options.deadlock_ns) {}

  void block_signals();
  void become_rank(Rank rank, pid_t supervisor);
  void become_supervisor();

  void wait_for_events();
  void take_signals();
  void take_signal(const signalfd_siginfo& info);
  void stop_with_ranks();
  void send(Rank rank, int signal);
  void send_to_all(int signal);
  void send_to_main(int signal);

  void report_threads();
  void check_blocked();

  void reap();
  [[nodiscard]] bool gave_up(Rank rank) const;
  [[nodiscard]] Rank lost_by(Rank rank) const;
  bool waits_for_lost();
  void note_death(Rank rank, int wait_status);
  void note_exit(Rank rank, int code);
  void note_signal(Rank rank, int signal);
  [[nodiscard]] std::string explain_address(Rank rank) const;
  void begin_shutdown(int exit_status);
  void check_deadlines();
  [[nodiscard]] bool any_alive() const;

  diagnostics::JobStatus status_;
  SupervisorOptions options_;
  diagnostics::ThreadReports threads_;
  std::uint64_t look_at_ns_ = 1;  ///< when the next look at whether all threads are blocked is due
  std::optional<OutputPump> pump_;
  std::vector<Child> children_;
  sigset_t old_mask_{};                     ///< the signal mask with which the program was started
  bool child_signal_ignored_ = false;       ///< the program was started with SIGCHLD ignored
  int signals_ = -1;                        ///< signalfd
  std::vector<int> received_;               ///< signals that were sent to the job
  std::optional<int> exit_status_;          ///< known once rank 0 has ended, or the job is being ended
  bool ending_ = false;                     ///< the remaining ranks were told to end
  std::uint64_t deadline_ns_ = 0;           ///< 0: none; when it has passed, the remaining ranks are killed
  std::vector<std::pair<Rank, int>> dead_;  ///< reaped, with what waitpid() said, and not yet judged
  std::uint64_t wait_until_ns_ = 0;  ///< 0, or how long at most a rank that the dead have lost may take
  std::string messages_;             ///< messages about the deaths of this pass
  /// why the last rank did not start; the same reason of other ranks is not repeated
  std::string refusal_;
};

}  // namespace kasane::comm
