// SPDX-License-Identifier: Apache-2.0
// Graph500's roots.
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <unordered_set>
#include <vector>

#include "graph/layout.h"
#include "graph/random_steps.h"

namespace kasane::graph {

template <weight W>
std::vector<vertex> kronecker_roots(const csr<W>& g, std::size_t n, std::uint64_t seed1,
                                    std::uint64_t seed2) {
  using detail::RandomSteps;
  const std::uint64_t vertices = g.vertices();
  RandomSteps::State z = RandomSteps::after(RandomSteps::power(RandomSteps::power_of_two(128), 2),
                                            RandomSteps::seeded(seed1, seed2));
  const auto draw = [&z] {  // from [0, 1)
    constexpr double kOne = .000000000465661287524579692, kTwo = .0000000000000000002168404346990492787;
    const double high = RandomSteps::next(z) * kOne;
    return high + RandomSteps::next(z) * kTwo;
  };
  std::vector<vertex> roots;
  std::unordered_set<vertex> are_roots;
  for (std::uint64_t tries = 0; tries < vertices && roots.size() < n; ++tries) {
    const double first = draw(), both = first + draw();
    const auto v =
        static_cast<vertex>(static_cast<std::uint64_t>(both * static_cast<double>(vertices)) % vertices);
    if (g.out_degree(v) != 0 && are_roots.insert(v).second) roots.push_back(v);
  }
  return roots;
}
#define KASANE_GRAPH_INSTANCE(W) \
  template std::vector<vertex> kronecker_roots(const csr<W>&, std::size_t, std::uint64_t, std::uint64_t);
KASANE_GRAPH_INSTANCE(void)
KASANE_GRAPH_INSTANCE(std::int32_t)
KASANE_GRAPH_INSTANCE(float)
#undef KASANE_GRAPH_INSTANCE

}  // namespace kasane::graph
