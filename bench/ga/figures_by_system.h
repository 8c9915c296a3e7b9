// SPDX-License-Identifier: Apache-2.0
// What kasane bench ga has measured: of each point, system and MPI the repetitions.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "median.h"

namespace kasane::bench::ga {

/// A figure of the player: its name there, what it is, and of how many bytes.
struct Point {
  std::string name, kind;
  std::uint64_t bytes;
  std::string patch = {};
};

struct Key {
  std::string point, system, mpi;
  auto operator<=>(const Key&) const = default;
};
using Figures = std::map<Key, std::vector<double>>;

/// The median of the ratios of each repetition.
inline double ratio(const std::vector<double>& one, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) ratios.push_back(one[i] / other[i]);
  return median(ratios);
}

/// Which system's rate is compared with which other's.
inline constexpr std::pair<const char*, const char*> kCompared[] = {
    {"kasane-in-core", "armci-mpi"}, {"kasane", "kasane-in-core"}, {"kasane", "swap"}};

inline const TextTable kWorkTable({-11, 6, -8, 8, 9, 9, 10, 9, 11, 11, 8});
inline const std::vector<std::string> kWorkHead{"GFlop/s",   "N",        "MPI",       "of DRAM",
                                                "kasane",    "in core",  "armci-mpi", "swap",
                                                "core/peer", "/in core", "/swap"};

}  // namespace kasane::bench::ga
