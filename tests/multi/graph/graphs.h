// SPDX-License-Identifier: Apache-2.0
// Graphs of every shape for the tests, and serial oracles that use nothing but the list of edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <kasane/graph.hpp>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane::test {

namespace graph = kasane::graph;
using graph::vertex;

/// Weights as doubles; 1 where edges have none.
struct PlainEdge {
  vertex from, to;
  double weight;
};
struct Plain {
  std::uint64_t vertices = 0;
  std::vector<PlainEdge> edges;
};

template <class W>
graph::edges<W> list_of(const Plain& p) {
  graph::edges<W> list(p.vertices, p.edges.size());
  for (std::size_t i = 0; i < p.edges.size(); ++i) {
    list[i].from = p.edges[i].from, list[i].to = p.edges[i].to;
    if constexpr (!std::is_void_v<W>) list[i].weight = static_cast<W>(p.edges[i].weight);
  }
  return list;
}
template <class W>
Plain plain_of(const graph::edges<W>& list) {
  Plain p{list.vertices(), {}};
  for (const auto& e : list) {
    if constexpr (std::is_void_v<W>)
      p.edges.push_back({e.from, e.to, 1});
    else
      p.edges.push_back({e.from, e.to, static_cast<double>(e.weight)});
  }
  return p;
}

/// From, to, weight (1 where there are none).
using Ends = std::tuple<vertex, vertex, double>;
/// The edges that leave v, in order.
template <class W>
std::vector<Ends> sorted_edges(const graph::csr<W>& g, vertex v) {
  std::vector<Ends> all;
  for (const auto& e : g.out_edges(v)) {
    double w = 1;
    if constexpr (!std::is_void_v<W>) w = static_cast<double>(e.weight);
    all.emplace_back(e.from, e.to, w);
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Random edges, with loops and several between the same vertices; weights are small whole numbers.
inline Plain random_graph(std::uint64_t vertices, std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Plain p{vertices, {}};
  for (std::size_t i = 0; i < n; ++i)
    p.edges.push_back({static_cast<vertex>(random() % vertices), static_cast<vertex>(random() % vertices),
                       static_cast<double>(random() % 20)});
  return p;
}
inline Plain star(std::uint64_t vertices, vertex middle) {
  Plain p{vertices, {}};
  for (vertex v = 0; v < vertices; ++v)
    if (v != middle) p.edges.push_back({middle, v, static_cast<double>(v % 7)});
  return p;
}
inline Plain path(std::uint64_t vertices) {
  Plain p{vertices, {}};
  for (vertex v = 0; v + 1 < vertices; ++v) p.edges.push_back({v, v + 1, static_cast<double>(1 + v % 3)});
  return p;
}
/// Circles of 2, 3, 4, … vertices.
inline Plain circles(std::uint64_t vertices) {
  Plain p{vertices, {}};
  vertex first = 0;
  for (vertex n = 2; first + n <= vertices; first += n++)
    for (vertex i = 0; i < n; ++i) p.edges.push_back({first + i, first + (i + 1) % n, 2});
  return p;
}

/// All of them, with a name.
inline std::vector<std::pair<std::string, Plain>> shapes() {
  return {{"empty", {0, {}}},
          {"one vertex", {1, {}}},
          {"no edges", {100, {}}},
          {"a loop", {3, {{1, 1, 1}}}},
          {"one edge, thrice", {70, {{69, 3, 5}, {3, 69, 2}, {69, 3, 9}}}},
          {"star", star(3000, 1234)},
          {"path", path(150)},  // on networks each step of it waits for the other ranks
          {"grid", plain_of(graph::grid<std::int32_t>(20, 31))},
          {"circles", circles(2000)},
          {"sparse", random_graph(5000, 4000, 1)},
          {"random", random_graph(3000, 20000, 2)},
          {"dense", random_graph(150, 9000, 3)},
          {"kronecker", plain_of(graph::kronecker<std::int32_t>(11))}};
}

/// The edges that a graph keeps: from, to, and the least weight.
class Oracle {
 public:
  Oracle(const Plain& p, bool symmetric) : out_(p.vertices), in_(p.vertices) {
    std::map<std::pair<vertex, vertex>, double> kept;
    const auto keep = [&](vertex from, vertex to, double w) {
      const auto [at, fresh] = kept.try_emplace({from, to}, w);
      if (!fresh) at->second = std::min(at->second, w);
    };
    for (const PlainEdge& e : p.edges) {
      if (e.from == e.to) {
        ++loops_;
        continue;
      }
      ++tuples_;
      keep(e.from, e.to, e.weight);
      if (symmetric) keep(e.to, e.from, e.weight);
    }
    for (const auto& [ends, w] : kept) {
      out_[ends.first].push_back({ends.first, ends.second, w});
      in_[ends.second].push_back({ends.first, ends.second, w});
    }
    stored_ = kept.size();
    duplicates_ = symmetric ? tuples_ - stored_ / 2 : tuples_ - stored_;
  }
  [[nodiscard]] const std::vector<PlainEdge>& out(vertex v) const { return out_[v]; }
  [[nodiscard]] const std::vector<PlainEdge>& in(vertex v) const { return in_[v]; }
  [[nodiscard]] std::uint64_t vertices() const { return out_.size(); }
  [[nodiscard]] std::uint64_t stored() const { return stored_; }
  [[nodiscard]] std::uint64_t loops() const { return loops_; }
  [[nodiscard]] std::uint64_t duplicates() const { return duplicates_; }

  static constexpr std::uint32_t kFar = 0xffffffff;
  /// Edges on the shortest path from the root.
  [[nodiscard]] std::vector<std::uint32_t> levels(vertex root) const {
    std::vector<std::uint32_t> level(vertices(), kFar);
    std::queue<vertex> next;
    level[root] = 0;
    for (next.push(root); !next.empty(); next.pop())
      for (const PlainEdge& e : out_[next.front()])
        if (level[e.to] == kFar) level[e.to] = level[e.from] + 1, next.push(e.to);
    return level;
  }

 private:
  std::vector<std::vector<PlainEdge>> out_, in_;
  std::uint64_t stored_ = 0, loops_ = 0, tuples_ = 0, duplicates_ = 0;
};

/// Levels by parents; the root's is 0.
inline std::vector<std::uint32_t> levels_of(vertex root, const unique_array<vertex>& parent,
                                            std::uint64_t vertices) {
  std::vector<std::uint32_t> level(vertices, Oracle::kFar);
  for (vertex v = 0; v < vertices; ++v) {
    std::uint32_t steps = 0;
    vertex u = v;
    for (; u != graph::no_vertex && u != root && steps <= vertices; ++steps) u = parent[u];
    if (u == root) level[v] = steps;
  }
  return level;
}

}  // namespace kasane::test
