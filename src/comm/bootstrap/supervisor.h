// SPDX-License-Identifier: Apache-2.0
// The original process of a job: it forks the ranks from its own image and stays behind to watch them. It never runs the program.
//
//   supervisor ──fork──▶ rank 0 … rank n-1       signals, stdin, (tagged) output on the way; who died, and why, on the way back
//
// **Ends.** The job's exit status is rank 0's. A rank that dies of a signal, exits before main on rank 0 has ended, or exits with another
// status than 0, ends the job: one message says which and why, the others get SIGTERM and, a second later, SIGKILL; the
// status is then 128 + signal, or the exit code, and never 0. Whatever the ranks started and left behind is killed (we are their subreaper). If
// the supervisor itself dies, the kernel kills the ranks (parent-death signal).
//
// **Signals.** INT, TERM, HUP, QUIT, USR1 and USR2 are meant for the program, so they go where its main is: to rank 0, or with main in every rank to all.
// A signal from the terminal has reached every process of the group already and is not sent again. Ranks that only serve let these signals pass.
// TSTP and CONT stop and continue all.
//
// Thread safety: one thread; the process must have no other (fork). Invariant: a rank's pid is valid until it is reaped here.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/bootstrap/job_status.h"
#include "comm/bootstrap/output_pump.h"

struct signalfd_siginfo;

namespace kasane::comm {

struct SupervisorOptions {
  bool tag_output = false;           ///< "[rank] " before each line
  bool main_in_every_rank = false;   ///< else ranks other than 0 only serve
};

class Supervisor {
 public:
  /// Descriptors and shared memory; forks nothing yet.
  static Result<Supervisor> create(std::uint32_t ranks, SupervisorOptions options);

  /// Forks the ranks. Returns in each of them with its number, set up to run the program, and in the supervisor with kNoRank.
  /// If a fork fails, the ranks forked so far are ended and an error returns.
  Result<Rank> fork_ranks();

  /// In the supervisor, after fork_ranks(): watches until nothing of the job is left. Returns the job's exit status.
  int run();

  [[nodiscard]] const JobStatus& status() const noexcept { return status_; }

 private:
  struct Child {
    pid_t pid = 0;
    bool alive = false;
  };

  Supervisor(JobStatus status, SupervisorOptions options) : status_(status), options_(options) {}

  void hold_signals();
  void become_rank(Rank rank, pid_t supervisor);
  void become_supervisor();

  void wait_for_events();
  void take_signals();
  void take_signal(const signalfd_siginfo& info);
  void stop_with_ranks();
  void send(Rank rank, int signal);
  void send_to_all(int signal);
  void send_to_main(int signal);

  void reap();
  void note_death(Rank rank, int wait_status);
  void note_exit(Rank rank, int code);
  void note_signal(Rank rank, int signal);
  void begin_end(int exit_status);
  void check_deadlines();
  [[nodiscard]] bool any_alive() const;

  JobStatus status_;
  SupervisorOptions options_;
  std::optional<OutputPump> pump_;
  std::vector<Child> children_;
  sigset_t old_mask_{};                     ///< the signal mask the program was started with
  bool child_signal_ignored_ = false;       ///< so was SIGCHLD
  int signals_ = -1;                        ///< signalfd
  std::vector<int> received_;               ///< signals that were sent to the job
  std::optional<int> exit_status_;          ///< known when rank 0 has ended, or the job is being ended
  bool ending_ = false;                     ///< the ranks that are left were told to end
  std::uint64_t deadline_ns_ = 0;           ///< 0: none; when passed, what is left is killed
  std::string messages_;                    ///< what to say about the deaths of this turn
  std::string refusal_;                     ///< why the last one did not start: others mostly do not for the same reason, which is said once
};

}  // namespace kasane::comm
