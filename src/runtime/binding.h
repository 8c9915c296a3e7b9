// SPDX-License-Identifier: Apache-2.0
// Which cores a rank's threads run on (--bind core): the n-th worker of a host on the n-th core that its process may use, one rank after the other, from the first again where workers are more;
// the threads that serve a rank, its pager, its reader and its service thread, on those cores that no worker has, where there are any.
// Unbound threads are placed by the kernel, which may queue many of them on one core while another is idle: that of the disk's interrupts (docs/performance.md).
//
// Thread safety: everything from any thread. A thread inherits the binding of the one that makes it, so what others are to be free of is bound last.
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
  /// Of the rank that is the `index`-th of those of its host, each of so many workers. Looks at the topology, so on a thread of the operating system.
  static Result<Binding> to_cores(std::uint32_t index, std::uint32_t ranks_here, std::uint32_t workers);

  /// The calling thread is this rank's worker w. Warns where it cannot be bound: it runs all the same.
  void bind_worker(std::uint32_t w) const noexcept;
  /// The calling thread serves the rank.
  void bind_server() const noexcept;

 private:
  std::vector<topo::Core> cores_;     ///< of the workers, the first one first; empty: nothing is bound
  std::vector<topo::Core> others_;    ///< empty: all have workers
  std::uint32_t first_ = 0;
};

}  // namespace kasane::runtime
