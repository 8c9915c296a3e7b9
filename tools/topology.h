// SPDX-License-Identifier: Apache-2.0
// kasane info --topology: the machine's NUMA nodes, what this process may use of them, and where the threads
// and the memory of a job would go.
#pragma once

#include <cstdint>
#include <string>

#include "report.h"

namespace kasane::tools {

/// A job to plan for; ranks 0: none.
struct PlannedJob {
  std::uint32_t ranks = 0, workers = 0;
  std::string bind = "core";
  bool scatter = false;
};

/// Throws std::runtime_error where the machine cannot be read, or --bind names none of its cores.
void say_topology(Report&, const PlannedJob&);

}  // namespace kasane::tools
