// SPDX-License-Identifier: Apache-2.0
// The machine: the cores that this process may use, their NUMA nodes, and how to keep a thread on them. Only
// this folder uses hwloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace kasane::topo {

/// The number of threads of this process that run at once: the cores of its affinity mask, or fewer where a
/// control group's quota allows less (rounded up); at least 1. Cheap: does not read the topology.
[[nodiscard]] std::uint32_t usable_cores();

/// A hardware thread that the operating system schedules on.
struct Core {
  std::uint32_t cpu;        ///< the operating system's number, as in /proc/cpuinfo
  std::uint32_t physical;   ///< cores with an equal number share one physical core
  std::uint32_t numa_node;  ///< the operating system's number
  std::uint32_t package = 0;
};

struct NumaNode {
  std::uint32_t number = 0;                   ///< the operating system's
  std::uint64_t bytes = 0;                    ///< of memory; 0: unknown
  std::vector<std::uint32_t> distances = {};  ///< to the nodes in their order; 10: local. Empty: unknown
  /// As the firmware says (HMAT), from the cores that are nearest; 0: unknown
  std::uint64_t mib_per_s = 0, latency_ns = 0;
};

/// The part of the machine that this process may use, as found once. Immutable, so any thread may read it.
class Machine {
 public:
  /// Takes some milliseconds. HWLOC_SYNTHETIC and HWLOC_XMLFILE describe another machine.
  static Result<Machine> discover();

  /// In an order good for workers: one hardware thread of each physical core first, NUMA node by NUMA node.
  [[nodiscard]] const std::vector<Core>& cores() const noexcept { return cores_; }
  /// By their number.
  [[nodiscard]] const std::vector<NumaNode>& numa_nodes() const noexcept { return numa_nodes_; }
  /// Another machine than this one was described: for plans, not to bind.
  [[nodiscard]] bool foreign() const noexcept { return foreign_; }

  /// "2 cores (1 physical), 1 NUMA node, L2 512K, L3 16M, 7.8 GiB, control group: 1.5 cores": for kasane
  /// info.
  [[nodiscard]] std::string describe() const;

 private:
  Machine() = default;
  std::vector<Core> cores_;
  std::vector<NumaNode> numa_nodes_;
  std::vector<std::uint64_t> cache_bytes_;  // of the largest cache at levels 1, 2, 3 …; 0: none seen
  bool foreign_ = false;
};

/// The NUMA node on which all threads of this process run, if they may run on no other. Cheap where the
/// machine has one node, else takes some milliseconds.
[[nodiscard]] std::optional<std::uint32_t> only_numa_node();
/// Keeps the calling thread on these cores, one at least, and checks that it runs on them: Errc::limit if the
/// process may not use all of them.
Result<> pin(std::span<const Core> cores);
inline Result<> pin(const Core& core) { return pin({&core, 1}); }
/// The operating system's numbers of the cores that the calling thread may run on.
[[nodiscard]] Result<std::vector<std::uint32_t>> affinity();

}  // namespace kasane::topo
