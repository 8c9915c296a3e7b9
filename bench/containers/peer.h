// SPDX-License-Identifier: Apache-2.0
// The players of other systems than Kasane: structures of one process, which threads share.
// Thread safety: main alone calls play().
#pragma once

#include <cstdio>
#include <thread>
#include <type_traits>
#include <vector>

#include "containers/player.h"

namespace kasane::bench::containers {

struct StandardThreads {
  template <class F>
  void operator()(unsigned n, const F& f) const {
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < n; ++t) threads.emplace_back([&f, t] { f(t); });
    f(0);
    for (auto& t : threads) t.join();
  }
};

/// In place of a structure that a system does not have.
struct None {};

/// The body of main. The types: see the cases in player.h.
template <class Map, class Set, class Vector, class Deque, class List>
int play(int argc, char** argv) {
  Order order;
  if (!parse(argc, argv, order)) return 2;
  Meter<StandardThreads> m(order, false);
  const auto with = [&]<class Structure>(const char* group, Structure, const auto& cases) {
    if constexpr (!std::is_same_v<Structure, None*>) {
      if (order.group != group) return;
      std::remove_pointer_t<Structure> structure;
      cases(structure);
    }
  };
  with("map", static_cast<Map*>(nullptr), [&](auto& s) { play_map(s, m); });
  with("set", static_cast<Set*>(nullptr), [&](auto& s) { play_set(s, m); });
  with("vector", static_cast<Vector*>(nullptr), [&](auto& s) { play_vector(s, m); });
  with("deque", static_cast<Deque*>(nullptr), [&](auto& s) { play_deque(s, m); });
  with("list", static_cast<List*>(nullptr), [&](auto& s) { play_list(s, m); });
  return m.print();
}

}  // namespace kasane::bench::containers
