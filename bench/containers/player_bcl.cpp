// SPDX-License-Identifier: Apache-2.0
// The Berkeley Container Library's hash map over both ranks of an MPI job, each of which does a half of each
// case. Its capacity is fixed; a load factor of a half, as in its examples. It has no erase, and a find of
// what is not there reads all of it.
#include <cstdint>
#include <functional>

#include <bcl/bcl.hpp>
#include <bcl/containers/HashMap.hpp>

#include "containers/player.h"

namespace {

using namespace kasane::bench::containers;
using U64 = std::uint64_t;

struct Map {
  BCL::HashMap<U64, U64> map;
  explicit Map(std::size_t entries) : map(2 * entries) {}
  bool insert(U64 k, U64 v) { return map.insert_or_assign(k, v).second; }
  U64 find(U64 k) { return *map.find(k); }
  bool assign(U64 k, U64 v) { return map.insert_or_assign(k, v).second; }
  bool add(U64 k, U64 n) {
    return map.modify(k, [n](U64 v) { return v + n; });
  }
  bool visit(U64 k) {
    return map.modify(k, [](U64 v) { return v + 1; });
  }
};

/// This rank's part, begun and ended by all together.
struct Ranks {
  template <class F>
  void operator()(unsigned, const F& f) const {
    BCL::barrier();
    f(static_cast<unsigned>(BCL::rank()));
    BCL::barrier();
  }
  static U64 total(U64 sum) { return BCL::allreduce(sum, std::plus<U64>{}); }
};

}  // namespace

int main(int argc, char** argv) {
  Order order;
  if (!parse(argc, argv, order)) return 2;
  BCL::init(64 + order.entries * 128 / (1 << 20));  // MiB of each rank
  int status = 0;
  {
    Meter<Ranks> m(order, true);
    Map map(order.entries);
    play_map(map, m);
    if (BCL::rank() == 0) status = m.print();
  }
  BCL::finalize();
  return status;
}
