// SPDX-License-Identifier: Apache-2.0
// NAME_test --ranks N, for every test over every_transport.h: the transports whose ranks this program forks
// itself. (Under an mpirun: tests/multi/mpi.)
#include <cstdlib>

#include "every_transport.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--ranks")
      kasane::comm::test::ranks_wanted() = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
  }
  return RUN_ALL_TESTS();
}
