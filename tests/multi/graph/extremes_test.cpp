// SPDX-License-Identifier: Apache-2.0
// Weights that are far apart, more paths than a double holds, and every call on graphs with nothing, or next
// to nothing, in them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <kasane/graph.hpp>
#include <limits>
#include <queue>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "multi/graph/graphs.h"

namespace {

using namespace kasane::test;

/// The text of the error EINVAL that f throws; empty: it throws none.
template <class F>
std::string thrown_by(const F& f) {
  try {
    f();
  } catch (const kasane::error& e) {
    EXPECT_EQ(e.code(), EINVAL) << e.what();
    return e.what();
  }
  return {};
}

// ---- weights ----

/// Distances by W's own sums, edge by edge, until nothing changes.
template <class W>
std::vector<W> plain_distances(const graph::edges<W>& list, vertex root) {
  using Entry = std::pair<W, vertex>;
  std::vector<std::vector<std::pair<vertex, W>>> out(list.vertices());
  for (const auto& e : list)
    out[e.from].emplace_back(e.to, e.weight), out[e.to].emplace_back(e.from, e.weight);
  std::vector<W> length(list.vertices(), graph::unreached<W>);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  length[root] = 0;
  for (next.push({0, root}); !next.empty();) {
    const auto [l, v] = next.top();
    next.pop();
    if (l != length[v]) continue;
    for (const auto& [to, w] : out[v])
      if (static_cast<W>(l + w) < length[to]) next.push({length[to] = static_cast<W>(l + w), to});
  }
  return length;
}

template <class W>
void expect_distances(const graph::edges<W>& list, vertex root, const std::vector<W>& deltas) {
  const auto g = graph::build(list);
  const std::vector<W> expected = plain_distances(list, root);
  for (const W delta : deltas) {
    SCOPED_TRACE("delta " + std::to_string(delta));
    const auto d = graph::sssp(g, root, delta);
    for (vertex v = 0; v < list.vertices(); ++v) ASSERT_EQ(d.length[v], expected[v]) << v;
    EXPECT_EQ(graph::check_sssp(g, d), "");
    EXPECT_EQ(graph::check_sssp(g, d, graph::parents(g, d)), "");
  }
}

/// A path, on which one edge is long, and random edges; with weights from `draw`.
template <class W, class Draw>
graph::edges<W> weighted(vertex vertices, std::uint64_t more, const Draw& draw) {
  graph::edges<W> list(vertices, vertices - 1 + more);
  std::mt19937 random(11);
  for (vertex v = 0; v + 1 < vertices; ++v) list[v] = {v, v + 1, draw(random)};
  for (std::uint64_t i = vertices - 1; i < list.size(); ++i)
    list[i] = {static_cast<vertex>(random() % vertices), static_cast<vertex>(random() % vertices),
               draw(random)};
  return list;
}

constexpr float kInfinite = std::numeric_limits<float>::infinity(), kLeast = 1e-45f,
                kLargest = std::numeric_limits<float>::max();

TEST(Weights, MayBeFarApart) {
  const auto one_of = [](std::vector<float> all) {
    return [all](std::mt19937& random) { return all[random() % all.size()]; };
  };
  const auto magnitude = [](std::mt19937& random) {  // from 1e-40 to 1e30
    return static_cast<float>(std::pow(10, static_cast<double>(random() % 70000) / 1000 - 40));
  };
  const std::vector<float> deltas{0, kLeast, 1e-10f, 1e30f, kInfinite};
  expect_distances<float>(weighted<float>(250, 500, magnitude), 3, deltas);
  expect_distances<float>(weighted<float>(250, 500, one_of({0, kLeast, 1e-38f, 1, 1e15f})), 3, deltas);
  expect_distances<float>(weighted<float>(150, 0, one_of({-0.f, 0})), 3, deltas);
  expect_distances<float>(weighted<float>(150, 100, one_of({kLeast})), 3, deltas);
  auto one_long = weighted<float>(150, 0, one_of({1e-10f}));
  for (const float length : {1e15f, kLargest}) {
    one_long[20].weight = length;
    expect_distances<float>(one_long, 0, deltas);
  }
  const auto whole = [](std::mt19937& random) {
    return static_cast<std::int32_t>(random() % 3 == 0 ? random() % 1000000000 : random() % 5);
  };
  expect_distances<std::int32_t>(weighted<std::int32_t>(20, 200, whole), 3,
                                 {0, 1, 1000, std::numeric_limits<std::int32_t>::max()});
}

TEST(Weights, ThatAreNoneAreRefusedWithTheirEdge) {
  for (const float bad : {-1.f, -kLeast, kInfinite, -kInfinite, std::nanf("")}) {
    auto list = weighted<float>(700, 0, [](auto&) { return 1.f; });
    list[600].weight = bad;
    EXPECT_NE(thrown_by([&] { (void)graph::build(list); }).find("edge 600, from 600 to 601, has the weight"),
              std::string::npos)
        << bad;
  }
}

TEST(Weights, WhoseSumsNoNumberHoldsAreRefused) {
  const auto list = weighted<float>(5, 0, [](auto&) { return kLargest; });
  const auto g = graph::build(list);
  EXPECT_NE(thrown_by([&] { (void)graph::sssp(g, 0); }).find("longer than"), std::string::npos);
  // A sum that is too large, of a way that is not the shortest.
  graph::edges<float> two(3, 3);
  two[0] = {0, 1, kLargest}, two[1] = {1, 2, kLargest}, two[2] = {0, 2, 1};
  const auto short_one = graph::build(two, {.symmetric = false});
  EXPECT_EQ(graph::sssp(short_one, 0).length[2], 1);
}

TEST(Weights, AreDividedByWidthsAlone) {
  const auto real = graph::build(weighted<float>(5, 0, [](auto&) { return 1.f; }));
  for (const float delta : {-1.f, -kInfinite, std::nanf("")})
    EXPECT_NE(thrown_by([&] { (void)graph::sssp(real, 0, delta); }).find("delta is"), std::string::npos);
  const auto whole = graph::build(weighted<std::int32_t>(5, 0, [](auto&) { return 1; }));
  EXPECT_NE(thrown_by([&] { (void)graph::sssp(whole, 0, -1); }).find("delta is -1"), std::string::npos);
}

// ---- betweenness ----

// 16^260 paths lead to the last layer, and one to the end of the path beside: no double holds the one number,
// and none both.
TEST(Betweenness, OfMorePathsThanADoubleHolds) {
  constexpr vertex kWide = 16, kLayers = 260, kBeside = 1 + kWide * kLayers;
  Plain p{kBeside + kLayers, {}};
  const auto at = [](vertex layer, vertex i) { return 1 + layer * kWide + i; };
  for (vertex i = 0; i < kWide; ++i) p.edges.push_back({0, at(0, i), 1});
  for (vertex layer = 1; layer < kLayers; ++layer)
    for (vertex i = 0; i < kWide; ++i)
      for (vertex j = 0; j < kWide; ++j) p.edges.push_back({at(layer - 1, i), at(layer, j), 1});
  for (vertex i = 0; i < kLayers; ++i) p.edges.push_back({i == 0 ? 0 : kBeside + i - 1, kBeside + i, 1});
  const auto g = graph::build(list_of<void>(p), {.symmetric = false});
  const std::vector<vertex> sources{0};
  auto scores = graph::betweenness(g, sources);
  for (vertex layer = 0; layer < kLayers; ++layer) {
    for (vertex i = 0; i < kWide; ++i) ASSERT_NEAR(scores[at(layer, i)], kLayers - 1 - layer, 1e-6) << layer;
    ASSERT_NEAR(scores[kBeside + layer], kLayers - 1 - layer, 1e-6) << layer;
  }
  EXPECT_EQ(graph::check_betweenness(g, sources, scores), "");
  scores[5] = std::nan("");
  EXPECT_NE(graph::check_betweenness(g, sources, scores), "");
}

// ---- nothing, and next to nothing ----

/// Every kernel, check and writer on a graph of n vertices that has no edges but loops.
template <class W>
void expect_every_call(const graph::csr<W>& g, std::uint64_t n, bool symmetric) {
  ASSERT_EQ(g.vertices(), n);
  EXPECT_EQ(g.size(), 0u);
  const auto c = graph::components(g);
  EXPECT_EQ(c.count, n);
  EXPECT_EQ(graph::check_components(g, c), "");
  const auto pages = graph::pagerank(g);
  EXPECT_EQ(graph::check_pagerank(g, pages), "");
  if (symmetric) {
    EXPECT_EQ(graph::triangles(g), 0u);
    EXPECT_EQ(graph::check_triangles(g, 0), "");
  }
  std::vector<vertex> sources;
  EXPECT_EQ(graph::check_betweenness(g, sources, graph::betweenness(g, sources)), "");
  EXPECT_TRUE(graph::kronecker_roots(g).empty());
  for (vertex v = 0; v < n; v += static_cast<vertex>(std::max<std::uint64_t>(1, n - 1))) {
    EXPECT_EQ(g.out_degree(v) + g.in_degree(v) + g.out_edges(v).size(), 0u);
    const auto t = graph::bfs(g, v);
    EXPECT_EQ(t.reached, 1u);
    EXPECT_EQ(graph::check_bfs(g, t), "");
    if constexpr (!std::is_void_v<W>) {
      const auto d = graph::sssp(g, v);
      EXPECT_EQ(graph::check_sssp(g, d), "");
      EXPECT_EQ(graph::check_sssp(g, d, graph::parents(g, d)), "");
    }
    sources.push_back(v);
  }
  const auto scores = graph::betweenness(g, sources);
  EXPECT_EQ(graph::check_betweenness(g, sources, scores), "");
  for (vertex v = 0; v < n; ++v) ASSERT_EQ(scores[v], 0);

  // There is no such vertex.
  const auto far = static_cast<vertex>(n);
  const auto expect_refused = [](const auto& call) {
    EXPECT_NE(thrown_by(call).find("there is no vertex"), std::string::npos);
  };
  expect_refused([&] { (void)g.out_degree(far); });
  expect_refused([&] { (void)g.in_degree(far); });
  expect_refused([&] { (void)g.out_edges(far); });
  expect_refused([&] { (void)graph::bfs(g, far); });
  expect_refused([&] { (void)graph::check_bfs(g, graph::tree{}); });
  expect_refused([&] { (void)graph::betweenness(g, {far}); });
  expect_refused([&] { (void)graph::check_betweenness(g, {far}, scores); });
  if constexpr (!std::is_void_v<W>) {
    expect_refused([&] { (void)graph::sssp(g, far); });
    expect_refused([&] { (void)graph::parents(g, graph::distances<W>{}); });
    expect_refused([&] { (void)graph::check_sssp(g, graph::distances<W>{}); });
  }
}

/// It is written and read in every format that has it.
template <class W>
void expect_files(const graph::csr<W>& g, std::uint64_t n, bool symmetric,
                  const std::filesystem::path& folder) {
  for (const char* suffix : {".el", ".wel", ".gr", ".mtx", ".tuples", ".sg", ".wsg", ".graph"}) {
    SCOPED_TRACE(suffix);
    const std::string name = suffix, path = (folder / ("little" + name)).string();
    if ((name == ".graph" && !symmetric) || (name == ".sg" && !std::is_void_v<W>) ||
        (name == ".wsg" && !std::is_same_v<W, std::int32_t>))
      continue;
    graph::write(g, path);
    const auto f = graph::read<W>(path);
    EXPECT_EQ(f.list.size(), 0u);
    const bool says = name != ".el" && name != ".wel" && name != ".tuples";  // how many vertices there are
    EXPECT_EQ(f.list.vertices(), says ? n : 0);
  }
}

template <class W>
void expect_little() {
  const auto folder =
      std::filesystem::temp_directory_path() / ("kasane-graph-little-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  for (const bool symmetric : {true, false}) {
    for (const auto& [name, p] : std::vector<std::pair<std::string, Plain>>{
             {"no vertex", {0, {}}},
             {"one vertex", {1, {}}},
             {"one vertex with a loop", {1, {{0, 0, 1}}}},
             {"no edge", {200, {}}},
             {"loops alone", {200, {{0, 0, 1}, {7, 7, 2}, {7, 7, 1}, {199, 199, 3}}}}}) {
      SCOPED_TRACE(name + (symmetric ? "" : ", directed"));
      auto g = graph::build(list_of<W>(p), {.symmetric = symmetric});
      expect_every_call(g, p.vertices, symmetric);
      expect_files(g, p.vertices, symmetric, folder);
      const auto moved = std::move(g);
      EXPECT_EQ(moved.vertices(), p.vertices);
      if (p.vertices == 200) {
        SCOPED_TRACE("moved from");
        expect_every_call(g, 0, true);  // NOLINT(bugprone-use-after-move): it has no vertex
      }
    }
  }
  const graph::csr<W> none;
  SCOPED_TRACE("never built");
  expect_every_call(none, 0, true);
  expect_files(none, 0, true, folder);
  graph::edges<W> list(5, 0);
  const auto other = std::move(list);
  EXPECT_EQ(other.vertices(), 5u);
  for (const auto* empty : {&list, static_cast<graph::edges<W>*>(nullptr)}) {
    const graph::edges<W> never;
    expect_every_call(graph::build(empty != nullptr ? *empty : never), 0, true);
  }
  std::filesystem::remove_all(folder);
}

TEST(Graphs, MayHaveLittleInThem) {
  expect_little<void>();
  expect_little<std::int32_t>();
  expect_little<float>();
}

TEST(Graphs, WithoutAResultAreNoRightOne) {
  const auto g = graph::build(list_of<float>(path(70)));
  EXPECT_NE(graph::check_components(g, {}), "");
  EXPECT_NE(graph::check_pagerank(g, {}), "");
  EXPECT_NE(graph::check_betweenness(g, {0}, {}), "");
  graph::tree t;
  graph::distances<float> d;
  t.root = d.root = 0;
  EXPECT_NE(graph::check_bfs(g, t), "");
  EXPECT_NE(graph::check_sssp(g, d), "");
  EXPECT_NE(thrown_by([&] { (void)graph::parents(g, d); }), "");
  EXPECT_NE(graph::check_sssp(g, graph::sssp(g, 0), {}), "");
}

}  // namespace
