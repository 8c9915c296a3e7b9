// SPDX-License-Identifier: Apache-2.0
// The supervisor's side of reports on user-level threads (job_status.h, ThreadReport): asks all ranks, and
// notices that all threads of a job are blocked.
// Thread safety: one thread, the supervisor's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnostics/job_status.h"

namespace kasane::diagnostics {

class ThreadReports {
 public:
  /// blocked_ns: how long all threads are blocked before that is reported; 0: it is not.
  ThreadReports(const JobStatus& status, std::uint32_t ranks, std::uint64_t blocked_ns)
      : status_(status), ranks_(ranks), blocked_ns_(blocked_ns) {}

  /// How often look() is to be called; 0: not at all.
  [[nodiscard]] std::uint64_t look_every_ns() const noexcept { return blocked_ns_ == 0 ? 0 : kLookEveryNs; }
  /// Asks the ranks that run, and waits for their answers for at most a few seconds. A line for each rank,
  /// and those of its threads. Also says whether a rank doubts that the job cannot go on (kDoubt… bits).
  /// all: no rank that runs failed to answer.
  std::string ask(std::uint32_t& doubt, bool& all);
  /// Have all threads of all ranks been blocked for long enough, and has that not been reported? Then the
  /// report, else nothing.
  struct Blocked {
    std::string report;
    std::uint32_t doubt = 0;
  };
  Blocked look();
  /// The ranks were stopped until now: what they said before does not count.
  void were_stopped() { stopped_until_ns_ = now_ns(); }

 private:
  static constexpr std::uint64_t kLookEveryNs = 250'000'000, kAnswerNs = 3'000'000'000;

  [[nodiscard]] bool runs(std::uint32_t rank) const;
  /// The time since when the last of the ranks has been quiet; 0: one is not.
  [[nodiscard]] std::uint64_t quiet_since() const;
  void step(std::uint32_t which, std::vector<bool>& answers);

  JobStatus status_;
  std::uint32_t ranks_;
  std::uint64_t blocked_ns_;
  std::uint64_t reported_since_ns_ = 0;  ///< quiet_since() of the last report
  std::uint64_t stopped_until_ns_ = 0;
  std::uint32_t round_ = 0;
};

/// "has OS threads of its own, …": why the program may go on.
std::string doubt_text(std::uint32_t doubt);

}  // namespace kasane::diagnostics
