// SPDX-License-Identifier: Apache-2.0
// libcuckoo's map.
#include <libcuckoo/cuckoohash_map.hh>

#include "containers/peer.h"

namespace {

using U64 = std::uint64_t;

struct Map {
  libcuckoo::cuckoohash_map<U64, U64> map;
  bool insert(U64 k, U64 v) { return map.insert(k, v); }
  U64 find(U64 k) const {
    U64 v = 0;
    map.find(k, v);
    return v;
  }
  bool contains(U64 k) const { return map.contains(k); }
  bool assign(U64 k, U64 v) { return map.insert_or_assign(k, v); }
  bool add(U64 k, U64 n) {
    return map.upsert(k, [n](U64& v) { v += n; }, n);
  }
  bool visit(U64 k) {
    return map.update_fn(k, [](U64& v) { ++v; });
  }
  bool erase(U64 k) { return map.erase(k); }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  return play<Map, None, None, None, None>(argc, argv);
}
