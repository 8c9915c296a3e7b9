// SPDX-License-Identifier: Apache-2.0
// Edge lists, their generators, and what build makes of them, against oracles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <kasane/graph.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "multi/graph/graphs.h"

namespace {

using namespace kasane::test;

template <class W>
void expect_built(const Plain& p, bool symmetric) {
  const auto list = list_of<W>(p);
  const auto g = graph::build(list, {.symmetric = symmetric});
  const Oracle oracle(std::is_void_v<W> ? plain_of(list) : p, symmetric);
  EXPECT_EQ(g.vertices(), p.vertices);
  EXPECT_EQ(g.size(), oracle.stored());
  EXPECT_EQ(g.loops(), oracle.loops());
  EXPECT_EQ(g.duplicates(), oracle.duplicates());
  for (vertex v = 0; v < p.vertices; ++v) {
    ASSERT_EQ(g.out_degree(v), oracle.out(v).size()) << v;
    ASSERT_EQ(g.in_degree(v), oracle.in(v).size()) << v;
    std::vector<Ends> expected;
    for (const PlainEdge& e : oracle.out(v)) expected.emplace_back(e.from, e.to, e.weight);
    ASSERT_EQ(sorted_edges(g, v), expected) << v;
  }
}

TEST(Build, KeepsEachEdgeOnceOfEveryShape) {
  for (const auto& [name, p] : shapes()) {
    for (const bool symmetric : {true, false}) {
      SCOPED_TRACE(name + (symmetric ? "" : ", directed"));
      expect_built<void>(p, symmetric);
      expect_built<std::int32_t>(p, symmetric);
      expect_built<float>(p, symmetric);
    }
  }
}

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const kasane::error& e) {
    EXPECT_EQ(e.code(), EINVAL);
    return e.what();
  }
  return "not refused";
}

TEST(Build, RefusesWhatIsOutOfRange) {
  graph::edges<float> list(10, 3000);
  for (std::uint64_t i = 0; i < list.size(); ++i) list[i] = {1, 2, 1};
  list[2999].to = 10;
  EXPECT_NE(refusal([&] { (void)graph::build(list); }).find("edge 2999 goes from 1 to 10, but there are 10"),
            std::string::npos);
  list[17].weight = -1;
  EXPECT_NE(refusal([&] { (void)graph::build(list); }).find("edge 17, from 1 to 2, has the weight -1"),
            std::string::npos);
  list[5].weight = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal([&] { (void)graph::build(list); }).find("edge 5,"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)graph::kronecker(32); }).find("the scale is 32"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)graph::uniform(0xffffffff, 1); }).find("too many"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)graph::grid(1 << 16, 1 << 16); }).find("too many"), std::string::npos);
  const auto g = graph::build(graph::edges<>(3, 0));
  EXPECT_NE(refusal([&] { (void)g.out_degree(3); }).find("there is no vertex 3"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)graph::bfs(g, 3); }).find("there is no vertex 3"), std::string::npos);
}

TEST(Kronecker, IsGraph500s) {
  const auto list = graph::kronecker(10);
  ASSERT_EQ(list.vertices(), 1024u);
  ASSERT_EQ(list.size(), 16384u);
  const std::uint32_t begins[][2] = {{299, 797}, {684, 861}, {185, 385}, {428, 328}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list[i].from, begins[i][0]);
    EXPECT_EQ(list[i].to, begins[i][1]);
  }
  EXPECT_EQ(list[16383].from, 206u);
  EXPECT_EQ(list[16383].to, 55u);
}

TEST(Kronecker, HasAsManyEdgesAtItsLargeComponentAsGraph500s) {
  for (const auto& [scale, nedge] :
       std::vector<std::pair<unsigned, std::uint64_t>>{{8, 4011}, {10, 16239}, {14, 261818}, {16, 1048079}}) {
    const auto g = graph::build(graph::kronecker(scale));
    vertex root = 0;
    while (g.out_degree(root) < 8) ++root;
    EXPECT_EQ(graph::bfs(g, root).input_edges, nedge) << scale;
  }
}

TEST(Generators, MakeTheSameOnAnyNumberOfRanks) {
  const auto sum = [](const auto& list) {
    std::uint64_t s = 0;
    for (const auto& e : list) s = s * 31 + e.from * std::uint64_t{7} + e.to;
    return s;
  };
  // As a few lines of Python make them.
  EXPECT_EQ(sum(graph::uniform(1000, 5000)), 16572562668715749346u);
  EXPECT_EQ(sum(graph::grid(3, 5)), 8901144137703487032u);
  for (const auto& e : graph::uniform<float>(10, 100)) EXPECT_TRUE(e.weight >= 0 && e.weight < 1);
  for (const auto& e : graph::uniform<std::int32_t>(10, 100)) EXPECT_TRUE(e.weight >= 1 && e.weight <= 255);
}

// ---- breadth-first search ----

TEST(Bfs, FindsTheShortestPathsOfEveryShape) {
  for (const auto& [name, p] : shapes()) {
    for (const bool symmetric : {true, false}) {
      SCOPED_TRACE(name + (symmetric ? "" : ", directed"));
      const auto g = graph::build(list_of<void>(p), {.symmetric = symmetric});
      const Oracle oracle(p, symmetric);
      std::mt19937 random(5);
      for (int i = 0; i < 3 && p.vertices != 0; ++i) {
        const auto root = static_cast<vertex>(i == 0 ? p.vertices - 1 : random() % p.vertices);
        // Top-down alone, bottom-up as soon as it can, and as usual.
        for (const graph::bfs_options o :
             {graph::bfs_options{}, {.alpha = 1, .beta = 1}, {1000000, 1000000}}) {
          const graph::tree t = graph::bfs(g, root, o);
          const auto expected = oracle.levels(root);
          ASSERT_EQ(levels_of(t.root, t.parent, p.vertices), expected) << root;
          EXPECT_EQ(t.reached, static_cast<std::uint64_t>(
                                   std::count_if(expected.begin(), expected.end(),
                                                 [](std::uint32_t l) { return l != Oracle::kFar; })));
          std::uint32_t depth = 0;
          for (const std::uint32_t l : expected) depth = l == Oracle::kFar ? depth : std::max(depth, l);
          EXPECT_EQ(t.depth, depth);
          EXPECT_EQ(graph::check_bfs(g, t), "");
        }
      }
    }
  }
}

}  // namespace
