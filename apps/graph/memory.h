// SPDX-License-Identifier: Apache-2.0
// Whether a generated graph fits into memory: the system would end a job that takes more than there is.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace apps::graph {

/// Empty: the list, the rows and what is needed to build them from it fit into this machine's memory, or the
/// job has a budget and so an SSD. Else what to say after the name of the graph.
[[nodiscard]] inline std::string beyond_memory(double vertices, double edges, bool weighted) {
  if (std::getenv("KASANE_DRAM") != nullptr) return {};
  // A little less than was measured on one rank.
  const double bytes = edges * (weighted ? 72 : 40) + vertices * 48;
  const double there =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes <= there) return {};
  constexpr double kGiB = 1u << 30;
  char text[200];
  std::snprintf(
      text, sizeof text,
      " needs %.0f bytes (%.1f GiB) for the edges and the rows, and this machine has %.1f GiB: give "
      "kasane run --dram and --spill",
      bytes, bytes / kGiB, there / kGiB);
  return text;
}

/// What is wrong with the options of a Kronecker graph; empty: nothing.
[[nodiscard]] inline std::string wrong_with_scale(std::uint64_t scale, std::uint64_t edge_factor,
                                                  bool weighted) {
  const double vertices = std::ldexp(1, static_cast<int>(scale));
  std::string wrong = beyond_memory(vertices, vertices * static_cast<double>(edge_factor), weighted);
  if (wrong.empty() && scale > 31)
    wrong = " is too large: vertices are numbers of 32 bits, so it is at most 31";
  return wrong.empty() ? wrong : "--scale " + std::to_string(scale) + wrong;
}

}  // namespace apps::graph
