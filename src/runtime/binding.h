// SPDX-License-Identifier: Apache-2.0
// Which cores a rank's threads run on (--bind core). The n-th worker of a host runs on the n-th core that its
// process may use, one rank after the other; where workers are more than cores, the count begins again at the
// first core. The threads that serve a rank (pager, reader, service thread) run on the cores without a
// worker, if there are any.
// The kernel places unbound threads. It may queue many of them on one core, that of the disk's interrupts,
// while another core is idle (docs/performance.md).
//
// Thread safety: everything from any thread. A thread inherits the binding of its creator, so a thread that
// creates others is bound after it has created them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "topo/topo.h"

namespace kasane::runtime {

class Binding {
 public:
  /// Binds nothing.
  Binding() = default;
  /// For the rank with this index among the ranks of its host, each with so many workers. Reads the topology,
  /// so it is called on a thread of the operating system.
  static Result<Binding> to_cores(std::uint32_t index, std::uint32_t ranks_here, std::uint32_t workers);

  /// The calling thread is this rank's worker w. Warns where it cannot be bound; the thread runs all the
  /// same.
  void bind_worker(std::uint32_t w) const noexcept;
  /// The calling thread serves the rank.
  void bind_server() const noexcept;

 private:
  std::vector<topo::Core> cores_;   ///< of the workers, the first one first; empty: nothing is bound
  std::vector<topo::Core> others_;  ///< empty: all have workers
  std::uint32_t first_ = 0;
};

}  // namespace kasane::runtime
