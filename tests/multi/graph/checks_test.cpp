// SPDX-License-Identifier: Apache-2.0
// Right results with one change each, at random places: every check says what is wrong. The changes of one
// kind are wrong wherever they are made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <kasane/graph.hpp>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "multi/graph/graphs.h"

namespace {

using namespace kasane::test;

/// A vertex for which holds(v), from a random one on; no_vertex: there is none.
template <class F>
vertex some(std::mt19937& random, std::uint64_t vertices, const F& holds) {
  const std::uint64_t first = random() % vertices;
  for (std::uint64_t i = 0; i < vertices; ++i) {
    const auto v = static_cast<vertex>((first + i) % vertices);
    if (holds(v)) return v;
  }
  return graph::no_vertex;
}

template <class T>
using Change = std::pair<const char*, std::function<void(T&, std::mt19937&)>>;

/// Each change, a few times, on a result of its own.
template <class T, class Make, class Check>
void expect_seen(const std::vector<Change<T>>& changes, const Make& make, const Check& check) {
  {
    const T right = make();
    ASSERT_EQ(check(right), "");
  }
  for (const auto& [name, change] : changes) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      std::mt19937 random(seed);
      T result = make();
      change(result, random);
      EXPECT_NE(check(result), "") << name << ", seed " << seed;
    }
  }
}

/// A sparse graph, of which a part is not reached.
struct Sparse {
  Plain p = random_graph(2000, 4500, 8);
  Oracle oracle{p, true};
  vertex root = 0;
  std::vector<std::uint32_t> levels;

  Sparse() {
    while (oracle.out(root).size() < 4) ++root;
    levels = oracle.levels(root);
  }
  [[nodiscard]] bool is_reached(vertex v) const { return levels[v] != Oracle::kFar; }
  [[nodiscard]] vertex reached(std::mt19937& random, std::uint32_t level_from = 1) const {
    return some(random, p.vertices, [&](vertex v) { return is_reached(v) && levels[v] >= level_from; });
  }
  [[nodiscard]] vertex lonely(std::mt19937& random) const {
    return some(random, p.vertices, [&](vertex v) { return !is_reached(v); });
  }
  /// A neighbour of v for which holds(level); no_vertex: there is none.
  template <class F>
  [[nodiscard]] vertex neighbour(vertex v, const F& holds) const {
    for (const PlainEdge& e : oracle.out(v))
      if (holds(levels[e.to])) return e.to;
    return graph::no_vertex;
  }
  [[nodiscard]] bool has_edge(vertex u, vertex v) const {
    return std::any_of(oracle.out(u).begin(), oracle.out(u).end(),
                       [v](const PlainEdge& e) { return e.to == v; });
  }
  [[nodiscard]] vertex stranger(std::mt19937& random, vertex v) const {
    return some(random, p.vertices, [&](vertex u) { return u != v && is_reached(u) && !has_edge(u, v); });
  }
};

/// What is no tree with that root, for any parents.
template <class T>
std::vector<Change<T>> no_trees(const Sparse& s, kasane::unique_array<vertex>& (*parent)(T&)) {
  return {
      {"the root has no parent", [&s, parent](T& t, auto&) { parent(t)[s.root] = graph::no_vertex; }},
      {"the root has another parent",
       [&s, parent](T& t, auto&) { parent(t)[s.root] = s.oracle.out(s.root)[0].to; }},
      {"no parent", [&s, parent](T& t, auto& random) { parent(t)[s.reached(random)] = graph::no_vertex; }},
      {"its own parent",
       [&s, parent](T& t, auto& random) {
         const vertex v = s.reached(random);
         parent(t)[v] = v;
       }},
      {"its child's child",
       [&s, parent](T& t, auto& random) {
         const vertex v = s.reached(random, 3);
         parent(t)[parent(t)[parent(t)[v]]] = v;
       }},
      {"its child",
       [&s, parent](T& t, auto& random) {
         const vertex v = s.reached(random, 2);
         parent(t)[parent(t)[v]] = v;
       }},
      {"out of range",
       [&s, parent](T& t, auto& random) {
         parent(t)[s.reached(random)] = static_cast<vertex>(s.p.vertices + random() % 1000);
       }},
      {"no such edge",
       [&s, parent](T& t, auto& random) {
         const vertex v = s.reached(random);
         parent(t)[v] = s.stranger(random, v);
       }},
      {"one that is not reached", [&s, parent](T& t, auto& random) { parent(t)[s.lonely(random)] = s.root; }},
      {"a parent that is not reached",
       [&s, parent](T& t, auto& random) { parent(t)[s.reached(random)] = s.lonely(random); }},
  };
}

TEST(Checks, SeeChangedTrees) {
  const Sparse s;
  const auto g = graph::build(list_of<void>(s.p));
  using T = graph::tree;
  auto changes = no_trees<T>(s, [](T& t) -> kasane::unique_array<vertex>& { return t.parent; });
  changes.insert(
      changes.end(),
      {{"a longer way",
        [&](T& t, auto& random) {
          const auto beside = [&](vertex v) {
            return s.neighbour(v, [&](std::uint32_t level) { return level == s.levels[v]; });
          };
          const vertex v = some(random, s.p.vertices, [&](vertex u) {
            return s.is_reached(u) && u != s.root && beside(u) != graph::no_vertex;
          });
          t.parent[v] = beside(v);
        }},
       {"another root", [&](T& t, auto& random) { t.root = s.reached(random); }},
       {"a root that is not reached", [&](T& t, auto& random) { t.root = s.lonely(random); }},
       {"a leaf is missing",
        [&](T& t, auto& random) {
          std::vector<bool> is_parent(s.p.vertices);
          for (vertex v = 0; v < s.p.vertices; ++v)
            if (s.is_reached(v)) is_parent[t.parent[v]] = true;
          t.parent[some(random, s.p.vertices, [&](vertex v) { return s.is_reached(v) && !is_parent[v]; })] =
              graph::no_vertex;
          --t.reached;
        }},
       {"nothing but the root",
        [&](T& t, auto&) {
          std::fill_n(t.parent.get(), s.p.vertices, graph::no_vertex);
          t.parent[s.root] = s.root;
          t.reached = 1, t.input_edges = 0, t.depth = 0;
        }},
       {"more vertices", [](T& t, auto&) { ++t.reached; }},
       {"fewer edges of the list", [](T& t, auto&) { --t.input_edges; }},
       {"another depth", [](T& t, auto&) { ++t.depth; }}});
  expect_seen<T>(
      changes, [&] { return graph::bfs(g, s.root); }, [&](const T& t) { return graph::check_bfs(g, t); });
}

TEST(Checks, SeeChangedTreesOfDirectedGraphs) {
  const auto g = graph::build(list_of<void>(path(50)), {.symmetric = false});
  using T = graph::tree;
  expect_seen<T>(
      {{"against the edge", [](T& t, auto&) { t.parent[19] = 20; }},
       {"before the root", [](T& t, auto&) { t.parent[9] = 10, ++t.reached; }},
       {"the end is missing", [](T& t, auto&) { t.parent[49] = graph::no_vertex, --t.reached, --t.depth; }}},
      [&] { return graph::bfs(g, 10); }, [&](const T& t) { return graph::check_bfs(g, t); });
}

template <class W>
void expect_changed_paths_seen() {
  Sparse s;
  for (PlainEdge& e : s.p.edges) e.weight += 1;  // so that one more or less is wrong
  s.oracle = Oracle(s.p, true);
  const auto g = graph::build(list_of<W>(s.p));
  using D = graph::distances<W>;
  expect_seen<D>(
      {{"longer", [&](D& d, auto& random) { d.length[s.reached(random)] += 1; }},
       {"shorter", [&](D& d, auto& random) { d.length[s.reached(random)] -= 1; }},
       {"negative", [&](D& d, auto& random) { d.length[s.reached(random)] = -1; }},
       {"0", [&](D& d, auto& random) { d.length[s.reached(random)] = 0; }},
       {"not reached", [&](D& d, auto& random) { d.length[s.reached(random)] = graph::unreached<W>; }},
       {"reached", [&](D& d, auto& random) { d.length[s.lonely(random)] = 3; }},
       {"the root elsewhere", [&](D& d, auto&) { d.length[s.root] = 1; }},
       {"another root", [&](D& d, auto& random) { d.root = s.reached(random); }},
       {"all longer",
        [&](D& d, auto&) {
          for (vertex v = 0; v < s.p.vertices; ++v)
            if (v != s.root && s.is_reached(v)) d.length[v] += 1;
        }},
       {"two the other way round",
        [&](D& d, auto& random) {
          const vertex v = s.reached(random);
          std::swap(d.length[v], d.length[some(random, s.p.vertices, [&](vertex u) {
            return s.is_reached(u) && d.length[u] != d.length[v];
          })]);
        }}},
      [&] { return graph::sssp(g, s.root); }, [&](const D& d) { return graph::check_sssp(g, d); });

  using Parents = kasane::unique_array<vertex>;
  const D d = graph::sssp(g, s.root);
  auto changes = no_trees<Parents>(s, [](Parents& p) -> Parents& { return p; });
  changes.emplace_back("a longer way", [&](Parents& parent, auto& random) {
    const auto longer = [&](vertex v) -> vertex {
      for (const PlainEdge& e : s.oracle.out(v))
        if (v != s.root && d.length[e.to] + static_cast<W>(e.weight) > d.length[v]) return e.to;
      return graph::no_vertex;
    };
    const vertex v = some(random, s.p.vertices,
                          [&](vertex u) { return s.is_reached(u) && longer(u) != graph::no_vertex; });
    parent[v] = longer(v);
  });
  expect_seen<Parents>(
      changes, [&] { return graph::parents(g, d); },
      [&](const Parents& p) { return graph::check_sssp(g, d, p); });
}
TEST(Checks, SeeChangedPaths) {
  expect_changed_paths_seen<std::int32_t>();
  expect_changed_paths_seen<float>();
}

TEST(Checks, SeeChangedLabels) {
  const std::uint64_t n = 299;  // 23 circles: the first has the vertices 0 and 1
  const auto g = graph::build(list_of<void>(circles(n)));
  using C = graph::component_labels;
  const auto all = [n](C& c, vertex was, vertex is) {
    for (vertex v = 0; v < n; ++v)
      if (c.label[v] == was) c.label[v] = is;
  };
  const auto in_circle = [](auto& random) { return static_cast<vertex>(2 + random() % 290); };
  expect_seen<C>(
      {{"another component's", [&](C& c, auto& random) { c.label[in_circle(random)] = c.label[0]; }},
       {"out of range", [&](C& c, auto& random) { c.label[in_circle(random)] = n; }},
       {"none", [&](C& c, auto& random) { c.label[in_circle(random)] = graph::no_vertex; }},
       {"alone",
        [&](C& c, auto& random) {
          const vertex v = some(random, n - 20, [&](vertex u) { return u >= 2 && c.label[u] != u; });
          c.label[v] = v;
          ++c.count;
        }},
       {"two components together",
        [&](C& c, auto& random) {
          all(c, c.label[in_circle(random)], c.label[0]);
          --c.count;
        }},
       {"together, and the count stays",
        [&](C& c, auto& random) { all(c, c.label[in_circle(random)], c.label[0]); }},
       {"a label from elsewhere",
        [&](C& c, auto& random) {
          const vertex was = c.label[in_circle(random)];
          all(c, was, c.label[0] == 0 ? 1 : 0);
        }},
       {"two labels exchanged",
        [&](C& c, auto& random) {
          const vertex a = c.label[0], b = c.label[in_circle(random)];
          for (vertex v = 0; v < n; ++v) c.label[v] = c.label[v] == a ? b : c.label[v] == b ? a : c.label[v];
        }},
       {"more components", [](C& c, auto&) { ++c.count; }},
       {"fewer components", [](C& c, auto&) { --c.count; }},
       {"everything one",
        [&](C& c, auto&) {
          std::fill_n(c.label.get(), n, c.label[0]);
          c.count = 1;
        }}},
      [&] { return graph::components(g); }, [&](const C& c) { return graph::check_components(g, c); });
}

TEST(Checks, SeeChangedScores) {
  const std::uint64_t n = 3000;
  const auto g = graph::build(list_of<void>(random_graph(n, 20000, 2)));
  using P = graph::page_scores;
  const auto at = [n](auto& random) { return random() % n; };
  expect_seen<P>(
      {{"more", [&](P& p, auto& random) { p.score[at(random)] += .01f; }},
       {"less", [&](P& p, auto& random) { p.score[at(random)] = 0, p.score[at(random)] = 0; }},
       {"from one to another",
        [&](P& p, auto& random) { p.score[at(random)] += .01f, p.score[at(random)] -= .01f; }},
       {"negative", [&](P& p, auto& random) { p.score[at(random)] = -1e-6f; }},
       {"no number", [&](P& p, auto& random) { p.score[at(random)] = std::nanf(""); }},
       {"without an end",
        [&](P& p, auto& random) { p.score[at(random)] = std::numeric_limits<float>::infinity(); }},
       {"nothing", [&](P& p, auto&) { std::fill_n(p.score.get(), n, 0.f); }},
       {"all the same", [&](P& p, auto&) { std::fill_n(p.score.get(), n, 1.f / n); }},
       {"twice",
        [&](P& p, auto&) {
          for (std::uint64_t v = 0; v < n; ++v) p.score[v] *= 2;
        }},
       {"backwards", [&](P& p, auto&) { std::reverse(p.score.get(), p.score.get() + n); }}},
      [&] { return graph::pagerank(g); }, [&](const P& p) { return graph::check_pagerank(g, p); });
}

TEST(Checks, SeeChangedCounts) {
  for (const auto& [name, p] : shapes()) {
    SCOPED_TRACE(name);
    const auto g = graph::build(list_of<void>(p));
    const std::uint64_t count = graph::triangles(g);
    EXPECT_EQ(graph::check_triangles(g, count), "");
    for (const std::uint64_t wrong : {count + 1, count - 1, 2 * count + 1, 6 * count + 1, ~count})
      EXPECT_NE(graph::check_triangles(g, wrong), "") << wrong;
  }
}

TEST(Checks, SeeChangedCentralities) {
  const std::uint64_t n = 500;
  const auto g = graph::build(list_of<void>(random_graph(n, 1500, 3)));
  const std::vector<vertex> sources{1, 77, 300};
  using S = kasane::unique_array<double>;
  const auto at = [n](auto& random) { return random() % n; };
  expect_seen<S>(
      {{"more", [&](S& s, auto& random) { s[at(random)] += 1e-3; }},
       {"less", [&](S& s, auto& random) { s[at(random)] -= 1e-3; }},
       {"negative", [&](S& s, auto& random) { s[at(random)] = -1; }},
       {"no number", [&](S& s, auto& random) { s[at(random)] = std::nan(""); }},
       {"nothing", [&](S& s, auto&) { std::fill_n(s.get(), n, 0.0); }},
       {"half",
        [&](S& s, auto&) {
          for (std::uint64_t v = 0; v < n; ++v) s[v] /= 2;
        }},
       {"the sources', too",
        [&](S& s, auto&) {
          for (const vertex v : sources) s[v] += 1;
        }},
       {"two the other way round",
        [&](S& s, auto& random) {
          const auto v = static_cast<vertex>(at(random));
          std::swap(s[v], s[some(random, n, [&](vertex u) { return std::abs(s[u] - s[v]) > 1; })]);
        }}},
      [&] { return graph::betweenness(g, sources); },
      [&](const S& s) { return graph::check_betweenness(g, sources, s); });
}

}  // namespace
