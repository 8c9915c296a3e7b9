// SPDX-License-Identifier: Apache-2.0
// The counters of a job: the sums over each rank's threads, read while the job runs, and their texts
// (--stats).
// Thread safety: JobCounters: any thread, with an io of its own. The rest is pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/counters.h"
#include "base/text_table.h"
#include "comm/blocking.h"
#include "comm/transport.h"

namespace kasane::runtime {

enum CounterRow : std::size_t {
#define X(name, help) row_##name,
  KASANE_COUNTERS(X)
#undef X
      kCounterRows
};

inline constexpr std::array<std::string_view, kCounterRows> kCounterNames{
#define X(name, help) #name,
    KASANE_COUNTERS(X)
#undef X
};

/// In the order of KASANE_COUNTERS.
using CounterSums = std::array<std::uint64_t, kCounterRows>;

class JobCounters {
 public:
  /// threads: of each rank, whose counters lie in its region gas::kStatistics.
  JobCounters(comm::Transport&, std::size_t threads) noexcept;

  [[nodiscard]] static constexpr std::size_t bytes(std::size_t threads) noexcept {
    return threads * sizeof(Counters);
  }
  /// This rank's; they live as long as the process.
  [[nodiscard]] Counters* own() const noexcept { return own_; }
  /// Each counter is a word with one writer, so it is read whole; together they are a snapshot only when no
  /// thread runs.
  [[nodiscard]] CounterSums of(comm::Blocking&, Rank) const;
  [[nodiscard]] CounterSums of_own() const noexcept { return sum(own_); }
  /// Of the workers alone, and of threads that serve faults for others: what is the workers' time.
  [[nodiscard]] CounterSums of_workers(comm::Blocking&, Rank, std::uint32_t workers) const;
  [[nodiscard]] CounterSums total(comm::Blocking&) const;

 private:
  [[nodiscard]] std::unique_ptr<Counters[]> copy_of(comm::Blocking&, Rank) const;
  [[nodiscard]] CounterSums sum(const Counters*) const noexcept;

  comm::Transport& transport_;  ///< of() and total(): only while the network is there
  std::size_t threads_;
  Counters* own_;
};

/// "name value … help\n", a column a rank; nothing if all are 0. A name that begins with ns_ is printed with
/// time_, since the values have units of their own.
[[nodiscard]] std::string counter_row(std::string_view name, std::span<const std::uint64_t> of_ranks,
                                      Magnitude, std::string_view help);
/// One line for each counter that is not 0, a column a rank; and the rates to and from the spill files.
[[nodiscard]] std::string counter_table(std::span<const CounterSums> of_ranks, double seconds);

/// "kasane: 12.0 s; a second: 1.20 M threads, 35 thefts between ranks, 120 MiB fetched, 232 MiB spilled\n":
/// what the job has done since it was `before`, `interval` seconds ago.
[[nodiscard]] std::string progress_line(double seconds, double interval, const CounterSums& before,
                                        const CounterSums& now);

}  // namespace kasane::runtime
