// SPDX-License-Identifier: Apache-2.0
// What calls of the program change for its process on all ranks: the actions of signals (signal_actions.h),
// libc's state (process_calls.h) and its random numbers (random_numbers.h); and its threads
// (bound_threads.h). A job of several ranks whose main is rank 0's has one a rank.
//
// Thread safety: begin() and end() by the thread that builds and ends the job, serve() by the service thread;
// the rest from any thread.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "comm/transport.h"
#include "runtime/process/bound_threads.h"
#include "runtime/process/process_calls.h"
#include "runtime/process/random_numbers.h"
#include "runtime/process/signal_actions.h"
#include "runtime/rank/thread_contexts.h"

namespace kasane::runtime {

class SharedProcess {
 public:
  /// spread: the program's OS threads go to all ranks.
  SharedProcess(comm::Transport&, bool spread);
  ~SharedProcess() { end(); }
  SharedProcess(const SharedProcess&) = delete;
  SharedProcess& operator=(const SharedProcess&) = delete;

  /// The process's, between begin() and end(). Null elsewhere, and in a child (vfork): what a call changes
  /// for its process is not to be changed on all ranks.
  [[nodiscard]] static SharedProcess* current() noexcept;
  /// cpus: where the program's OS threads may run.
  void begin(ThreadContexts&, const cpu_set_t& cpus) noexcept;
  void end() noexcept;

  /// This rank has taken the action; returns when all ranks have.
  void tell_signal_action(int signal, const struct sigaction&) noexcept;
  /// This rank has made the call; returns when all ranks have.
  ProcessCalls::Refusal tell_process_call(ProcessCall&) noexcept;
  /// From the state of all ranks (random_numbers.h).
  std::uint64_t draw(const RandomCall&) noexcept;

  /// True if there was something to do.
  bool serve() { return process_calls_.serve() | (threads_ && threads_->serve()); }
  /// Null: they stay on their creator's rank.
  [[nodiscard]] BoundThreads* threads() noexcept { return threads_ ? &*threads_ : nullptr; }
  /// The process's.
  [[nodiscard]] static BoundThreads* current_threads() noexcept {
    SharedProcess* const shared = current();
    return shared != nullptr ? shared->threads() : nullptr;
  }
  /// After end() of a job whose threads were on all ranks: waits until the process has ended, but on the
  /// thread that ends it. Else returns at once.
  static void await_exit() noexcept;

 private:
  SignalActions signal_actions_;
  ProcessCalls process_calls_;
  RandomNumbers random_numbers_;
  std::optional<BoundThreads> threads_;
  ThreadContexts* contexts_ = nullptr;
  pid_t pid_;
};

}  // namespace kasane::runtime
