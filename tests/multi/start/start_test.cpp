// SPDX-License-Identifier: Apache-2.0
// Programs that an mpirun starts become one job, agree or refuse with the name of the rank, and end as users
// expect; so do jobs that kasane run starts over a network.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

const std::string kProgram = KASANE_LAUNCH_PROGRAM;
const std::vector<std::string> kRoot{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};

/// The networks of this build: ucx, openmpi, mpich.
std::vector<std::string> networks() {
  std::istringstream names(KASANE_NETWORK_NAMES);
  std::vector<std::string> all;
  for (std::string name; std::getline(names, name, ',');) all.push_back(name);
  return all;
}
/// What may run between the ranks of an mpirun's here; auto: shared memory.
std::vector<std::string> transports() {
  const std::vector<std::string> there = networks();
  std::vector<std::string> all{"auto", "mpi"};
  if (std::find(there.begin(), there.end(), "ucx") != there.end()) all.emplace_back("ucx");
  return all;
}
bool is_mpi(const std::string& network) { return network != "ucx"; }
bool has_launcher(const std::string& mpi) { return ::access(("/usr/bin/mpirun." + mpi).c_str(), X_OK) == 0; }

void expect_clean(const Outcome& o) {
  EXPECT_TRUE(o.ended) << "hangs; its standard error:\n" << o.err;
  EXPECT_TRUE(o.left.empty()) << o.left.size() << " processes left";
}
void expect_says(const Outcome& o, const std::string& text) {
  EXPECT_NE((o.err + o.out).find(text), std::string::npos) << "missing: " << text << "\nin:\n"
                                                           << o.err << o.out;
}

std::vector<std::string> mpirun(const std::string& mpi, std::vector<std::string> command) {
  std::vector<std::string> words{"mpirun." + mpi, "-n", "2"};
  if (mpi == "openmpi") words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// A shell on each rank that does `first` on rank 1 alone, then becomes the program.
std::vector<std::string> but_on_rank_1(const std::string& first, const std::string& deed) {
  return {"sh", "-c",
          "if [ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 1 ]; then " + first + "; fi; exec " + kProgram +
              " " + deed};
}

std::vector<std::string> over(const std::string& network, const std::string& deed) {
  if (is_mpi(network))
    return kasane_run_command({"-n", "2", "--transport", "mpi", "--mpi", network, "--", kProgram, deed});
  return kasane_run_command({"-n", "2", "--transport", network, "--", kProgram, deed});
}

class Mpirun : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_mpi(GetParam())) GTEST_SKIP() << "has no mpirun";
    if (!has_launcher(GetParam())) GTEST_SKIP() << "no mpirun." << GetParam();
  }
  Outcome run(std::vector<std::string> command, std::vector<std::string> environment = {}) {
    environment.insert(environment.end(), kRoot.begin(), kRoot.end());
    Outcome o = Job(mpirun(GetParam(), std::move(command)), std::move(environment)).wait();
    expect_clean(o);
    return o;
  }
};

TEST_P(Mpirun, ItsRanksAreOneJob) {
  const Outcome o = run({kProgram, "hello"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(count_of(o.out, "hello from rank 0 of 2\n"), 1);
  EXPECT_EQ(count_of(o.out, "hello from"), 1);
  EXPECT_EQ(run({kProgram, "return3"}).code, 3);
}

TEST_P(Mpirun, TheStatusIsMainsHoweverItEndsAndWhateverRunsBetween) {
  for (const std::string& transport : transports()) {
    const std::vector<std::string> environment{"KASANE_TRANSPORT=" + transport};
    for (const auto& [deed, code] : {std::pair{"return", 0}, {"exit7", 7}, {"return3", 3}, {"exit0", 0}}) {
      if (transport != "auto" && (deed == std::string("return3") || deed == std::string("exit0")))
        continue;  // over each a return and an exit, a zero and another status
      const Outcome o = run({kProgram, deed}, environment);
      EXPECT_EQ(o.code, code) << deed << " over " << transport << "\n" << o.err;
      if (code != 0) continue;  // then mpirun reports it, and ends the ranks that have not ended yet
      // Not with the end of its line: mpirun may put the other rank's words before that.
      EXPECT_EQ(count_of(o.out, "destroyed"), 1)
          << "once, also after exit(): " << deed << " over " << transport;
      EXPECT_EQ(o.err, "") << deed << " over " << transport;
    }
  }
}

TEST_P(Mpirun, ThreadsThatWereDetachedDoNotChangeTheEnd) {
  for (const std::string& transport : transports()) {
    for (const auto& [deed, code] : {std::pair{"detached", 3}, {"detached-exit", 5}}) {
      if (transport != "auto" && code == 5) continue;  // over each, how main ends is the test above
      const Outcome o = run({kProgram, deed}, {"KASANE_TRANSPORT=" + transport, "KASANE_WORKERS=2"});
      EXPECT_EQ(o.code, code) << deed << " over " << transport << "\n" << o.err;
      expect_says(o, "left running");
      EXPECT_EQ(count_of(o.err, "SIG"), 0) << o.err;
    }
  }
}

TEST_P(Mpirun, MainRunsEverywhereIfTheProgramSaysSo) {
  const Outcome o = run({kProgram, "hello"}, {"KASANE_MAIN=all"});
  EXPECT_EQ(o.code, 0) << o.err;
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(count_of(o.out, "hello from rank " + std::to_string(r) + " of 2\n"), 1);
}

TEST_P(Mpirun, RankZerosOptionsAreTheJobs) {
  EXPECT_EQ(run(but_on_rank_1("export KASANE_SPACE=64G KASANE_WORKERS=3 KASANE_STACK=128K", "return")).code,
            0);
}

TEST_P(Mpirun, ARankWithoutRoomForTheSpaceIsNamed) {
  const Outcome o = run(but_on_rank_1("ulimit -v 300000000", "return"));
  EXPECT_NE(o.code, 0);
  expect_says(o, "rank 1 has no room for a space of 1T");
}

TEST_P(Mpirun, ARankWithOtherCodeIsNamed) {
  const Outcome o = run(but_on_rank_1("export LD_PRELOAD=libutil.so.1", "return"));
  EXPECT_NE(o.code, 0);
  expect_says(o, "rank 1 has loaded other code than rank 0");
}

TEST_P(Mpirun, ARankWithOtherGuardsIsNamedWithTheRemedy) {
  const std::string key = GetParam() == "openmpi"
                              ? "OMPI_MCA_orte_precondition_transports=0123456789abcdef-0123456789abcdef"
                              : "KASANE_JOB_KEY=another";
  const Outcome o = run(but_on_rank_1("export " + key, "return"));
  EXPECT_NE(o.code, 0);
  expect_says(o, "rank 1 has other stack guards than rank 0");
  expect_says(o, "pass the same one to all ranks");
}

TEST_P(Mpirun, WhatOnlySomeHostsInheritDoesNotMakeGuardsDiffer) {
  EXPECT_EQ(run(but_on_rank_1("export SLURM_JOB_ID=17 SLURM_STEP_ID=1", "return")).code, 0);
  // An outer job's; or the user's, which nobody needs where Open MPI has a key of its own.
  const std::string mine = GetParam() == "openmpi"
                               ? "KASANE_JOB_KEY=mine"
                               : "PMIX_NAMESPACE=outer OMPI_MCA_orte_precondition_transports=outer";
  EXPECT_EQ(run(but_on_rank_1("export " + mine, "return")).code, 0);
}

TEST_P(Mpirun, OnlyTheRanksOfThisHostMustFit) {
  // As if on many hosts: what the ranks of others need is no reason to refuse here. Alone, this one fails
  // later, when it loads its MPI.
  const std::vector<std::string> many =
      GetParam() == "openmpi"
          ? std::vector<std::string>{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1000",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE=1"}
          : std::vector<std::string>{"PMI_RANK=0", "PMI_SIZE=1000"};
  std::vector<std::string> environment = many;
  environment.emplace_back("KASANE_SPACE=1G");
  const Outcome o = Job({"sh", "-c", "ulimit -n 600; exec " + kProgram + " return"}, environment).wait();
  expect_clean(o);
  EXPECT_NE(o.code, 0);
  EXPECT_EQ(count_of(o.err, "file descriptors a process"), 0) << o.err;
}

TEST_P(Mpirun, ProgramsThatForkedRanksStartAreNotItsRanks) {
  // Two times kasane run, whose forked ranks still have mpirun's variables.
  const Outcome o = run(kasane_run_command({"-n", "2", "--", kProgram, "start-oneself"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(count_of(o.out, "hello from rank 0 of 1\n"), 2) << o.out;
}

TEST_P(Mpirun, TheUsersStackLimitIsBackAfterTheSecondStart) {
  const Outcome o = run({"sh", "-c", "ulimit -Ss 4096; exec " + kProgram + " stack-limit"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(count_of(o.out, "child stack 4096 KiB\n"), 1) << o.out;
  EXPECT_EQ(count_of(o.out, "stack 4096 KiB\n"), 2) << o.out;
}

TEST_P(Mpirun, ASignalPassesWhereMainDoesNotRunWhateverThatRankWasTold) {
  std::vector<std::string> environment = kRoot;
  Job job(mpirun(GetParam(), but_on_rank_1("export KASANE_MAIN=all", "signal")), environment);
  ASSERT_TRUE(job.wait_for_output("ready"));
  for (const pid_t pid : job.family()) {
    std::string path(4096, '\0');
    const ssize_t n = ::readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path.data(), path.size());
    if (n > 0 && path.substr(0, static_cast<std::size_t>(n)) == kProgram) ::kill(pid, SIGUSR1);
  }
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 5) << o.err;
}

TEST_P(Mpirun, ACrashIsReportedAndEndsTheJob) {
  const Outcome o = run({kProgram, "elsewhere-segv"});
  EXPECT_NE(o.code, 0);
  expect_says(o, "kasane: rank 1");
  expect_says(o, "SIGSEGV");
}

TEST_P(Mpirun, WithRanksAskedForItForksThemInstead) {
  const Outcome o =
      Job({kProgram, "hello"}, {"KASANE_RANKS=3", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"}).wait();
  expect_clean(o);
  EXPECT_EQ(count_of(o.out, "hello from rank 0 of 3\n"), 1);
}

INSTANTIATE_TEST_SUITE_P(Networks, Mpirun, ::testing::ValuesIn(networks()),
                         [](const auto& p) { return p.param; });

class OverNetwork : public ::testing::TestWithParam<std::string> {};

TEST_P(OverNetwork, TheExitStatusIsThatOfMain) {
  const Outcome o = Job(over(GetParam(), "return3")).wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 3);
  EXPECT_EQ(Job(over(GetParam(), "exit7")).wait().code, 7);
}

TEST_P(OverNetwork, StandardInputGoesToRankZero) {
  const Outcome o = Job(over(GetParam(), "input"), {}, "one\ntwo\n").wait();
  expect_clean(o);
  EXPECT_EQ(o.out.substr(0, o.out.find("destroyed")), "input: one\ninput: two\nend of input\n");
}

TEST_P(OverNetwork, AnInterruptEndsTheJob) {
  Job job(over(GetParam(), "busy"));
  ASSERT_TRUE(job.wait_for_output("ready"));
  ::kill(job.pid(), SIGINT);
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_TRUE(o.code != 0 || GetParam() == "mpich")
      << "only MPICH's mpirun ends with 0 after an interrupt, whatever it runs";
}

TEST_P(OverNetwork, ACrashOnAnotherRankIsNamed) {
  const Outcome o = Job(over(GetParam(), "elsewhere-segv")).wait();
  expect_clean(o);
  EXPECT_NE(o.code, 0);
  expect_says(o, "rank 1");
  expect_says(o, "SIGSEGV");
}

INSTANTIATE_TEST_SUITE_P(Networks, OverNetwork, ::testing::ValuesIn(networks()),
                         [](const auto& p) { return p.param; });

TEST(Start, ThreadsThatWereDetachedDoNotChangeTheEnd) {
  for (const char* ranks : {"1", "2"}) {
    for (const std::string& transport : transports()) {
      if (transport == "mpi") continue;
      for (const auto& [deed, code] : {std::pair{"detached", 3}, {"detached-exit", 5}}) {
        const Outcome o = Job(kasane_run_command({"-n", ranks, "--workers", "2", "--transport", transport,
                                                  "--", kProgram, deed}))
                              .wait();
        expect_clean(o);
        EXPECT_EQ(o.code, code) << deed << " on " << ranks << " ranks over " << transport << "\n" << o.err;
        EXPECT_EQ(o.err, "");
        expect_says(o, "left running");
      }
    }
  }
}

TEST(Start, MpiWithoutMpirunSaysWhatToInstall) {
  std::vector<std::string> command =
      kasane_run_command({"-n", "2", "--transport", "mpi", "--", kProgram, "return"});
  const Outcome o = Job(command, {"PATH=/nowhere"}).wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 127);
  expect_says(o, "install the package openmpi-bin or mpich");
}

TEST(Start, ForkedRanksCannotUseMpiAndSaySo) {
  const Outcome o = Job({kProgram, "return"}, {"KASANE_RANKS=2", "KASANE_TRANSPORT=mpi"}).wait();
  expect_clean(o);
  EXPECT_NE(o.code, 0);
  expect_says(o, "mpirun");
}

}  // namespace
}  // namespace kasane::launch_test
