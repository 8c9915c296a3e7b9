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

namespace kasane::diagnostics {

enum class Phase : std::uint32_t { starting, running, exited, ended, gave_up };

/// One rank's entry. All zero is the valid start state.
struct alignas(4096) RankStatus {
  std::atomic<Phase> phase;
  std::atomic<std::int32_t> signal;  ///< the fatal signal whose report follows; 0: none
  std::atomic<std::uint32_t> lost;   ///< of phase gave_up: 1 + the rank that it has lost, or 0
  std::atomic<std::uint32_t> report_bytes;
  /// with tagged output: bytes of the rank's standard output that the supervisor has taken
  std::atomic<std::uint64_t> output_taken;
  /// of the access that failed, outside of the space: perhaps another rank's private memory; 0: none
  std::atomic<std::uint64_t> fault_address;
  char report[16 * 1024 - 32];

  /// Adds text to the report, as much as fits. Async-signal-safe.
  void append(std::string_view text) noexcept;
  [[nodiscard]] std::string_view text() const noexcept;
};
static_assert(sizeof(RankStatus) == 16 * 1024);

/// A thread that has not ended, as its birth rank lists it.
struct ThreadEntry {
  std::uint32_t slot;
  std::uint32_t rank;  ///< where it runs, or ran last, which describes it
  std::uint64_t sp, stack_end;
};
/// What a rank says of its user-level threads. The supervisor asks in steps, of all ranks at a time, and each
/// rank's service thread answers (runtime/report/thread_report.h):
///
///   asked = 4n + 1   list: each rank lists the threads that were born on it
///   asked = 4n + 2   describe: each rank describes those that ran last on it, of all lists
///
/// Thread safety: a field is written by one side, before it stores asked, or done.
struct ThreadReport {
  static constexpr std::size_t kMostEntries = 512;

  std::atomic<std::uint32_t> asked, done;
  /// of the rank's clock: since when all of its workers have slept, and nothing was ready; 0: they do not
  std::atomic<std::uint64_t> quiet_since_ns;
  /// not 0: something else than a thread may act, in this rank
  std::atomic<std::uint32_t> doubt;
  std::uint32_t entries;
  std::uint32_t more;  ///< threads that are not listed
  std::uint32_t text_bytes;
  ThreadEntry entry[kMostEntries];
  char text[48 * 1024];
};
inline constexpr int kDeadlockStatus = 67;  ///< of a job whose threads are all blocked
/// What ThreadReport::doubt says.
inline constexpr std::uint32_t kDoubtOsThreads = 1, kDoubtHandlers = 2, kDoubtTimer = 4, kDoubtMain = 8;

/// The entries of all ranks, in shared memory without a name. Never unmapped: it lives as long as its
/// processes.
class JobStatus {
 public:
  static Result<JobStatus> create(std::uint32_t ranks);
  [[nodiscard]] RankStatus& of(Rank rank) const noexcept { return ranks_[raw(rank)]; }
  [[nodiscard]] ThreadReport& threads(Rank rank) const noexcept { return threads_[raw(rank)]; }
  /// The reports of all ranks, in order.
  [[nodiscard]] ThreadReport* all_threads() const noexcept { return threads_; }

 private:
  JobStatus(RankStatus* ranks, ThreadReport* threads) noexcept : ranks_(ranks), threads_(threads) {}
  RankStatus* ranks_;
  ThreadReport* threads_;
};

}  // namespace kasane::diagnostics
