// SPDX-License-Identifier: Apache-2.0
// Traces of page numbers for the comparison of eviction policies: synthetic ones, and those of algorithms
// that run on arrays which record their accesses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kasane::bench {

struct PageTrace {
  std::string name;
  std::vector<std::uint32_t> pages;  ///< in the order of accesses; small numbers
};

/// For a memory of so many pages; data are about four times as much. The algorithms verify their results
/// (std::runtime_error).
[[nodiscard]] std::vector<PageTrace> page_traces(std::uint32_t memory_pages, bool quick);

/// Hits of the best possible policy, which knows the future: L. A. Belady, "A study of replacement algorithms
/// for a virtual-storage computer".
[[nodiscard]] std::uint64_t best_hits(const PageTrace& trace, std::uint32_t memory_pages);

struct Replay {
  std::uint64_t hits = 0;
  std::uint64_t soft_faults = 0;  ///< first touches after a page was armed
};

/// Replays the trace with the policy of that name (eviction_policies.h).
[[nodiscard]] Replay replay(const PageTrace& trace, std::uint32_t memory_pages, const std::string& policy);

}  // namespace kasane::bench
