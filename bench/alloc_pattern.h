// SPDX-License-Identifier: Apache-2.0
// What `kasane bench alloc` does to any allocator. The pattern of ACP's data library: 100 allocations of
// random size 1 … 32768, then frees in random order; again and again. The mixed workload: several threads
// allocate, then each frees what another one allocated.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "median.h"

namespace kasane::bench {

inline constexpr std::size_t kPatternAllocations = 100;
inline constexpr std::size_t kPatternLargest = 32768;
inline constexpr std::size_t kMixedAllocations = 4 * kPatternAllocations;  ///< of a thread in a round

[[nodiscard]] inline std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

struct PatternTimes {
  double allocate_ns, free_ns;  ///< an operation, the median of all rounds
};

/// Each allocation is written to at its first byte, and must not be given out twice: throws what `wrong`
/// throws.
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
    if (sorted.front() == nullptr || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      wrong();
    std::shuffle(all.begin(), all.end(), random);
    const std::uint64_t again = now_ns();
    for (void* p : all) free(p);
    const std::uint64_t end = now_ns();
    allocating.push_back(static_cast<double>(middle - start) / kPatternAllocations);
    freeing.push_back(static_cast<double>(end - again) / kPatternAllocations);
  }
  return {median(std::move(allocating)), median(std::move(freeing))};
}

/// One thread's part of the mixed workload, `threads` of them at once. exchange(n pointers) returns when all
/// threads have called it, with those of the next thread in place of the own ones. Its time does not count:
/// what is measured is allocating and freeing while others do so, not how fast threads meet or hand pointers
/// on. allocate(bytes, a random number). Returns ns an operation, the median of the rounds.
template <class Allocate, class Free, class Exchange>
double run_mixed(unsigned rounds, std::size_t thread, const Allocate& allocate, const Free& free,
                 const Exchange& exchange) {
  std::mt19937_64 random(thread);
  std::vector<std::pair<std::size_t, std::uint64_t>> wanted(kMixedAllocations);
  std::vector<void*> all(kMixedAllocations);
  std::vector<double> times;
  for (unsigned round = 0; round < rounds; ++round) {
    for (auto& [bytes, where] : wanted) bytes = 1 + random() % kPatternLargest, where = random();
    exchange(all);
    const std::uint64_t start = now_ns();
    for (std::size_t i = 0; i < kMixedAllocations; ++i) all[i] = allocate(wanted[i].first, wanted[i].second);
    const std::uint64_t allocated = now_ns();
    exchange(all);
    const std::uint64_t again = now_ns();
    for (void* p : all) free(p);
    times.push_back(static_cast<double>(allocated - start + (now_ns() - again)) /
                    static_cast<double>(2 * kMixedAllocations));
  }
  return median(std::move(times));
}

/// Passes pointers on from thread to thread, through `slots` of kMixedAllocations for each. arrive(): a
/// barrier of them all.
template <class Arrive>
void hand_on(std::vector<void*>& slots, std::size_t thread, std::vector<void*>& mine, const Arrive& arrive) {
  const auto part = [&](std::size_t t) {
    return slots.begin() + static_cast<std::ptrdiff_t>(t * kMixedAllocations % slots.size());
  };
  std::copy(mine.begin(), mine.end(), part(thread));
  arrive();
  std::copy_n(part(thread + 1), kMixedAllocations, mine.begin());
  arrive();
}

}  // namespace kasane::bench
