// SPDX-License-Identifier: Apache-2.0
// Components, PageRank, triangles, shortest paths and betweenness of graphs of every shape, against serial
// oracles; and checks that see wrong results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <kasane/graph.hpp>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "multi/graph/graphs.h"
#include "support/counts.h"

namespace {

using namespace kasane::test;

/// f(plain, oracle, symmetric) for every shape, both ways.
template <class F>
void each_shape(const F& f) {
  for (const auto& [name, p] : shapes()) {
    for (const bool symmetric : {true, false}) {
      SCOPED_TRACE(name + (symmetric ? "" : ", directed"));
      f(p, Oracle(p, symmetric), symmetric);
    }
  }
}

/// The least vertex of each vertex's component.
std::vector<vertex> components_of(const Plain& p) {
  std::vector<vertex> root(p.vertices);
  std::iota(root.begin(), root.end(), 0u);
  const std::function<vertex(vertex)> find = [&](vertex v) {
    while (root[v] != v) v = root[v] = root[root[v]];
    return v;
  };
  for (const PlainEdge& e : p.edges) {
    const vertex a = find(e.from), b = find(e.to);
    root[std::max(a, b)] = std::min(a, b);
  }
  for (vertex v = 0; v < p.vertices; ++v) root[v] = find(v);
  return root;
}

TEST(Components, AreThoseOfEveryShape) {
  each_shape([](const Plain& p, const Oracle&, bool symmetric) {
    const auto g = graph::build(list_of<void>(p), {.symmetric = symmetric});
    const auto c = graph::components(g);
    const auto expected = components_of(p);
    std::map<vertex, vertex> label_of;
    for (vertex v = 0; v < p.vertices; ++v) {
      const auto [at, fresh] = label_of.try_emplace(expected[v], c.label[v]);
      ASSERT_EQ(at->second, c.label[v]) << v;
    }
    std::set<vertex> labels;
    for (const auto& [component, label] : label_of) labels.insert(label);
    EXPECT_EQ(labels.size(), label_of.size());
    EXPECT_EQ(c.count, label_of.size());
    EXPECT_EQ(graph::check_components(g, c), "");
  });
}

std::vector<double> pages_of(const Oracle& o) {
  const double n = static_cast<double>(o.vertices());
  std::vector<double> score(o.vertices(), 1 / n), next(o.vertices());
  for (int i = 0; i < 300; ++i) {
    double dangling = 0;
    for (vertex v = 0; v < o.vertices(); ++v)
      if (o.out(v).empty()) dangling += score[v];
    std::fill(next.begin(), next.end(), 0.15 / n + 0.85 * dangling / n);
    for (vertex v = 0; v < o.vertices(); ++v)
      for (const PlainEdge& e : o.out(v))
        next[e.to] += 0.85 * score[v] / static_cast<double>(o.out(v).size());
    score.swap(next);
  }
  return score;
}

TEST(PageRank, IsThatOfEveryShape) {
  each_shape([](const Plain& p, const Oracle& oracle, bool symmetric) {
    const auto g = graph::build(list_of<void>(p), {.symmetric = symmetric});
    const graph::pagerank_options o{.damping = 0.85, .tolerance = 1e-7, .iterations = 300};
    const auto scores = graph::pagerank(g, o);
    const auto expected = pages_of(oracle);
    double off = 0;
    for (vertex v = 0; v < p.vertices; ++v) off += std::abs(scores.score[v] - expected[v]);
    EXPECT_LT(off, 2e-5);
    EXPECT_EQ(graph::check_pagerank(g, scores, o), "");
  });
}

std::uint64_t triangles_of(const Oracle& o) {
  std::uint64_t count = 0;
  std::vector<bool> marked(o.vertices());
  for (vertex u = 0; u < o.vertices(); ++u) {
    for (const PlainEdge& e : o.out(u)) marked[e.to] = true;
    for (const PlainEdge& e : o.out(u))
      if (e.to > u)
        for (const PlainEdge& f : o.out(e.to)) count += f.to > e.to && marked[f.to];
    for (const PlainEdge& e : o.out(u)) marked[e.to] = false;
  }
  return count;
}

TEST(Triangles, AreThoseOfEveryShape) {
  for (const auto& [name, p] : shapes()) {
    SCOPED_TRACE(name);
    const auto g = graph::build(list_of<void>(p));
    const std::uint64_t count = graph::triangles(g);
    EXPECT_EQ(count, triangles_of(Oracle(p, true)));
    EXPECT_EQ(graph::check_triangles(g, count), "");
  }
  const auto directed = graph::build(list_of<void>(path(5)), {.symmetric = false});
  try {
    (void)graph::triangles(directed);
    ADD_FAILURE() << "a directed graph";
  } catch (const kasane::error& e) {
    EXPECT_EQ(e.code(), EINVAL);
  }
}

std::vector<double> distances_of(const Oracle& o, vertex root) {
  using Entry = std::pair<double, vertex>;
  std::vector<double> length(o.vertices(), std::numeric_limits<double>::infinity());
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  length[root] = 0;
  next.push({0, root});
  while (!next.empty()) {
    const auto [l, v] = next.top();
    next.pop();
    if (l > length[v]) continue;
    for (const PlainEdge& e : o.out(v))
      if (l + e.weight < length[e.to]) length[e.to] = l + e.weight, next.push({length[e.to], e.to});
  }
  return length;
}

template <class W>
void expect_paths(const Plain& p, const Oracle& oracle, bool symmetric) {
  const auto g = graph::build(list_of<W>(p), {.symmetric = symmetric});
  std::mt19937 random(3);
  for (int i = 0; i < 3 && p.vertices != 0; ++i) {
    const auto root = static_cast<vertex>(i == 0 ? p.vertices - 1 : random() % p.vertices);
    const auto expected = distances_of(oracle, root);
    for (const int delta : {0, 1, 7, 100000}) {
      if (i != 0 && delta != (i == 1 ? 0 : 7)) continue;  // from one root with each
      const auto d = graph::sssp(g, root, static_cast<W>(delta));
      for (vertex v = 0; v < p.vertices; ++v)
        ASSERT_EQ(d.length[v] == graph::unreached<W> ? std::numeric_limits<double>::infinity()
                                                     : static_cast<double>(d.length[v]),
                  expected[v])
            << v << " from " << root;
      EXPECT_EQ(graph::check_sssp(g, d), "");
      if (i != 0 || delta != 0) continue;
      const auto parent = graph::parents(g, d);
      EXPECT_EQ(graph::check_sssp(g, d, parent), "");
      const auto levels = levels_of(root, parent, p.vertices);
      for (vertex v = 0; v < p.vertices; ++v) {
        ASSERT_EQ(levels[v] != Oracle::kFar, d.length[v] != graph::unreached<W>) << v;
        if (v == root || levels[v] == Oracle::kFar) continue;
        const auto& out = oracle.out(parent[v]);
        ASSERT_TRUE(std::any_of(
            out.begin(), out.end(),
            [&](const PlainEdge& e) { return e.to == v && expected[parent[v]] + e.weight == expected[v]; }))
            << v << " from " << parent[v];
      }
    }
  }
}

TEST(Paths, AreTheShortestOfEveryShape) {
  each_shape([](const Plain& p, const Oracle& oracle, bool symmetric) {
    expect_paths<std::int32_t>(p, oracle, symmetric);
    expect_paths<float>(p, oracle, symmetric);
  });
}

// All edges have the weight 0, so each neighbour makes the distance: a parent must not come from behind.
TEST(Paths, WithoutLengthHaveATree) {
  for (Plain p : {path(300), circles(500), random_graph(500, 2000, 9)}) {
    for (PlainEdge& e : p.edges) e.weight = 0;
    const auto g = graph::build(list_of<std::int32_t>(p));
    const auto d = graph::sssp(g, 7);
    EXPECT_EQ(graph::check_sssp(g, d, graph::parents(g, d)), "");
  }
  // Too small for a float beside the distance.
  graph::edges<float> list(4, 4);
  const float weights[] = {1, 1e-9f, 1e-9f, 1};
  for (vertex v = 0; v < 4; ++v) list[v] = {v, (v + 1) % 4, weights[v]};
  const auto g = graph::build(list);
  const auto d = graph::sssp(g, 0);
  EXPECT_EQ(d.length[2], 1);
  EXPECT_EQ(graph::check_sssp(g, d, graph::parents(g, d)), "");
  // Of distances that are none, some vertices have no parent.
  auto wrong = graph::sssp(g, 0);
  wrong.length[1] = wrong.length[2] = wrong.length[3] = .5f;
  const auto parent = graph::parents(g, wrong);
  EXPECT_NE(graph::check_sssp(g, wrong, parent), "");
  EXPECT_EQ(parent[2], graph::no_vertex);
}

TEST(Paths, ThatAreTooLongAreRefused) {
  graph::edges<std::int32_t> list(4, 3);
  for (vertex v = 0; v < 3; ++v) list[v] = {v, v + 1, 1'000'000'000};
  const auto g = graph::build(list);
  try {
    (void)graph::sssp(g, 0);
    ADD_FAILURE() << "3 000 000 000 in 31 bits";
  } catch (const kasane::error& e) {
    EXPECT_NE(std::string(e.what()).find("longer than"), std::string::npos);
  }
  EXPECT_EQ(graph::sssp(g, 1).length[3], 2'000'000'000);
}

TEST(Betweenness, IsThatOfEveryShape) {
  each_shape([](const Plain& p, const Oracle&, bool symmetric) {
    if (p.vertices == 0) return;
    const auto g = graph::build(list_of<void>(p), {.symmetric = symmetric});
    const std::vector<vertex> sources{0, static_cast<vertex>(p.vertices - 1),
                                      static_cast<vertex>(p.vertices / 2)};
    const auto scores = graph::betweenness(g, sources);
    EXPECT_EQ(graph::check_betweenness(g, sources, scores), "");
  });
}

TEST(Betweenness, OfAPathAndAStarIsKnown) {
  std::vector<vertex> all(30);
  std::iota(all.begin(), all.end(), 0u);
  const auto on_path = graph::betweenness(graph::build(list_of<void>(path(30))), all);
  for (vertex v = 0; v < 30; ++v) EXPECT_DOUBLE_EQ(on_path[v], 2.0 * v * (29 - v)) << v;
  const auto on_star = graph::betweenness(graph::build(list_of<void>(star(30, 4))), all);
  for (vertex v = 0; v < 30; ++v) EXPECT_DOUBLE_EQ(on_star[v], v == 4 ? 29.0 * 28 : 0) << v;
}

/// Of n objects at p, the pages that leave DRAM for evict().
template <class T>
std::uint64_t leaving(const T* p, std::size_t n) {
  kasane::release_all();
  const auto left = [] {
    const Counts all;
    return all["pages_evicted"] + all["pages_dropped"];
  };
  const std::uint64_t before = left();
  kasane::evict(p, n);
  return left() - before;
}

// With a budget that does not hold the graph: what kernels hold of it may leave when they have returned.
TEST(BeyondDram, PinsEndWithTheKernel) {
  if (std::getenv("KASANE_DRAM") == nullptr) GTEST_SKIP() << "for --dram";
  std::string wrong_labels, wrong_lengths;
  std::uint64_t of_labels = 0, of_lengths = 0, pages = 0, triangles = 0;
  kasane::run([&] {
    const auto g = graph::build(graph::kronecker<std::int32_t>(17));
    pages = g.vertices() * sizeof(vertex) / kasane::page_default;
    const auto c = graph::components(g);
    of_labels = leaving(c.label.get(), g.vertices());
    wrong_labels = graph::check_components(g, c);
    const auto d = graph::sssp(g, c.label[0]);
    of_lengths = leaving(d.length.get(), g.vertices());
    wrong_lengths = graph::check_sssp(g, d);
    triangles = graph::triangles(g);
  });
  EXPECT_EQ(wrong_labels, "");
  EXPECT_EQ(wrong_lengths, "");
  EXPECT_EQ(triangles, 36186063u);      // as in DRAM, all rows at once
  EXPECT_GE(of_labels, pages * 3 / 4);  // a page may be in use at that moment
  EXPECT_GE(of_lengths, pages * 3 / 4);
}

}  // namespace
