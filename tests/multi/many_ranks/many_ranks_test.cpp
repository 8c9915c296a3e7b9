// SPDX-License-Identifier: Apache-2.0
// Jobs of so many ranks that whatever is done for each pair of them counts, and jobs that may not have as
// many processes and threads as they need.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

const std::string kProgram = KASANE_MANY_RANKS_PROGRAM;
using namespace std::chrono_literals;

void expect_clean(const Outcome& o) {
  EXPECT_TRUE(o.ended) << "hangs; its standard error:\n" << o.err;
  EXPECT_TRUE(o.left.empty()) << o.left.size() << " processes left";
}

Outcome run_many(int ranks, const std::string& what, std::chrono::seconds limit) {
  Outcome o = Job(kasane_run_command({"-n", std::to_string(ranks), "--", kProgram, what})).wait(limit);
  expect_clean(o);
  EXPECT_EQ(o.code, 0) << o.err;
  const std::string sum = std::to_string(ranks) + " ranks: 2080\n";  // 1 + … + 64, by as many threads
  EXPECT_NE(o.out.find(sum), std::string::npos) << o.out;
  return o;
}

TEST(ManyRanks, NinetySixWithoutASpace) { run_many(96, "", 50s); }

// 5.1 MiB measured; 3 MiB of it are the runtime's own, whatever the number of ranks.
TEST(ManyRanks, Of256EachTakesSixMebibytes) {
  const Outcome o = run_many(256, "memory", 100s);
  const int kib = std::stoi("0" + o.out);
  EXPECT_GT(kib, 1024) << "that cannot be: " << o.out;
  EXPECT_LE(kib, 6 * 1024) << o.out;
}

TEST(ManyRanks, AThousandComeUp) { run_many(1024, "", 500s); }

/// As a user that may have so many processes and threads: root is not limited. Only this test uses the
/// number.
std::vector<std::string> limited(int processes, std::vector<std::string> command) {
  std::vector<std::string> all{
      "setpriv", "--reuid",        "64977",   "--regid",
      "64977",   "--clear-groups", "prlimit", "--nproc=" + std::to_string(processes)};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

/// From one process to as many as the job needs: so each process and thread is the first that is refused,
/// once.
void expect_limits_are_named(const std::vector<std::string>& environment) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become a user of its own";
  const auto command = kasane_run_command({"-n", "2", "--workers", "2", "--", kProgram});
  const Outcome first = Job(limited(1000, command), environment).wait();
  if (first.code != 0) GTEST_SKIP() << "another user cannot run this program here: " << first.err;
  int refused = 0;
  for (int processes = 1;; ++processes) {
    ASSERT_LE(processes, 100) << "it never starts";
    const Outcome o = Job(limited(processes, command), environment).wait();
    expect_clean(o);
    if (o.code == 0) break;
    ++refused;
    EXPECT_LT(o.code, 128) << o.err;
    EXPECT_EQ(o.err.find("terminate called"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("this user may have " + std::to_string(processes) +
                         " processes and threads: raise ulimit -u"),
              std::string::npos)
        << o.err;
  }
  EXPECT_GE(refused, 10) << "two ranks with service thread, pager, reader and two workers are more";
}

TEST(ProcessLimit, OverSharedMemory) { expect_limits_are_named({}); }
TEST(ProcessLimit, OverUcx) { expect_limits_are_named({"KASANE_TRANSPORT=ucx", "KASANE_ISSUE=offload"}); }

}  // namespace
}  // namespace kasane::launch_test
