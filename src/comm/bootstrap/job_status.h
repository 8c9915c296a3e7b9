// SPDX-License-Identifier: Apache-2.0
// What each rank has told the supervisor of its job: how far it is, and, when it dies, why. It lies in memory that is shared by the
// fork, because a rank that dies of a signal can do little more than store words.
//
//   starting → running → ended          main returned (or the rank served until it did): its exit code is an orderly one
//                     ↘ leaving         somebody called exit() too early
//   any of them → gave_up               it cannot go on without another rank; the report says why
//   any of them, then a crash: signal and report are filled by the rank's fatal-signal handler
//
// Thread safety: a rank writes only its own entry, and there only the thread that ends it (crash.cpp elects one). The supervisor reads an
// entry after waitpid() returned its rank, so nothing changes any more; atomics serve the words that a handler may interrupt.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm {

enum class Phase : std::uint32_t { starting, running, leaving, ended, gave_up };

/// One rank's entry. All zero is the valid start state.
struct alignas(4096) RankStatus {
  std::atomic<Phase> phase;
  std::atomic<std::int32_t> exit_argument;      ///< in phase leaving: what exit() was called with
  std::atomic<std::int32_t> signal;             ///< the fatal signal whose report follows; 0: none
  std::atomic<std::uint32_t> report_bytes;
  char report[16 * 1024 - 16];

  /// Adds text to the report, as much as fits. Async-signal-safe.
  void append(std::string_view text) noexcept;
  [[nodiscard]] std::string_view text() const noexcept;
};
static_assert(sizeof(RankStatus) == 16 * 1024);

/// The entries of all ranks, in shared memory without a name. Unmapped by nobody: it lives as long as its processes.
class JobStatus {
 public:
  static Result<JobStatus> create(std::uint32_t ranks);
  [[nodiscard]] RankStatus& of(Rank rank) const noexcept { return ranks_[raw(rank)]; }

 private:
  explicit JobStatus(RankStatus* ranks) noexcept : ranks_(ranks) {}
  RankStatus* ranks_;
};

}  // namespace kasane::comm
