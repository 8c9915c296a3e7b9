// SPDX-License-Identifier: Apache-2.0
// Boost's concurrent flat map, from 1.83 on.
#include <boost/unordered/concurrent_flat_map.hpp>

#include "containers/peer.h"

namespace {

using U64 = std::uint64_t;

struct Map {
  boost::concurrent_flat_map<U64, U64> map;
  bool insert(U64 k, U64 v) { return map.emplace(k, v); }
  U64 find(U64 k) const {
    U64 v = 0;
    map.visit(k, [&v](const auto& entry) { v = entry.second; });
    return v;
  }
  bool contains(U64 k) const { return map.contains(k); }
  bool assign(U64 k, U64 v) { return map.insert_or_assign(k, v); }
  bool add(U64 k, U64 n) {
    return map.insert_or_visit({k, n}, [n](auto& entry) { entry.second += n; });
  }
  bool visit(U64 k) {
    return map.visit(k, [](auto& entry) { ++entry.second; }) != 0;
  }
  bool erase(U64 k) { return map.erase(k) != 0; }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  return play<Map, None, None, None, None>(argc, argv);
}
