// SPDX-License-Identifier: Apache-2.0
// Which cores the threads of a host's ranks run on (`kasane run --bind`), and which NUMA node a rank's memory
// is preferred from. Pure: from the machine and the numbers of ranks and workers alone, so that `kasane info`
// shows what a job would get, also on a machine that is only described.
//
//   core      worker n of the host on the n-th core; more workers than cores begin again
//   list      likewise, of the cores that are named
//   numa      each rank at one node, on any core of it; a rank that has several nodes deals its workers to
//             them
//   package   likewise with packages
//
// Compact: neighbouring ranks (workers) share a node; scatter: they are dealt to the nodes in turn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "topo/topo.h"

namespace kasane::topo {

struct BindTo {
  enum class What : std::uint8_t { none, core, list, numa, package };
  What what = What::none;
  std::vector<std::uint32_t> cpus;  ///< of a list, in its order
  bool scatter = false;

  /// "none", "core", "numa", "package", or cores as "0-3,8".
  static Result<BindTo> parse(const std::string& text);
};

struct RankPlan {
  std::vector<std::vector<Core>> workers;  ///< the cores of each; empty: anywhere
  std::vector<Core> others;                ///< of the threads that serve the rank; empty: anywhere
  std::optional<std::uint32_t> node;       ///< where the rank's memory is preferred from

  static constexpr std::uint32_t kSeveralNodes = ~std::uint32_t{0};
  /// Of each worker the NUMA node on which it stays; kSeveralNodes: it may run on any of several. Empty: no
  /// worker is bound.
  [[nodiscard]] std::vector<std::uint32_t> worker_nodes() const;
};

/// For the rank with this index among the ranks of its host, each with so many workers. An error names a core
/// that this process may not use.
[[nodiscard]] Result<RankPlan> plan(const Machine&, const BindTo&, std::uint32_t index,
                                    std::uint32_t ranks_here, std::uint32_t workers);

/// "cores 0-3,8 (NUMA node 1)".
[[nodiscard]] std::string cores_text(const std::vector<Core>&);

}  // namespace kasane::topo
