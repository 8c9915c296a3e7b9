// SPDX-License-Identifier: Apache-2.0
// The C++ library, with glibc's malloc.
#include <deque>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "containers/peer.h"
#include "containers/sequential.h"

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  return play<SequentialMap<std::unordered_map<U64, U64>>, SequentialSet<std::unordered_set<U64>>,
              SequentialVector<std::vector<U64>>, SequentialDeque<std::deque<U64>>,
              SequentialList<std::list<U64>>>(argc, argv);
}
