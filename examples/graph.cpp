// SPDX-License-Identifier: Apache-2.0
// A graph: how far every town is from the first one, by roads and by kilometres, and which towns no road
// joins to it.
#include <cstdio>
#include <kasane/graph.hpp>

int main() {
  namespace graph = kasane::graph;
  const char* const town[] = {"Aoba", "Birao", "Chita", "Daito", "Ebino", "Fukui"};
  graph::edges<std::int32_t> roads(6, 5);
  roads[0] = {0, 1, 30};
  roads[1] = {1, 2, 20};
  roads[2] = {0, 2, 90};
  roads[3] = {2, 3, 10};
  roads[4] = {4, 5, 15};
  const auto g = graph::build(roads, {.symmetric = true});

  const graph::tree t = graph::bfs(g, 0);
  const auto d = graph::sssp(g, 0);
  for (graph::vertex v = 0; v < g.vertices(); ++v) {
    if (t.parent[v] == graph::no_vertex)
      std::printf("%s: no way\n", town[v]);
    else
      std::printf("%s: %d km\n", town[v], d.length[v]);
  }
  std::printf("%lu of %lu towns are reached, over %u roads at most, on %u ranks\n", t.reached, g.vertices(),
              t.depth, kasane::ranks());
  const bool right = t.reached == 4 && t.depth == 2 && d.length[2] == 50 && d.length[3] == 60 &&
                     graph::check_bfs(g, t).empty() && graph::check_sssp(g, d).empty();
  return right ? 0 : 1;
}
