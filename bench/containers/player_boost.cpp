// SPDX-License-Identifier: Apache-2.0
// Boost's flat map and set, from 1.81 on.
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include "containers/peer.h"
#include "containers/sequential.h"

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  return play<SequentialMap<boost::unordered_flat_map<U64, U64>>,
              SequentialSet<boost::unordered_flat_set<U64>>, None, None, None>(argc, argv);
}
