// SPDX-License-Identifier: Apache-2.0
// The C++ library's structures of nodes, with mimalloc.
#include <mimalloc.h>

#include <functional>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "containers/peer.h"
#include "containers/sequential.h"

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  using Map = std::unordered_map<U64, U64, std::hash<U64>, std::equal_to<U64>,
                                 mi_stl_allocator<std::pair<const U64, U64>>>;
  using Set = std::unordered_set<U64, std::hash<U64>, std::equal_to<U64>, mi_stl_allocator<U64>>;
  return play<SequentialMap<Map>, SequentialSet<Set>, None, None,
              SequentialList<std::list<U64, mi_stl_allocator<U64>>>>(argc, argv);
}
