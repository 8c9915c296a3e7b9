// SPDX-License-Identifier: Apache-2.0
// Keeps a rank's threads where its plan says (topo/bind_plan.h, --bind), and checks that they are there.
// The kernel places unbound threads. It may queue many of them on one core, that of the disk's interrupts,
// while another core is idle (docs/performance.md).
//
// Thread safety: everything from any thread. A thread inherits the binding of its creator, so a thread that
// creates others is bound after it has created them.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "topo/bind_plan.h"

namespace kasane::runtime {

class Binding {
 public:
  /// Binds nothing.
  Binding() = default;
  /// For the rank with this index among the ranks of its host, each with so many workers. Reads the topology,
  /// so it is called on a thread of the operating system.
  static Result<Binding> create(const topo::BindTo&, std::uint32_t index, std::uint32_t ranks_here,
                                std::uint32_t workers);

  /// The calling thread is this rank's worker w. Warns where it cannot be bound; the thread runs all the
  /// same.
  void bind_worker(std::uint32_t w) const noexcept;
  /// The calling thread serves the rank.
  void bind_server() const noexcept;
  /// Where the program's OS threads on this rank may run: on the cores of its workers and of the others.
  [[nodiscard]] cpu_set_t cpus_of_program() const noexcept;
  /// Where the rank's memory is preferred from.
  [[nodiscard]] std::optional<std::uint32_t> node() const noexcept { return plan_.node; }
  /// RankPlan::worker_nodes().
  [[nodiscard]] std::vector<std::uint32_t> worker_nodes() const { return plan_.worker_nodes(); }

 private:
  topo::RankPlan plan_;
};

/// Where the calling thread may run, as the kernel says: "core 3 (NUMA node 1)".
[[nodiscard]] std::string where_this_thread_runs();

}  // namespace kasane::runtime
