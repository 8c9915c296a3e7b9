// SPDX-License-Identifier: Apache-2.0
// A rank that is killed while it holds a lock of a container: the job ends soon, says which rank it was, and
// leaves nothing, though the other ranks wait for that lock.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

/// Of the lock, the rank that owns the container, and the transport.
class ContainersKilled : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(ContainersKilled, TheJobEnds) {
  const auto& [lock, owner, transport] = GetParam();
  Job job(
      kasane_run_command({"-n", "3", "--transport", transport, "--", KASANE_KILLED_PROGRAM, lock, owner}));
  ASSERT_TRUE(job.wait_for_output("dies at rank ")) << job.wait().err;
  const auto start = std::chrono::steady_clock::now();
  const Outcome o = job.wait();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(o.ended) << "hangs; its standard error:\n" << o.err;
  EXPECT_LT(seconds.count(), 10) << "usually far less than two";
  EXPECT_EQ(o.code, 128 + SIGKILL);
  const std::string who = o.out.substr(o.out.rfind("dies at ") + 8, std::string("rank 1").size());
  EXPECT_NE(o.err.find(who + " (pid "), std::string::npos) << who << "\n" << o.err;
  EXPECT_NE(o.err.find("SIGKILL"), std::string::npos) << o.err;
  EXPECT_TRUE(o.left.empty()) << o.left.size() << " processes left";
  EXPECT_EQ(kasane_files_in_dev_shm(), 0);
}

constexpr const char* kLocks[] = {"bucket", "split", "deque", "list"};
constexpr const char* kOwners[] = {"0", "1"};
const auto name = [](const auto& info) {
  return std::string(std::get<0>(info.param)) + "_of_" + std::get<1>(info.param) + "_" +
         std::get<2>(info.param);
};
INSTANTIATE_TEST_SUITE_P(OneHost, ContainersKilled,
                         testing::Combine(testing::ValuesIn(kLocks), testing::ValuesIn(kOwners),
                                          testing::Values("shm")),
                         name);
#ifdef KASANE_WITH_UCX
INSTANTIATE_TEST_SUITE_P(Network, ContainersKilled,
                         testing::Combine(testing::ValuesIn(kLocks), testing::ValuesIn(kOwners),
                                          testing::Values("ucx")),
                         name);
#endif

}  // namespace
}  // namespace kasane::launch_test
