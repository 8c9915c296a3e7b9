// SPDX-License-Identifier: Apache-2.0
// Each rank's status for the supervisor: how far it is, and, when it dies, why. It lies in memory shared
// across the fork, because a rank that dies of a signal can do little more than store words.
//
//   starting → running → ended          main returned, or the rank served until it did: an orderly exit
//                     ↘ exited          the program ended this process: by _exit(), or by exit() where it
//                                       does not run main
//   any of them → gave_up               the rank cannot go on without another; the report says why
//   any of them, then a crash: signal and report are filled by the rank's fatal-signal handler
//
// Thread safety: a rank writes only its own entry, by the thread that ends the rank (crash.cpp elects one).
// The supervisor reads an entry after waitpid() returned its rank, when it no longer changes; words that a
// signal handler may interrupt are atomic. output_taken goes the other way, while the rank runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm {

enum class Phase : std::uint32_t { starting, running, exited, ended, gave_up };

/// One rank's entry. All zero is the valid start state.
struct alignas(4096) RankStatus {
  std::atomic<Phase> phase;
  std::atomic<std::int32_t> signal;  ///< the fatal signal whose report follows; 0: none
  std::atomic<std::uint32_t> report_bytes;
  /// with tagged output: bytes of the rank's standard output that the supervisor has taken
  std::atomic<std::uint64_t> output_taken;
  char report[16 * 1024 - 24];

  /// Adds text to the report, as much as fits. Async-signal-safe.
  void append(std::string_view text) noexcept;
  [[nodiscard]] std::string_view text() const noexcept;
};
static_assert(sizeof(RankStatus) == 16 * 1024);

/// The entries of all ranks, in shared memory without a name. Never unmapped: it lives as long as its
/// processes.
class JobStatus {
 public:
  static Result<JobStatus> create(std::uint32_t ranks);
  [[nodiscard]] RankStatus& of(Rank rank) const noexcept { return ranks_[raw(rank)]; }

 private:
  explicit JobStatus(RankStatus* ranks) noexcept : ranks_(ranks) {}
  RankStatus* ranks_;
};

}  // namespace kasane::comm
