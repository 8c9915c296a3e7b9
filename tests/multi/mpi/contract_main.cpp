// SPDX-License-Identifier: Apache-2.0
// The contract's tests (tests/multi/comm/contract_test.cpp) on ranks that an mpirun started: mpirun -n N
// mpi_contract_test [--rma HOW]
#include "multi/comm/every_transport.h"
#include "multi/mpi/mpi_ranks.h"

namespace kasane::comm::test {
namespace {

void run(const Body& body) {
  Bells bells{};
  auto transport = mpi::create(mpi::test::library(), bells, mpi::test::options());
  ASSERT_TRUE(transport) << transport.error().message;
  run_over(**transport, Kind::mpi, /*service_wanted=*/true, body);
}

}  // namespace
}  // namespace kasane::comm::test

int main(int argc, char** argv) {
  using namespace kasane::comm;
  if (!mpi::test::start(&argc, &argv)) return 1;
  test::run_as_mpi_rank() = &test::run;
  ::testing::InitGoogleTest(&argc, argv);
  return mpi::test::run_all_tests();
}
