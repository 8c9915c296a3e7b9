// SPDX-License-Identifier: Apache-2.0
// How far the vertices of a tree are from its root.
//
// Thread safety: none; main uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <kasane/graph.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/report.h"

namespace apps::graph {

class Distances {
 public:
  Distances(const kasane::graph::tree& tree, std::uint64_t vertices);

  using NameOf = std::function<std::string(kasane::graph::vertex)>;
  /// Results: "distance_N", how many vertices are so far away; "not_reached"; "farthest", some by
  /// name, with their distance; "way", from the first of these to the root.
  void report(Report& to, const NameOf& name_of) const;
  /// For `kasane plot`: how many vertices there are at each distance. Throws std::runtime_error: the file
  /// cannot be written.
  void write_plot(const std::string& what, const std::string& file) const;

 private:
  const kasane::graph::tree& tree_;
  std::vector<std::uint64_t> counts_;                                      ///< by distance
  std::vector<std::pair<std::uint32_t, kasane::graph::vertex>> farthest_;  ///< a few, with their distance
  std::uint64_t unreached_ = 0;
};

}  // namespace apps::graph
