// SPDX-License-Identifier: Apache-2.0
// Sessions of forked ranks: each way to reach each other, on one host and on two that are pretended.
#include <gtest/gtest.h>

#include "comm/ucx/ucx_transport.h"
#include "exercise.h"
#include "support/multi_rank.h"

namespace kasane::comm::test {
namespace {

constexpr std::uint32_t kRanks = 4;

/// Runs the exercise on every rank; description is how rank 0's session must describe itself, up to the
/// network's own words.
void exercise(const SessionOptions& options, const std::string& description) {
  kasane::test::run_ranks(kRanks, [&](const Job& job) {
    auto session = Session::join(options, job);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_EQ((*session)->describe().substr(0, description.size()), description);
    EXPECT_EQ(Exercise(**session).run(), "");
  });
}

TEST(SessionFork, OneHostIsPlainSharedMemory) {
  exercise({}, "4 ranks on 1 host: shm");
  kasane::test::run_ranks(kRanks, [](const Job& job) {
    auto session = Session::join({.transport = "shm"}, job);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_EQ((*session)->transport().facts().name, "shm");
    EXPECT_EQ((*session)->job().host_ranks().size(), kRanks);
  });
}

TEST(SessionFork, TwoHostsAreJoinedByUcx) {
  if (!ucx::available()) GTEST_SKIP() << ucx::available().error().message;
  exercise({.transport = "auto", .hosts = 2}, "4 ranks on 2 hosts: shm within, ucx (");
  kasane::test::run_ranks(kRanks, [](const Job& job) {
    auto session = Session::join({.transport = "auto", .hosts = 2}, job);
    ASSERT_TRUE(session) << session.error().message;
    for (std::uint32_t r = 0; r < kRanks; ++r)
      EXPECT_EQ((*session)->job().on_this_host(Rank{r}), r / 2 == raw(job.rank) / 2);
    EXPECT_FALSE((*session)->transport().facts().completes_inline);
    auto& all = (*session)->out_of_band();
    EXPECT_TRUE(all.allgather({}));  // no rank leaves before all have looked
  });
}

TEST(SessionFork, UcxWhereItWasAskedForJoinsAllRanks) {
  if (!ucx::available()) GTEST_SKIP() << ucx::available().error().message;
  exercise({.transport = "ucx"}, "4 ranks on 1 host: ucx (");
  exercise({.transport = "ucx", .hosts = 4}, "4 ranks on 4 hosts: ucx (");
}

TEST(SessionFork, WhatCannotBeIsRefusedOnEveryRank) {
  struct Refusal {
    SessionOptions options;
    const char* words;
  };
  const Refusal kRefusals[] = {
      {{.transport = "mpi"}, "kasane run --transport mpi"},
      {{.transport = "shm", .hosts = 2}, "4 ranks are on 2 hosts"},
      {{.transport = "pigeons"}, "auto, shm, ucx or mpi"},
  };
  for (const Refusal& refusal : kRefusals) {
    kasane::test::run_ranks(kRanks, [&](const Job& job) {
      auto session = Session::join(refusal.options, job);
      ASSERT_FALSE(session);
      EXPECT_NE(session.error().message.find(refusal.words), std::string::npos) << session.error().message;
    });
  }
}

TEST(SessionFork, RanksThatWereAskedForDifferentThingsAreTold) {
  kasane::test::run_ranks(kRanks, [](const Job& job) {
    auto session = Session::join({.transport = job.rank == Rank{2} ? "mpi" : "ucx"}, job);
    ASSERT_FALSE(session);
    EXPECT_NE(session.error().message.find("rank 2 for --transport mpi"), std::string::npos)
        << session.error().message;
  });
}

}  // namespace
}  // namespace kasane::comm::test
