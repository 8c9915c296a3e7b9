// SPDX-License-Identifier: Apache-2.0
// The supervisor with ranks that are plain functions: how their ends become the job's. Each job runs in a
// child of its own (death test), since a supervisor takes over signals and reaps every child of its process.
#include "comm/bootstrap/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace kasane::comm {
namespace {

using diagnostics::Phase, diagnostics::RankStatus;

/// What a rank does; returns its exit code. The status page is its own.
using Rankwork = std::function<int(Rank, RankStatus&)>;

[[noreturn]] void run_job(std::uint32_t ranks, SupervisorOptions options, const Rankwork& work) {
  auto supervisor = Supervisor::create(ranks, options);
  if (!supervisor) ::_exit(201);
  const auto rank = supervisor->fork_ranks();
  if (!rank) ::_exit(202);
  if (*rank == kNoRank) ::_exit(supervisor->run());
  ::_exit(work(*rank, supervisor->status().of(*rank)));
}

int end(RankStatus& status, int code) {
  status.phase.store(Phase::ended);
  return code;
}

int wait_for_ever() {
  for (;;) ::pause();
}

TEST(SupervisorDeathTest, TheStatusIsThatOfRankZero) {
  for (const int code : {0, 1, 77}) {
    EXPECT_EXIT(run_job(4, {}, [=](Rank r, RankStatus& s) { return end(s, raw(r) == 0 ? code : 0); }),
                testing::ExitedWithCode(code), "^$");
  }
}

TEST(SupervisorDeathTest, ARankThatEndsBeforeItMayIsAnError) {
  EXPECT_EXIT(
      run_job(3, {},
              [](Rank r, RankStatus& s) {
                s.phase.store(Phase::running);
                return raw(r) == 2 ? 0 : wait_for_ever();
              }),
      testing::ExitedWithCode(1),
      "rank 2 \\(pid [0-9]+\\) exited with code 0 while the job was running(.|\n)*ending the 2 other ranks");
}

TEST(SupervisorDeathTest, ARankThatCannotStartSaysWhy) {
  EXPECT_EXIT(run_job(2, {},
                      [](Rank r, RankStatus& s) {
                        if (raw(r) == 0) return wait_for_ever();
                        s.append("no memory for the test\n");
                        return 1;
                      }),
              testing::ExitedWithCode(1),
              "rank 1 \\(pid [0-9]+\\) did not start(.|\n)*no memory for the test");
}

TEST(SupervisorDeathTest, AProgramThatEndsItselfOnAnyRankEndsTheJobWithItsStatus) {
  for (const int code : {0, 9}) {
    const auto work = [=](Rank r, RankStatus& s) {
      if (raw(r) == 0) return wait_for_ever();
      s.phase.store(Phase::exited);
      return code;
    };
    EXPECT_EXIT(run_job(2, {}, work), testing::ExitedWithCode(code), "^$");
    EXPECT_EXIT(run_job(2, {.main_in_every_rank = true}, work), testing::ExitedWithCode(code == 0 ? 1 : code),
                "rank 1 \\(pid [0-9]+\\) exited with code [09] while the job was running");
  }
}

/// Rank 0 loses rank 1, which then does the rest of its end, and is itself reaped first.
[[noreturn]] void lose_rank_1(SupervisorOptions options, Phase phase, const std::function<int()>& rest) {
  int pipe[2] = {-1, -1};
  if (::pipe(pipe) != 0) ::_exit(203);
  run_job(3, options, [&](Rank r, RankStatus& s) {
    char byte = 0;
    if (raw(r) == 2) return wait_for_ever();
    s.phase.store(raw(r) == 0 ? Phase::running : phase);
    if (raw(r) == 1) {
      static_cast<void>(!::write(pipe[1], &byte, 1));
      ::usleep(50'000);
      return rest();
    }
    static_cast<void>(!::read(pipe[0], &byte, 1));
    s.append("lost rank 1\n");
    s.lost.store(1 + 1);
    s.phase.store(Phase::gave_up);
    return 1;
  });
}

TEST(SupervisorDeathTest, TheEndOfARankThatIsLostCountsNotThoseOfRanksThatLoseIt) {
  for (const int code : {0, 9}) {
    const auto exits = [=] { return code; };
    EXPECT_EXIT(lose_rank_1({}, Phase::exited, exits), testing::ExitedWithCode(code), "^$");
    EXPECT_EXIT(lose_rank_1({.main_in_every_rank = true}, Phase::exited, exits),
                testing::ExitedWithCode(code == 0 ? 1 : code),
                "^kasane: rank 1 \\(pid [0-9]+\\) exited with code [09] while the job was running\n"
                "kasane: ending the 1 other rank\n$");
  }
  EXPECT_EXIT(lose_rank_1({}, Phase::running, [] { return ::raise(SIGKILL); }),
              testing::ExitedWithCode(128 + SIGKILL),
              "^kasane: rank 1 \\(pid [0-9]+\\) was ended by SIGKILL \\(Killed\\)\n"
              "kasane: ending the 1 other rank\n$");
}

TEST(SupervisorDeathTest, ARankThatIsLostAndDoesNotEndIsWaitedForBriefly) {
  EXPECT_EXIT(lose_rank_1({}, Phase::running, wait_for_ever), testing::ExitedWithCode(1),
              "^kasane: rank 0 \\(pid [0-9]+\\) gave up\nkasane:   lost rank 1\n"
              "kasane: ending the 2 other ranks\n$");
}

TEST(SupervisorDeathTest, AFailureAfterTheEndOfMainIsNoSuccess) {
  EXPECT_EXIT(run_job(2, {},
                      [](Rank r, RankStatus& s) {
                        if (raw(r) == 0) return end(s, 0);
                        ::usleep(20'000);  // whatever comes first, the result is the same
                        ::raise(SIGKILL);
                        return 0;
                      }),
              testing::ExitedWithCode(128 + SIGKILL), "rank 1 \\(pid [0-9]+\\) was ended by SIGKILL");
}

TEST(SupervisorDeathTest, TheReportedSignalCountsNotTheOneThatEndedTheReport) {
  EXPECT_EXIT(run_job(2, {},
                      [](Rank r, RankStatus& s) {
                        if (raw(r) == 0) return wait_for_ever();
                        s.signal.store(SIGSEGV);
                        ::raise(SIGALRM);
                        return 0;
                      }),
              testing::ExitedWithCode(128 + SIGSEGV), "was ended by SIGSEGV");
}

TEST(SupervisorDeathTest, RanksThatIgnoreTheRequestToEndAreKilled) {
  EXPECT_EXIT(run_job(3, {.main_in_every_rank = true},
                      [](Rank r, RankStatus&) {
                        ::signal(SIGTERM, SIG_IGN);
                        if (raw(r) != 1) return wait_for_ever();
                        ::usleep(20'000);
                        ::raise(SIGKILL);
                        return 0;
                      }),
              testing::ExitedWithCode(128 + SIGKILL), "rank 1");
}

TEST(SupervisorDeathTest, WithMainEverywhereRanksEndWhenTheyLike) {
  EXPECT_EXIT(run_job(3, {.main_in_every_rank = true},
                      [](Rank r, RankStatus& s) {
                        ::usleep(raw(r) * 20'000);
                        return end(s, 0);
                      }),
              testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(run_job(3, {.main_in_every_rank = true},
                      [](Rank r, RankStatus& s) { return end(s, raw(r) == 1 ? 6 : 0); }),
              testing::ExitedWithCode(6), "rank 1 \\(pid [0-9]+\\) ended with exit code 6");
}

TEST(SupervisorDeathTest, GrandchildrenThatHideInASessionOfTheirOwnAreEnded) {
  int watch[2];
  ASSERT_EQ(::pipe(watch), 0);
  EXPECT_EXIT(
      {
        ::close(watch[0]);
        run_job(2, {}, [&](Rank r, RankStatus& s) {
          if (raw(r) == 1 && ::fork() == 0) {
            ::setsid();
            if (::fork() != 0) ::_exit(0);  // as a daemon does
            ::signal(SIGTERM, SIG_IGN);
            wait_for_ever();
          }
          return end(s, 0);
        });
      },
      testing::ExitedWithCode(0), "");
  ::close(watch[1]);
  // The write end is closed in everybody only when everybody is gone; a survivor would make this wait until
  // the test's time limit.
  char c;
  EXPECT_EQ(::read(watch[0], &c, 1), 0);
  ::close(watch[0]);
}

TEST(SupervisorDeathTest, AnIgnoredChildSignalDoesNotLoseTheStatus) {
  EXPECT_EXIT(
      {
        ::signal(SIGCHLD, SIG_IGN);  // as some daemons start their programs
        run_job(2, {}, [](Rank r, RankStatus& s) {
          struct sigaction now = {};
          ::sigaction(SIGCHLD, nullptr, &now);
          return end(s, raw(r) == 0 ? (now.sa_handler == SIG_IGN ? 12 : 13) : 0);
        });
      },
      testing::ExitedWithCode(12), "^$");
}

TEST(SupervisorDeathTest, TheMaskOfTheProgramIsTheOneItWasStartedWith) {
  EXPECT_EXIT(
      {
        sigset_t set;
        ::sigemptyset(&set);
        ::sigaddset(&set, SIGUSR2);
        ::sigprocmask(SIG_SETMASK, &set, nullptr);
        run_job(1, {}, [](Rank, RankStatus& s) {
          sigset_t now;
          ::sigprocmask(SIG_BLOCK, nullptr, &now);
          return end(s, ::sigismember(&now, SIGUSR2) == 1 && ::sigismember(&now, SIGTERM) == 0 &&
                                ::sigismember(&now, SIGCHLD) == 0
                            ? 0
                            : 1);
        });
      },
      testing::ExitedWithCode(0), "");
}

TEST(SupervisorDeathTest, TaggedOutputIsWholeAlsoWhenARankDies) {
  EXPECT_EXIT(run_job(2, {.tag_output = true},
                      [](Rank r, RankStatus&) {
                        if (raw(r) == 0) return wait_for_ever();
                        for (int i = 0; i < 1000; ++i) ::dprintf(2, "line %d\n", i);
                        ::dprintf(2, "the last words");
                        ::raise(SIGKILL);
                        return 0;
                      }),
              testing::ExitedWithCode(128 + SIGKILL),
              "\\[1\\] line 0\n(.|\n)*\\[1\\] line 999\n(.|\n)*\\[1\\] the last words\n");
}

}  // namespace
}  // namespace kasane::comm
