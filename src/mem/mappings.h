// SPDX-License-Identifier: Apache-2.0
// How many mappings (VMAs) this process has, and how many more an engine may make: the kernel allows vm.max_map_count of them, and beyond that every
// change of rights that would split one fails.
//
// Neighbours of equal rights merge unseen, so only /proc/self/maps knows the number. What is cheap is an upper bound: a run whose rights change adds two
// boundaries at most. `credit` counts those down from the room that was left at the last exact count; only when it is used up the file is read.
//
// Thread safety: any thread, and fault handlers.
// Invariant: between two exact counts the process got at most (runs spent × 2) new mappings from here; the next exact count is due when that could have
// carried it over the limit, or an eighth of the limit further once it is over.
#pragma once

#include <atomic>
#include <cstdint>

namespace kasane::mem {

class MappingBudget {
 public:
  /// limit: how many mappings count as crowded; 0: half of vm.max_map_count. Counts.
  explicit MappingBudget(std::uint64_t limit = 0);

  /// The rights of one more run are about to change.
  void spend() noexcept;
  /// The kernel refused all the same: what the bound missed are mappings that others made. The next crowded() counts.
  void refused() noexcept;
  /// So many mappings exist that no more should be made. Counts where the credit is used up: about a µs a mapping.
  [[nodiscard]] bool crowded() const noexcept;

 private:
  void recount() const noexcept;

  const std::uint64_t limit_;
  mutable std::atomic<std::int64_t> credit_{0};   // mappings that may still come before the next exact count
  mutable std::atomic<bool> crowded_{false};
  mutable std::atomic<bool> counting_{false};
};

/// The mappings of this process right now, by reading /proc/self/maps; ~0 where that cannot be read. Async-signal-safe; takes
/// about a µs a mapping.
[[nodiscard]] std::uint64_t count_mappings() noexcept;

}  // namespace kasane::mem
