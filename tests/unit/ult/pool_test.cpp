// SPDX-License-Identifier: Apache-2.0
// What a thread program may rely on inside one rank, with 1, 2 and 4 workers.
#include <atomic>
#include <string>

#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

class PoolTest : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, PoolTest, ::testing::Values(1u, 2u, 4u));

TEST_P(PoolTest, ForkAndJoinGiveTheSequentialAnswer) {
  TestPool pool(GetParam());
  unsigned answer = 0;
  pool.run([&] { answer = fib(20); });
  EXPECT_EQ(answer, plain_fib(20));
  EXPECT_EQ(pool.total(&Counters::threads), pool.total(&Counters::forks) + 1);
}

}  // namespace
}  // namespace kasane::ult
