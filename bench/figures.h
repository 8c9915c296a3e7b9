// SPDX-License-Identifier: Apache-2.0
// What a player (a program that a suite runs as a job) hands to the suite: one line of JSON on standard
// output. Thread safety: none needed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace kasane::bench {

/// The repetitions of each case.
using Figures = std::map<std::string, std::vector<double>>;

/// verified: what was computed is right.
inline void print_figures(bool verified, const Figures& figures) {
  std::printf("{\"verified\": %s", verified ? "true" : "false");
  for (const auto& [name, values] : figures) {
    std::printf(", \"%s\": [", name.c_str());
    for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", values[i]);
    std::printf("]");
  }
  std::puts("}");
}

}  // namespace kasane::bench
