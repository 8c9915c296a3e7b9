// SPDX-License-Identifier: Apache-2.0
// Kasane's player of `kasane bench bfs`, by kasane/graph.hpp alone:
//   player-graph-kasane make SCALE EDGE_FACTOR FILE    writes Graph500's graph: a .sg, or a .wsg with weights
//   player-graph-kasane build SCALE EDGE_FACTOR TRIALS "ms": of generating and building it
//   player-graph-kasane KERNEL FILE TRIALS             "ms", "found" of each trial, "edges" (all of them)
// found is what peers say, too: vertices reached (bfs, sssp), components, triangles; else 0.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <kasane/graph.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "figures.h"
#include "graphs/roots.h"

namespace {

namespace graph = kasane::graph;
using graph::vertex;
using kasane::bench::Figures;
using kasane::bench::graphs::Roots;

template <class F>
double seconds_of(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void expect(const std::string& wrong) {
  if (!wrong.empty()) throw std::runtime_error(wrong);
}

template <class W>
graph::csr<W> read(const std::string& file) {
  const auto f = graph::read<W>(file);
  return graph::build(f.list, {.symmetric = f.symmetric});
}

template <class W>
void make(unsigned scale, std::uint64_t edge_factor, const std::string& file) {
  graph::write(graph::build(graph::kronecker<W>(scale, edge_factor)), file);
}

/// All trials on one graph: each by f(root), which returns its seconds and what it found.
template <class W, class F>
Figures play(const std::string& file, int trials, const F& f) {
  Figures figures;
  const auto g = read<W>(file);
  figures["edges"].push_back(static_cast<double>(g.symmetric() ? g.size() / 2 : g.size()));
  if (g.size() == 0) throw std::runtime_error(file + " has no edges");
  Roots roots(g.vertices());
  for (int i = 0; i < trials; ++i) {
    const auto [seconds, found] = f(g, roots.next([&](vertex v) { return g.out_degree(v); }));
    figures["ms"].push_back(1e3 * seconds);
    figures["found"].push_back(static_cast<double>(found));
  }
  return figures;
}

struct Trial {
  double seconds;
  std::uint64_t found;
};

Figures play(const std::string& kernel, const std::string& file, int trials) {
  if (kernel == "bfs")
    return play<void>(file, trials, [](const auto& g, vertex root) {
      graph::tree t;
      const double s = seconds_of([&] { t = graph::bfs(g, root); });
      expect(graph::check_bfs(g, t));
      return Trial{s, t.reached};
    });
  if (kernel == "sssp")
    return play<std::int32_t>(file, trials, [](const auto& g, vertex root) {
      graph::distances<std::int32_t> d;
      const double s = seconds_of([&] { d = graph::sssp(g, root); });
      expect(graph::check_sssp(g, d));
      std::uint64_t reached = 0;
      for (std::uint64_t v = 0; v < g.vertices(); ++v)
        reached += d.length[v] != graph::unreached<std::int32_t> ? 1 : 0;
      return Trial{s, reached};
    });
  if (kernel == "cc")
    return play<void>(file, trials, [](const auto& g, vertex) {
      graph::component_labels c;
      const double s = seconds_of([&] { c = graph::components(g); });
      expect(graph::check_components(g, c));
      return Trial{s, c.count};
    });
  if (kernel == "pr")
    return play<void>(file, trials, [](const auto& g, vertex) {
      graph::page_scores p;
      const double s = seconds_of([&] { p = graph::pagerank(g); });
      expect(graph::check_pagerank(g, p));
      return Trial{s, 0};
    });
  if (kernel == "tc")
    return play<void>(file, trials, [](const auto& g, vertex) {
      std::uint64_t n = 0;
      const double s = seconds_of([&] { n = graph::triangles(g); });
      return Trial{s, n};  // which the suite compares with the peers': the check takes longer than the count
    });
  if (kernel == "bc")
    return play<void>(file, trials, [](const auto& g, vertex root) {
      kasane::unique_array<double> score;
      const double s = seconds_of([&] { score = graph::betweenness(g, {root}); });
      if (g.size() < 2'000'000) expect(graph::check_betweenness(g, {root}, score));
      return Trial{s, 0};
    });
  throw std::runtime_error("there is no kernel " + kernel);
}

Figures build(unsigned scale, std::uint64_t edge_factor, int trials) {
  Figures figures;
  for (int i = 0; i < trials; ++i) {
    graph::csr<void> g;
    figures["ms"].push_back(
        1e3 * seconds_of([&] { g = graph::build(graph::kronecker<void>(scale, edge_factor)); }));
    figures["found"].push_back(0);
    if (i == 0) figures["edges"].push_back(static_cast<double>(g.size() / 2));
  }
  return figures;
}

void run(const std::vector<std::string>& words) {
  const std::string& what = words[0];
  const auto scale = static_cast<unsigned>(std::atoi(words[1].c_str()));
  Figures figures;
  if (what == "make" && words.size() == 4) {
    const std::string& file = words[3];
    const auto edge_factor = static_cast<std::uint64_t>(std::atoll(words[2].c_str()));
    file.ends_with(".wsg") ? make<std::int32_t>(scale, edge_factor, file)
                           : make<void>(scale, edge_factor, file);
  } else if (what == "build" && words.size() == 4) {
    figures =
        build(scale, static_cast<std::uint64_t>(std::atoll(words[2].c_str())), std::atoi(words[3].c_str()));
  } else {
    figures = play(what, words[1], std::atoi(words[2].c_str()));
  }
  kasane::bench::print_figures(true, figures);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs(
        "usage: player-graph-kasane KERNEL FILE TRIALS | make SCALE EDGE_FACTOR FILE | build SCALE "
        "EDGE_FACTOR TRIALS\n",
        stderr);
    return 2;
  }
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "player-graph-kasane: %s\n", e.what());
    return 1;
  }
  return 0;
}
