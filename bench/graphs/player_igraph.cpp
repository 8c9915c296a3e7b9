// SPDX-License-Identifier: Apache-2.0
// igraph's player of `kasane bench bfs`, an ordinary process of one thread:
//   player-graph-igraph KERNEL FILE TRIALS
// Prints what player-graph-kasane prints. FILE is a .sg or a .wsg of GAPBS.
#include <igraph/igraph.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "figures.h"
#include "graphs/roots.h"

namespace {

using kasane::bench::Figures;
using kasane::bench::graphs::Roots;

/// Of whatever igraph says.
void expect(igraph_error_t status) {
  if (status != IGRAPH_SUCCESS) throw std::runtime_error(igraph_strerror(status));
}

/// What igraph allocates, freed by its own function.
template <class T, void (*Free)(T*)>
class Held {
 public:
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (ready_) Free(&it_);
  }
  /// For the function that fills it.
  T* fresh() {
    ready_ = true;
    return &it_;
  }
  T* get() { return &it_; }

 private:
  T it_{};
  bool ready_ = false;
};
using Graph = Held<igraph_t, igraph_destroy>;
using Reals = Held<igraph_vector_t, igraph_vector_destroy>;
using Ints = Held<igraph_vector_int_t, igraph_vector_int_destroy>;
using Matrix = Held<igraph_matrix_t, igraph_matrix_destroy>;

template <class T>
std::vector<T> read(std::ifstream& file, std::uint64_t n) {
  std::vector<T> all(n);
  if (!file.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(n * sizeof(T))))
    throw std::runtime_error("the file is too short");
  return all;
}

struct Loaded {
  Graph graph;
  Reals weights;
  bool directed = false;
  std::uint64_t vertices = 0, edges = 0;
};

/// GAPBS's: is it directed, edges, vertices, where the rows begin, the rows.
void load(const std::string& path, Loaded& to) {
  std::ifstream file(path, std::ios::binary);
  to.directed = read<char>(file, 1)[0] != 0;
  const auto stored = read<std::uint64_t>(file, 1)[0];
  to.vertices = read<std::uint64_t>(file, 1)[0];
  const bool weighted = path.ends_with(".wsg");
  const std::size_t each = weighted ? 2 : 1;
  const auto rows = read<std::uint64_t>(file, to.vertices + 1);
  const auto words = read<std::int32_t>(file, stored * each);
  Ints edges;
  expect(igraph_vector_int_init(edges.fresh(), 0));
  expect(igraph_vector_init(to.weights.fresh(), 0));
  for (std::uint64_t v = 0; v < to.vertices; ++v) {
    for (std::uint64_t i = rows[v]; i < rows[v + 1]; ++i) {
      const auto u = static_cast<std::uint64_t>(words[i * each]);
      if (!to.directed && u < v) continue;  // it stands in u's row
      expect(igraph_vector_int_push_back(edges.get(), static_cast<igraph_integer_t>(v)));
      expect(igraph_vector_int_push_back(edges.get(), static_cast<igraph_integer_t>(u)));
      if (weighted) expect(igraph_vector_push_back(to.weights.get(), words[i * each + 1]));
      ++to.edges;
    }
  }
  if (to.edges == 0) throw std::runtime_error("the graph has no edges");
  expect(
      igraph_create(to.graph.fresh(), edges.get(), static_cast<igraph_integer_t>(to.vertices), to.directed));
}

/// Times of the call alone; found as player-graph-kasane has it.
double kernel(const std::string& name, Loaded& l, std::uint32_t root, std::uint64_t& found) {
  const igraph_t* const g = l.graph.get();
  std::chrono::steady_clock::time_point start;
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double took = 0;
  if (name == "bfs") {
    Ints order, layers, parents;
    expect(igraph_vector_int_init(order.fresh(), 0));
    expect(igraph_vector_int_init(layers.fresh(), 0));
    expect(igraph_vector_int_init(parents.fresh(), 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_bfs_simple(g, root, IGRAPH_OUT, order.get(), layers.get(), parents.get()));
    took = seconds();
    found = static_cast<std::uint64_t>(igraph_vector_int_size(order.get()));
  } else if (name == "sssp") {
    Matrix distances;
    expect(igraph_matrix_init(distances.fresh(), 0, 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_distances_dijkstra(g, distances.get(), igraph_vss_1(root), igraph_vss_all(),
                                     l.weights.get(), IGRAPH_OUT));
    took = seconds();
    for (igraph_integer_t v = 0; v < igraph_matrix_ncol(distances.get()); ++v)
      found += std::isfinite(MATRIX(*distances.get(), 0, v)) ? 1 : 0;
  } else if (name == "cc") {
    Ints members;
    igraph_integer_t count = 0;
    expect(igraph_vector_int_init(members.fresh(), 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_connected_components(g, members.get(), nullptr, &count, IGRAPH_WEAK));
    took = seconds();
    found = static_cast<std::uint64_t>(count);
  } else if (name == "pr") {
    Reals scores;
    igraph_real_t eigenvalue = 0;
    expect(igraph_vector_init(scores.fresh(), 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_pagerank(g, IGRAPH_PAGERANK_ALGO_PRPACK, scores.get(), &eigenvalue, igraph_vss_all(),
                           l.directed, 0.85, nullptr, nullptr));
    took = seconds();
  } else if (name == "tc") {
    Reals counts;
    expect(igraph_vector_init(counts.fresh(), 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_adjacent_triangles(g, counts.get(), igraph_vss_all()));
    took = seconds();
    found = static_cast<std::uint64_t>(igraph_vector_sum(counts.get()) / 3 + 0.5);  // each at three vertices
  } else if (name == "bc") {
    Reals scores;
    expect(igraph_vector_init(scores.fresh(), 0));
    start = std::chrono::steady_clock::now();
    expect(igraph_betweenness_subset(g, scores.get(), igraph_vss_all(), l.directed, igraph_vss_1(root),
                                     igraph_vss_all(), nullptr));
    took = seconds();
  } else {
    throw std::runtime_error("there is no kernel " + name);
  }
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: player-graph-igraph KERNEL FILE TRIALS\n", stderr);
    return 2;
  }
  try {
    Loaded l;
    load(argv[2], l);
    Figures figures;
    figures["edges"].push_back(static_cast<double>(l.edges));
    Roots roots(l.vertices);
    for (int i = std::atoi(argv[3]); i > 0; --i) {
      const std::uint32_t root = roots.next([&](std::uint32_t v) {
        igraph_integer_t degree = 0;
        expect(igraph_degree_1(l.graph.get(), &degree, v, IGRAPH_OUT, IGRAPH_LOOPS));
        return degree;
      });
      std::uint64_t found = 0;
      figures["ms"].push_back(1e3 * kernel(argv[1], l, root, found));
      figures["found"].push_back(static_cast<double>(found));
    }
    kasane::bench::print_figures(true, figures);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "player-graph-igraph: %s: %s\n", argv[2], e.what());
    return 1;
  }
  return 0;
}
