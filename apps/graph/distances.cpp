// SPDX-License-Identifier: Apache-2.0
#include "graph/distances.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/plot_rows.h"

namespace apps::graph {
namespace {

using kasane::graph::no_vertex, kasane::graph::vertex;

constexpr std::size_t kShown = 12;  ///< of the farthest

}  // namespace

Distances::Distances(const kasane::graph::tree& tree, std::uint64_t vertices) : tree_(tree) {
  constexpr auto unknown = static_cast<std::uint32_t>(-1);
  std::vector<std::uint32_t> distance(vertices, unknown);
  distance[tree.root] = 0;
  counts_.assign(tree.depth + 1, 0);
  std::vector<vertex> way;
  for (std::uint64_t v = 0; v < vertices; ++v) {
    if (tree.parent[v] == no_vertex) {
      ++unreached_;
      continue;
    }
    for (auto u = static_cast<vertex>(v); distance[u] == unknown; u = tree.parent[u]) way.push_back(u);
    for (; !way.empty(); way.pop_back()) distance[way.back()] = distance[tree.parent[way.back()]] + 1;
    ++counts_.at(distance[v]);
    farthest_.emplace_back(distance[v], static_cast<vertex>(v));
  }
  const auto shown = farthest_.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, farthest_.size()));
  std::partial_sort(farthest_.begin(), shown, farthest_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  farthest_.erase(shown, farthest_.end());
}

void Distances::report(Report& to, const NameOf& name_of) const {
  for (std::size_t d = 0; d < counts_.size(); ++d) to.result("distance_" + std::to_string(d), counts_[d]);
  to.result("not_reached", unreached_);
  std::string names, way;
  for (const auto& [distance, v] : farthest_)
    names += (names.empty() ? "" : ", ") + name_of(v) + " (" + std::to_string(distance) + ")";
  for (vertex v = farthest_.front().second;; v = tree_.parent[v]) {
    way += name_of(v);
    if (v == tree_.root) break;
    way += ", ";
  }
  to.result("farthest", names);
  to.result("way", way);
}

void Distances::write_plot(const std::string& what, const std::string& file) const {
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t d = 0; d < counts_.size(); ++d)
    rows.push_back({{"suite", "graph"},
                    {"case", what},
                    {"system", "kasane"},
                    {"distance", d},
                    {"value", counts_[d]},
                    {"unit", "vertices"},
                    {"repetitions", 1}});
  write_plot_rows(rows, file);
}

}  // namespace apps::graph
