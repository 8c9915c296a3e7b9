// SPDX-License-Identifier: Apache-2.0
// NUMA nodes: which ones there are, where memory lies, and moving it. Memory of a node is allocated by
// placements: placement::numa(node), numa_interleave(), numa_weighted(), numa_blocks(), each also .strict().
// Guide: docs/guide/numa.md.
//
// Thread safety: every function from any thread. Errors: kasane::error, with what to do.
#pragma once

#include <kasane/numa.h>

#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <vector>

namespace kasane::numa {

/// The numbers of the nodes with memory that this process may use, ascending. One at least.
[[nodiscard]] inline std::vector<std::uint32_t> nodes() {
  std::vector<std::uint32_t> numbers(kasane_numa_nodes(nullptr, 0));
  kasane_numa_nodes(numbers.data(), static_cast<std::uint32_t>(numbers.size()));
  return numbers;
}
/// The node of the core on which the caller runs at the moment.
[[nodiscard]] inline std::uint32_t here() noexcept { return kasane_numa_here(); }
/// As the firmware says: 10 is local, 20 takes twice as long. 0: unknown.
[[nodiscard]] inline std::uint32_t distance(std::uint32_t from, std::uint32_t to) noexcept {
  return kasane_numa_distance(from, to);
}

/// Numbers of OS pages, 4096 bytes each.
struct pages {
  std::vector<std::uint64_t> on;  ///< by the node's number; as long as the highest node needs
  std::uint64_t absent = 0;       ///< not in DRAM at this rank
  std::uint64_t misplaced = 0;    ///< on other nodes than their policy wants
};
/// Where [p, p + bytes) lies at this rank, asked of the kernel: for the owner its pages, for other ranks
/// their copies. error EINVAL: not allocated global memory.
[[nodiscard]] inline pages where(const void* p, std::size_t bytes) {
  pages all;
  const std::vector<std::uint32_t> numbers = nodes();
  all.on.resize(numbers.back() + 1);
  detail::check(kasane_numa_where(p, bytes, all.on.data(), static_cast<std::uint32_t>(all.on.size()),
                                  &all.absent, &all.misplaced));
  return all;
}
/// Gives the whole pages of 64 KiB in [p, p + bytes), which this rank owns, the policy of a placement:
/// numa(node), numa_interleave(), numa_weighted(), or local for none. Pages that are present move. Those
/// stay, and are counted as misplaced, that other ranks or devices use all the time, or for which the nodes
/// have no room. The policy ends when the memory is freed. Contents do not change, and other threads may use
/// them meanwhile. No fence.
/// error EINVAL: another rank owns a page; no such node; no whole page. out_of_memory: strict, and pages lie
/// elsewhere. Others: the kernel refuses, with the reason.
inline void bind(void* p, std::size_t bytes, placement where) {
  detail::check(kasane_numa_bind(p, bytes, detail::kind_of(where), where.argument));
}

}  // namespace kasane::numa
