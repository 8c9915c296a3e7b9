// SPDX-License-Identifier: Apache-2.0
// The end of --stats: where the time of all workers went, as a fraction, and the places in the program that
// cost most (base/time_spent.h).
// Thread safety: PlaceTables: the thread that builds or ends the runtime. The rest is pure, but for
// name_places(), which reads files and starts addr2line(1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time_spent.h"
#include "comm/blocking.h"
#include "runtime/rank/job_counters.h"

namespace kasane::runtime {

/// The time of a rank's workers.
struct WorkersTime {
  std::uint64_t all_ns = 0;
  std::array<std::uint64_t, kAccounts> ns{};
};
[[nodiscard]] WorkersTime workers_time(const CounterSums&) noexcept;

struct TimedPlace {
  Account account;
  std::uintptr_t code = 0;  ///< a return address
  std::uint64_t ns = 0;
  std::string name;  ///< "function file.cpp:12"; without debug information less
};

class PlaceTables {
 public:
  [[nodiscard]] static std::size_t bytes(std::uint32_t workers) noexcept {
    return workers * sizeof(PlaceTable);
  }
  /// memory: zeros. Each worker has a table from now on.
  PlaceTables(std::byte* memory, Counters* counters, std::uint32_t workers) noexcept;

  struct All {
    std::vector<TimedPlace> places;  ///< of each account and code one, without a name
    std::uint64_t lost_ns = 0;
  };
  [[nodiscard]] All read(comm::Blocking&, std::uint32_t ranks) const;

 private:
  std::uint32_t workers_;
};

/// Gives names to those that cost most, and leaves out the rest.
void name_places(std::vector<TimedPlace>&);

/// Lines of percentages: of all workers, whose first column sums to 100.0, then of the rank with the largest
/// part; and below the most expensive places. Those of one name are added. Nothing where no worker has ended.
[[nodiscard]] std::string time_table(std::span<const WorkersTime> of_ranks, std::uint32_t workers,
                                     std::span<const TimedPlace>, std::uint64_t lost_ns);

}  // namespace kasane::runtime
