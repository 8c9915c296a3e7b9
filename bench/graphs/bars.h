// SPDX-License-Identifier: Apache-2.0
// What kasane bench bfs has to reach: each line is a ratio of two times of the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kasane::bench::graphs {

/// Times of the first divided by times of the second.
struct Bar {
  std::string kernel;
  std::string slower, faster;  ///< "gapbs, 1 thread", "kasane, 1 x 2"
  double at_least;
  std::uint64_t scale = 0;  ///< of which it is said; 0: of each from 20 on
};

inline std::vector<Bar> bars() {
  const std::string gapbs = "gapbs, 1 thread", one = "kasane, 1 x 1", threads = "kasane, 1 x 2",
                    ranks = "kasane, 2 x 1";
  std::vector<Bar> all{{"build", gapbs, one, 1},
                       {"bfs", gapbs, one, 3, 20},
                       {"bfs", gapbs, one, 2.5, 22},
                       {"bfs", one, threads, 1.6, 22},
                       {"bfs", threads, ranks, 0.75, 20},
                       {"bfs", threads, ranks, 0.9, 22},
                       {"bfs", "graph500, 2 processes", ranks, 20, 18}};
  for (const char* kernel : {"sssp", "cc", "pr", "tc", "bc"}) all.push_back({kernel, gapbs, one, 0.9});
  for (const char* kernel : {"cc", "pr", "tc"}) all.push_back({kernel, one, ranks, 1.4});
  return all;
}

}  // namespace kasane::bench::graphs
