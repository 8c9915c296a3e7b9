// SPDX-License-Identifier: Apache-2.0
// Shows on standard error that a long run goes on: a bar where it is a terminal, else a line every five seconds. It costs the run nothing:
// an OS thread of rank 0 reads the job's counters, the application's threads know nothing of it.
//
// Thread safety: one Progress at a time in a process, made and destroyed by main. Invariant: its state is not in the space, since
// the OS thread that draws belongs to this rank alone.
#pragma once

#include <cstdint>

namespace apps {

class Progress {
 public:
  /// `label` must outlive it. expected_threads: how many threads the run is going to end; 0: unknown, no bar.
  Progress(const char* label, std::uint64_t expected_threads, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  bool running_ = false;
};

}  // namespace apps
