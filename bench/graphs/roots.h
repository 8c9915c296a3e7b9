// SPDX-License-Identifier: Apache-2.0
// The vertices at which searches begin: those that GAPBS's SourcePicker takes, so that all systems search
// from the same ones in the same order.
#pragma once

#include <cstdint>
#include <random>

namespace kasane::bench::graphs {

class Roots {
 public:
  explicit Roots(std::uint64_t vertices) : vertices_(static_cast<std::uint32_t>(vertices)) {
    // Numbers from here on would make the lowest vertices likelier; 0: there are none.
    const std::uint64_t beyond = random_.max() % vertices;
    if (beyond != vertices - 1) end_ = static_cast<std::uint32_t>(random_.max() - beyond);
  }
  /// The next vertex with an edge. There has to be one. degree(v): how many edges leave v.
  template <class Degree>
  std::uint32_t next(const Degree& degree) {
    for (;;) {
      auto drawn = static_cast<std::uint32_t>(random_());
      if (end_ != 0 && drawn >= end_) continue;
      drawn %= vertices_;
      if (degree(drawn) != 0) return drawn;
    }
  }

 private:
  std::mt19937_64 random_{27491095};
  std::uint32_t vertices_, end_ = 0;
};

}  // namespace kasane::bench::graphs
