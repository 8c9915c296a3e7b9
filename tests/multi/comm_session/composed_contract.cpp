// SPDX-License-Identifier: Apache-2.0
// The contract that every transport keeps (tests/multi/comm), held against a composed one: four forked ranks,
// as if on two hosts, UCX between them.
#include <cstdio>

#include "../comm/every_transport.h"
#include "comm/session/session.h"
#include "comm/ucx/ucx_transport.h"

namespace kasane::comm::test {
namespace {

void run_composed(const Body& body) {
  kasane::test::run_ranks(4, [&](const Job& job) {
    auto session = Session::join({.transport = "auto", .hosts = 2}, job);
    ASSERT_TRUE(session) << session.error().message;
    ASSERT_EQ((*session)->transport().facts().name, "composed");
    // To the bodies it is a network: others must run for an operation to complete.
    run_over((*session)->transport(), Kind::mpi, /*service_wanted=*/true, body);
  });
}

}  // namespace
}  // namespace kasane::comm::test

int main(int argc, char** argv) {
  if (auto there = kasane::comm::ucx::available(); !there) {
    std::printf("skipped: %s\n", there.error().message.c_str());
    return 77;
  }
  // Before GoogleTest lists the kinds: each body then runs once, as below.
  kasane::comm::test::run_as_mpi_rank() = kasane::comm::test::run_composed;
  kasane::comm::test::ranks_wanted() = 4;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
