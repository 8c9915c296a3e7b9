// SPDX-License-Identifier: Apache-2.0
// Whether a generated graph fits into memory: the system would end a job that takes more than there is.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace apps {

/// What a Kronecker graph needs at least, both ways: the list and the rows, and what each vertex has.
[[nodiscard]] inline double kronecker_bytes(std::uint64_t scale, std::uint64_t edge_factor,
                                            std::size_t weight_bytes) {
  const double edge = 8.0 + static_cast<double>(weight_bytes), neighbours = 2 * (edge - 4), vertex = 32;
  return std::ldexp(static_cast<double>(edge_factor) * (edge + neighbours) + vertex, static_cast<int>(scale));
}

/// Empty: so many bytes fit into this machine's memory, or the job has a budget and so an SSD. Else what to
/// say after the name of what needs them.
[[nodiscard]] inline std::string beyond_memory(double bytes) {
  if (std::getenv("KASANE_DRAM") != nullptr) return {};
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

}  // namespace apps
