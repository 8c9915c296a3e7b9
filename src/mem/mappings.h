// SPDX-License-Identifier: Apache-2.0
// How many mappings (VMAs) this process has, and how many more an engine may make. The kernel allows
// vm.max_map_count of them; beyond that every change of rights that would split one fails.
//
// Neighbours of equal rights merge without notice, so only /proc/self/maps has the number. An upper bound is
// cheap: a run whose rights change adds at most two boundaries. `credit` starts with the room left at the
// last exact count, and counts these down; the file is read only when the credit is used up.
//
// Thread safety: any thread, and fault handlers.
// Invariant: between two exact counts at most (runs spent × 2) mappings were added here. The next exact count
// is due when those could have passed the limit, or, once it is passed, after a further eighth of the limit.
#pragma once

#include <atomic>
#include <cstdint>

namespace kasane::mem {

class MappingBudget {
 public:
  /// limit: from this number of mappings on the process is crowded; 0: half of vm.max_map_count. Counts the
  /// mappings.
  explicit MappingBudget(std::uint64_t limit = 0);

  /// The rights of one more run are about to change.
  void spend() noexcept;
  /// The kernel refused a mapping: the bound does not include mappings made elsewhere. The next crowded()
  /// counts.
  void refused() noexcept;
  /// True: no more mappings should be made. Counts where the credit is used up: about a µs a mapping.
  [[nodiscard]] bool crowded() const noexcept;

 private:
  void recount() const noexcept;

  const std::uint64_t limit_;
  mutable std::atomic<std::int64_t> credit_{0};  // mappings that may be added before the next exact count
  mutable std::atomic<bool> crowded_{false};
  mutable std::atomic<bool> counting_{false};
};

/// The mappings of this process now, by /proc/self/maps; ~0 where that cannot be read. Async-signal-safe;
/// takes about a µs a mapping.
[[nodiscard]] std::uint64_t count_mappings() noexcept;

}  // namespace kasane::mem
