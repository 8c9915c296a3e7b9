// SPDX-License-Identifier: Apache-2.0
// The engine's tests (tests/multi/comm_engine) on ranks that an mpirun started: mpirun -n N mpi_engine_test
// [--rma HOW]
#include "multi/comm_engine/engine_env.h"
#include "multi/mpi/mpi_ranks.h"

namespace kasane::comm::test {
namespace {

void run(const EngineOptions& options, const EngineBody& body) {
  Bells bells{};
  auto transport = mpi::create(mpi::test::library(), bells, mpi::test::options());
  ASSERT_TRUE(transport) << transport.error().message;
  run_engine_over(**transport, Kind::mpi, Over::mpi, options, body);
}

}  // namespace
}  // namespace kasane::comm::test

int main(int argc, char** argv) {
  using namespace kasane::comm;
  if (!mpi::test::start(&argc, &argv)) return 1;
  test::run_engine_as_mpi_rank() = &test::run;
  ::testing::InitGoogleTest(&argc, argv);
  return mpi::test::run_all_tests();
}
