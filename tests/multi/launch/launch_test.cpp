// SPDX-License-Identifier: Apache-2.0
// Jobs as a user starts, interrupts and breaks them. In every case the exit status is right, the message
// names the rank and the reason, and nothing is left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

const std::string kProgram = KASANE_LAUNCH_PROGRAM;

/// What must hold after every job.
void expect_clean(const Outcome& o) {
  EXPECT_TRUE(o.ended) << "hangs; its standard error:\n" << o.err;
  EXPECT_TRUE(o.left.empty()) << o.left.size() << " processes left";
  EXPECT_EQ(kasane_files_in_dev_shm(), 0);
}

Outcome run_on(int ranks, const std::string& deed, std::vector<std::string> environment = {},
               std::string input = {}) {
  Outcome o = kasane_run({"-n", std::to_string(ranks), "--", kProgram, deed}, std::move(environment),
                         std::move(input));
  expect_clean(o);
  return o;
}

/// One rank of `ranks` does it, in main; the others wait for ever.
Outcome run_one_of(int ranks, int rank, const std::string& deed) {
  Outcome o = kasane_run({"-n", std::to_string(ranks), "--", kProgram, deed, std::to_string(rank)},
                         {"KASANE_MAIN=all"});
  expect_clean(o);
  return o;
}

void expect_says(const Outcome& o, const std::string& text) {
  EXPECT_NE(o.err.find(text), std::string::npos) << "missing: " << text << "\nin:\n" << o.err;
}

/// The state letter of a process (R, S, T …).
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto at = text.rfind(')');
  return at == std::string::npos || at + 2 >= text.size() ? 'X' : text[at + 2];
}

bool eventually(auto condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// pids of ranks, from the lines of the deed "pid".
std::map<int, pid_t> pids_in(const std::string& out) {
  std::map<int, pid_t> pids;
  for (const auto& line : lines_of(out)) {
    int rank = 0, pid = 0;
    if (std::sscanf(line.c_str(), "rank %d pid %d", &rank, &pid) == 2) pids[rank] = pid;
  }
  return pids;
}

// ---- an orderly end ----

TEST(Launch, TheExitStatusIsThatOfMain) {
  for (const int ranks : {1, 2, 4}) {
    EXPECT_EQ(run_on(ranks, "return").code, 0);
    EXPECT_EQ(run_on(ranks, "return3").code, 3);
    EXPECT_EQ(run_on(ranks, "return255").code, 255);
    EXPECT_EQ(run_on(ranks, "exit7").code, 7) << "exit() in main is an orderly end";
    EXPECT_EQ(run_on(ranks, "exit0").code, 0);
  }
}

TEST(Launch, AnOrderlyEndSaysNothing) {
  for (const char* deed : {"return", "return3", "exit7", "exit0"})
    EXPECT_EQ(without_sanitizer(run_on(3, deed).err), "") << deed;
}

TEST(Launch, WithoutTheLauncherAProgramIsOneRank) {
  Outcome o = Job({kProgram, "hello"}).wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.out.find("hello from rank 0 of 1\n"), std::string::npos);
  EXPECT_EQ(Job({kProgram, "return3"}).wait().code, 3);
}

TEST(Launch, MainRunsOnRankZeroOnly) {
  const Outcome o = run_on(4, "hello");
  EXPECT_EQ(count_of(o.out, "hello from"), 1);
  EXPECT_EQ(count_of(o.out, "hello from rank 0 of 4\n"), 1);
}

TEST(Launch, MainRunsEverywhereIfTheProgramSaysSo) {
  const Outcome o = run_on(4, "hello", {"KASANE_MAIN=all"});
  EXPECT_EQ(o.code, 0) << o.err;
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(count_of(o.out, "hello from rank " + std::to_string(r) + " of 4\n"), 1);
}

TEST(Launch, StaticObjectsLiveOnce) {
  EXPECT_EQ(run_on(2, "constructed", {"KASANE_MAIN=all"}).code, 0);
  EXPECT_EQ(count_of(run_on(3, "return").out, "destroyed\n"), 1);
  EXPECT_EQ(count_of(run_on(3, "return", {"KASANE_GLOBALS=private"}).out, "destroyed\n"), 3);
}

// ---- what cannot start ----

TEST(Launch, RefusesImpossibleNumbersOfRanks) {
  for (const char* ranks : {"0", "100000", "-1", "three"}) {
    const Outcome o = kasane_run({"-n", ranks, "--", kProgram, "return"});
    expect_clean(o);
    EXPECT_NE(o.code, 0) << ranks;
    expect_says(o, ranks);
    const Outcome direct = Job({kProgram, "return"}, {"KASANE_RANKS=" + std::string(ranks)}).wait();
    expect_clean(direct);
    EXPECT_NE(direct.code, 0) << ranks;
    expect_says(direct, ranks);
  }
}

TEST(Launch, RefusesMoreAddressesThanThereAre) {
  const Outcome o = kasane_run({"-n", "100", "--space", "1T", "--", kProgram, "return"});
  expect_clean(o);
  EXPECT_NE(o.code, 0);
  expect_says(o, "64 TiB");
}

TEST(Launch, SaysWhichProgramIsMissing) {
  const Outcome missing = kasane_run({"-n", "2", "--", "/no/such/program"});
  expect_clean(missing);
  EXPECT_EQ(missing.code, 127);
  expect_says(missing, "/no/such/program");
  const Outcome unnamed = kasane_run({"-n", "2", "--", "no-such-program-in-path"});
  EXPECT_EQ(unnamed.code, 127);
  expect_says(unnamed, "no-such-program-in-path");
}

TEST(Launch, SaysWhichProgramIsNoProgram) {
  const std::string path = testing::TempDir() + "kasane_launch_not_executable";
  std::ofstream(path) << "text\n";
  ::chmod(path.c_str(), 0644);
  const Outcome o = kasane_run({"-n", "2", "--", path});
  ::unlink(path.c_str());
  expect_clean(o);
  EXPECT_EQ(o.code, 126);
  expect_says(o, path);
}

// ---- ranks that die ----

class LaunchDeath : public testing::TestWithParam<int> {};

TEST_P(LaunchDeath, ASegmentationFaultIsNamedWithItsStack) {
  const Outcome o = run_one_of(3, GetParam(), "segv");
  EXPECT_EQ(o.code, 128 + SIGSEGV);
  expect_says(o, "rank " + std::to_string(GetParam()) + " (pid ");
  expect_says(o, "SIGSEGV");
  expect_says(o, "0x1234560");
  expect_says(o, "store_to_a_wild_address()");
  EXPECT_EQ(count_of(o.err, "was ended by"), 1) << "one message, of the rank that died first:\n" << o.err;
}

TEST_P(LaunchDeath, AnAbortIsNamedWithItsStack) {
  const Outcome o = run_one_of(3, GetParam(), "abort");
  EXPECT_EQ(o.code, 128 + SIGABRT);
  expect_says(o, "rank " + std::to_string(GetParam()) + " (pid ");
  expect_says(o, "SIGABRT");
}

TEST_P(LaunchDeath, AnUncaughtExceptionKeepsItsMessage) {
  const Outcome o = run_one_of(3, GetParam(), "throw");
  EXPECT_EQ(o.code, 128 + SIGABRT);
  expect_says(o, "nobody catches me");
  expect_says(o, "rank " + std::to_string(GetParam()) + " (pid ");
}

TEST_P(LaunchDeath, AKilledRankIsNamed) {
  const Outcome o = run_one_of(3, GetParam(), "kill");
  EXPECT_EQ(o.code, 128 + SIGKILL);
  expect_says(o, "rank " + std::to_string(GetParam()) + " (pid ");
  expect_says(o, "SIGKILL");
}

TEST_P(LaunchDeath, AnExitPastTheRuntimeIsNamed) {
  const Outcome o = run_one_of(3, GetParam(), "_exit0");
  EXPECT_EQ(o.code, 1) << "never a success";
  expect_says(o, "rank " + std::to_string(GetParam()) + " (pid ");
  expect_says(o, "while the job was running");
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaunchDeath, testing::Values(0, 1, 2));

TEST(Launch, ARankKilledFromOutsideEndsTheJob) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    Job job(kasane_run_command({"-n", "3", "--", kProgram, "pid"}), {"KASANE_MAIN=all"});
    ASSERT_TRUE(job.wait_for_output("pid", 3));
    std::vector<pid_t> family = job.family();
    std::erase(family, job.pid());
    ASSERT_EQ(family.size(), 3u);
    ::kill(family[1], signal);
    const Outcome o = job.wait();
    expect_clean(o);
    EXPECT_EQ(o.code, 128 + signal);
    for (const auto& [rank, pid] : pids_in(o.out)) {
      if (pid == family[1])
        expect_says(o, "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ")");
    }
  }
}

TEST(Launch, AServingRankKilledMidRunEndsTheJob) {
  Job job(kasane_run_command({"-n", "2", "--", kProgram, "busy"}));
  ASSERT_TRUE(job.wait_for_output("ready"));
  std::vector<pid_t> family = job.family();
  std::erase(family, job.pid());
  ASSERT_EQ(family.size(), 2u);
  ::kill(std::max(family[0], family[1]), SIGKILL);
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 128 + SIGKILL);
  expect_says(o, "SIGKILL");
}

// timeout(1) and batch systems signal all processes of a job at once.
TEST(Launch, ASignalToTheGroupEndsTheJobByIt) {
  for (int i = 0; i < 6; ++i) {
    const bool paging = i % 2 != 0;
    Job job(kasane_run_command({"-n", "2", "--dram", paging ? "24M" : "1G", "--", kProgram, "page"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    ::kill(-job.pid(), SIGTERM);
    const Outcome o = job.wait();
    expect_clean(o);
    EXPECT_EQ(o.code, 128 + SIGTERM) << o.err;
    EXPECT_EQ(o.err.find("SIGSEGV"), std::string::npos) << o.err;
  }
}

TEST(Launch, WhenTheSupervisorIsKilledTheRanksDie) {
  Job job(kasane_run_command({"-n", "3", "--", kProgram, "pid"}), {"KASANE_MAIN=all"});
  ASSERT_TRUE(job.wait_for_output("pid", 3));
  ::kill(job.pid(), SIGKILL);
  expect_clean(job.wait());
}

TEST(Launch, OrphansOfARankAreEnded) {
  const Outcome o = run_on(2, "orphan");
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.out.find("started"), std::string::npos);
}

// ---- threads that break the rules ----

TEST(LaunchThreads, ExitInAThreadEndsTheJobWithItsStatus) {
  const Outcome o = run_on(2, "thread-exit");
  expect_clean(o);
  EXPECT_EQ(o.code, 0);
}

TEST(LaunchThreads, ExitOnAServingRankEndsTheJobWithItsStatus) {
  const Outcome o = run_on(2, "elsewhere-exit");
  expect_clean(o);
  EXPECT_EQ(o.code, 4);
}

TEST(LaunchThreads, AFaultOnAServingRankIsNamed) {
  const Outcome o = run_on(2, "elsewhere-segv");
  EXPECT_EQ(o.code, 128 + SIGSEGV);
  expect_says(o, "rank 1 (pid ");
  expect_says(o, "user-level thread in slot");
  expect_says(o, "store_to_a_wild_address()");
}

TEST(LaunchThreads, AFaultInAThreadSaysWhere) {
  const Outcome alone = Job({kProgram, "thread-segv"}).wait();
  expect_clean(alone);
  EXPECT_EQ(alone.code, 128 + SIGSEGV);
  expect_says(alone, "user-level thread in slot");
  expect_says(alone, "store_to_a_wild_address");
}

TEST(LaunchThreads, AWildPointerIntoTheSpaceIsAnErrorNotAHang) {
  for (const int ranks : {1, 2}) {
    const Outcome o = run_on(ranks, "wild-in-space");
    EXPECT_EQ(o.code, 128 + SIGSEGV);
    expect_says(o, "nothing is allocated");
  }
}

TEST(LaunchThreads, AStackOverflowSaysSo) {
  for (const char* deed : {"thread-overflow", "overflow"}) {
    const Outcome o = run_on(2, deed);
    EXPECT_EQ(o.code, 128 + SIGSEGV) << deed;
    expect_says(o, "stack overflow");
    expect_says(o, "KASANE_");
  }
}

TEST(LaunchThreads, ForkOnASharedStackWorksOrIsRefused) {
  for (const char* deed : {"fork-thread", "fork-main"}) {
    const Outcome o = run_on(2, deed);
#if defined(KASANE_SANITIZER_ADDRESS) || defined(KASANE_SANITIZER_THREAD)
    EXPECT_EQ(o.code, 128 + SIGABRT) << deed;
    expect_says(o, "a fork within a library");
#else
    EXPECT_EQ(o.code, 0) << deed << o.err;
#endif
  }
}

TEST(LaunchThreads, ForkElsewhereWorks) {
  const Outcome o = run_on(2, "fork-os-thread");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(without_sanitizer(o.err), "");
}

TEST(LaunchThreads, ProgramsMayBeStartedAndAreNoJobs) {
  const Outcome o = run_on(2, "programs");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("from system"), std::string::npos);
}

TEST(LaunchThreads, AProgramsOwnFaultHandlerIsChained) {
  for (const int ranks : {1, 2, 4}) {
    const Outcome o = run_on(ranks, "own-faults");
    EXPECT_EQ(o.code, 0) << o.err;
  }
  EXPECT_EQ(Job({kProgram, "own-faults"}).wait().code, 0);
}

// ---- input and output ----

TEST(Launch, StandardInputGoesToRankZero) {
  const Outcome o = run_on(3, "input", {}, "first\nsecond\n");
  EXPECT_NE(o.out.find("input: first\ninput: second\nend of input\n"), std::string::npos) << o.out;
  const Outcome all = run_on(3, "input", {"KASANE_MAIN=all"}, "first\nsecond\n");
  EXPECT_EQ(count_of(all.out, "input: "), 2) << "only rank 0 reads";
  EXPECT_EQ(count_of(all.out, "end of input"), 3) << "the others see an end at once";
}

TEST(Launch, TaggedOutputNamesTheRankOfEveryLine) {
  Outcome o = kasane_run({"-n", "3", "--tag-output", "--", kProgram, "lines"}, {"KASANE_MAIN=all"});
  expect_clean(o);
  EXPECT_EQ(o.code, 0);
  std::map<char, int> next;  // lines of one rank keep their order
  for (const auto& line : lines_of(o.out)) {
    ASSERT_EQ(line[0], '[') << line;
    ASSERT_EQ(line.substr(2, 2), "] ") << line;
    const std::string text = line.substr(4);
    if (text.rfind("line ", 0) != 0) continue;
    EXPECT_EQ(text, "line " + std::to_string(next[line[1]]) + " of a rank");
    ++next[line[1]];
  }
  for (const char rank : {'0', '1', '2'}) EXPECT_EQ(next[rank], 2000);
  EXPECT_EQ(count_of(o.out, "no newline here"), 3) << "an unfinished line is not lost";
  EXPECT_EQ(count_of(o.err, "] error line "), 60);
}

TEST(Launch, OutputIsNotTaggedUnlessAsked) { EXPECT_EQ(count_of(run_on(2, "lines").out, "[0] "), 0); }

TEST(Launch, TaggedOutputSurvivesAReaderThatLeaves) {
  Outcome o =
      Job({"sh", "-c",
           std::string(KASANE_COMMAND) + " run -n 2 --tag-output -- " + kProgram + " lines | head -n 1"},
          {"KASANE_MAIN=all"})
          .wait();
  expect_clean(o);
  EXPECT_EQ(lines_of(o.out).size(), 1u);
}

// ---- signals ----

TEST(LaunchSignals, TheProgramsHandlerGetsThem) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    Job job(kasane_run_command({"-n", "3", "--", kProgram, "signal"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    ::kill(job.pid(), signal);
    const Outcome o = job.wait();
    expect_clean(o);
    EXPECT_EQ(o.code, 5) << o.err;
    EXPECT_NE(o.out.find("got " + std::to_string(signal) + "\n"), std::string::npos);
  }
}

TEST(LaunchSignals, ToTheWholeGroupTheyReachMainWithoutKillingTheServingRanks) {
  Job job(kasane_run_command({"-n", "3", "--", kProgram, "signal"}));
  ASSERT_TRUE(job.wait_for_output("ready"));
  ::kill(-job.pid(), SIGINT);  // as the terminal and timeout(1) do
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 5) << o.err;
}

TEST(LaunchSignals, WithoutAHandlerTheyEndTheJob) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Job job(kasane_run_command({"-n", "3", "--", kProgram, "pid"}));
    ASSERT_TRUE(job.wait_for_output("pid"));
    ::kill(job.pid(), signal);
    const Outcome o = job.wait();
    expect_clean(o);
    EXPECT_EQ(o.code, 128 + signal);
    expect_says(o, "which was sent to the job");
  }
}

TEST(LaunchSignals, StopAndContinueReachAllRanks) {
  Job job(kasane_run_command({"-n", "3", "--", kProgram, "pid"}), {"KASANE_MAIN=all"});
  ASSERT_TRUE(job.wait_for_output("pid", 3));
  const auto all_stopped = [&](bool wanted) {
    return eventually([&] {
      const auto family = job.family();
      return family.size() == 4 && std::all_of(family.begin(), family.end(),
                                               [&](pid_t p) { return (state_of(p) == 'T') == wanted; });
    });
  };
  ::kill(job.pid(), SIGTSTP);
  EXPECT_TRUE(all_stopped(true));
  ::kill(job.pid(), SIGCONT);
  EXPECT_TRUE(all_stopped(false));
  ::kill(job.pid(), SIGTERM);
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 128 + SIGTERM);
}

TEST(LaunchSignals, AStoppedRankDoesNotKeepTheJobFromEnding) {
  Job job(kasane_run_command({"-n", "3", "--", kProgram, "pid"}), {"KASANE_MAIN=all"});
  ASSERT_TRUE(job.wait_for_output("pid", 3));
  std::vector<pid_t> family = job.family();
  std::erase(family, job.pid());
  ASSERT_EQ(family.size(), 3u);
  ::kill(family[0], SIGSTOP);
  ::kill(family[1], SIGKILL);
  const Outcome o = job.wait();
  expect_clean(o);
  EXPECT_EQ(o.code, 128 + SIGKILL);
}

}  // namespace
}  // namespace kasane::launch_test
