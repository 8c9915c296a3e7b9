// SPDX-License-Identifier: Apache-2.0
// What kasane bench containers compares: each line is one ratio of two medians of the same run, and what it
// has to be.
#pragma once

#include <string>
#include <vector>

namespace kasane::bench::containers {

/// One value: a case of a system, by so many threads.
struct Key {
  std::string name, system;
  unsigned threads = 1;
  auto operator<=>(const Key&) const = default;
};

/// The first divided by the second.
struct Bar {
  Key one, other;
  double limit;
  bool at_least = false;  ///< else at most
};

inline std::vector<Bar> bars() {
  std::vector<Bar> all{{{"map-find", "kasane"}, {"map-find", "std"}, 1},
                       {{"map-insert", "kasane"}, {"map-insert", "std"}, 1.5},
                       {{"map-bytes", "kasane"}, {"map-bytes", "std"}, 1}};
  for (const unsigned threads : {1u, 2u})
    for (const char* name : {"map-find", "map-insert"})
      all.push_back({{name, "kasane", threads}, {name, "tbb", threads}, 1});
  all.push_back({{"vector-push_back", "kasane"}, {"vector-push_back", "tbb"}, 2});
  all.push_back({{"vector-append", "kasane"}, {"vector-push_back", "std"}, 1});
  for (const char* name : {"list-push_back", "list-insert", "list-erase", "list-iterate", "list-sort"})
    all.push_back({{name, "kasane"}, {name, "mimalloc"}, 3});
  all.push_back({{"map-find", "kasane-far"}, {"map-get-64-bytes", "kasane-far"}, 2});
  all.push_back({{"map-insert", "kasane-far"}, {"map-insert", "kasane"}, 3});
  for (const char* name : {"map-find", "map-insert", "vector-push_back", "deque-push_back", "list-push_back"})
    all.push_back({{name, "kasane-far"}, {name, "acp"}, 0.5});
  for (const char* name : {"map-find", "map-insert"})
    all.push_back({{name, "kasane-all", 2}, {name, "bcl", 2}, 0.5});
  all.push_back({{"map-single-add", "kasane-far"}, {"map-updates-add", "kasane-far"}, 2, true});
  all.push_back({{"map-single-add", "kasane-all", 2}, {"map-updates-add", "kasane-all", 2}, 2, true});
  all.push_back({{"map-single-add", "kasane-tcp"}, {"map-updates-add", "kasane-tcp"}, 50, true});
  return all;
}

}  // namespace kasane::bench::containers
