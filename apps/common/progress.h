// SPDX-License-Identifier: Apache-2.0
// Shows on standard error that a long run goes on: a bar where it is a terminal, else a line every five
// seconds. It costs the run nothing: an OS thread of rank 0 reads the job's counters; the application's
// threads know nothing of it, or count their steps.
//
// Thread safety: one Progress at a time in a job, made and destroyed by main; add() is for any thread.
#pragma once

#include <cstdint>

namespace apps {

class Progress {
 public:
  /// `label` must outlive it. expected_threads: how many threads the run is going to end; 0: unknown, no bar.
  Progress(const char* label, std::uint64_t expected_threads, bool quiet);
  /// What add() counts, instead of threads.
  struct Steps {
    std::uint64_t expected;
  };
  Progress(const char* label, Steps, bool quiet);
  /// So many steps more are done, on any rank: one atomic addition between ranks.
  static void add(std::uint64_t steps) noexcept;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  void start(const char* label, std::uint64_t expected, bool counts_steps, bool quiet);
  bool running_ = false;
};

}  // namespace apps
