// SPDX-License-Identifier: Apache-2.0
// The pattern of ACP's data library, for any allocator: 100 allocations of random size 1 … 32768, then frees in random order; again and again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "base/clock.h"

namespace kasane::bench {

inline constexpr std::size_t kPatternAllocations = 100;
inline constexpr std::size_t kPatternLargest = 32768;

inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct PatternTimes {
  double allocate_ns, free_ns;   ///< an operation, the median of all rounds
};

/// Each allocation is written to at its first byte, and must not be given out twice: throws what `wrong` throws.
template <class Allocate, class Free, class Wrong>
PatternTimes run_pattern(unsigned rounds, const Allocate& allocate, const Free& free, const Wrong& wrong) {
  std::mt19937_64 random(1);
  std::array<std::size_t, kPatternAllocations> sizes;
  std::array<void*, kPatternAllocations> all, sorted;
  std::vector<double> allocating, freeing;
  for (unsigned round = 0; round < rounds; ++round) {
    for (auto& size : sizes) size = 1 + random() % kPatternLargest;
    const std::uint64_t start = now_ns();
    for (std::size_t i = 0; i < kPatternAllocations; ++i) all[i] = allocate(sizes[i]);
    const std::uint64_t middle = now_ns();
    sorted = all;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.front() == nullptr || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) wrong();
    std::shuffle(all.begin(), all.end(), random);
    const std::uint64_t again = now_ns();
    for (void* p : all) free(p);
    const std::uint64_t end = now_ns();
    allocating.push_back(static_cast<double>(middle - start) / kPatternAllocations);
    freeing.push_back(static_cast<double>(end - again) / kPatternAllocations);
  }
  return {median_of(std::move(allocating)), median_of(std::move(freeing))};
}

}  // namespace kasane::bench
