// SPDX-License-Identifier: Apache-2.0
// What a session decides, and what it is told. (What it builds: tests/multi/comm_session.)
#include "comm/session/session.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "comm/session/plan.h"
#include "comm/shm/shm_transport.h"

namespace kasane::comm {
namespace {

struct Row {
  const char* asked;
  Launcher launcher;
  std::uint32_t ranks, hosts;
  bool ucx;
  NetworkKind network;
  bool within_hosts;
};

TEST(SessionPlan, EverythingThatWorks) {
  constexpr Row kRows[] = {
      {"auto", Launcher::alone, 1, 1, false, NetworkKind::none, false},
      {"auto", Launcher::fork, 4, 1, true, NetworkKind::none, false},
      {"auto", Launcher::fork, 4, 2, true, NetworkKind::ucx, false},
      {"auto", Launcher::mpi, 4, 1, true, NetworkKind::none, false},
      {"auto", Launcher::mpi, 4, 2, true, NetworkKind::ucx, false},
      {"auto", Launcher::mpi, 4, 2, false, NetworkKind::mpi, false},
      {"shm", Launcher::fork, 4, 1, true, NetworkKind::none, false},
      {"shm", Launcher::mpi, 4, 1, false, NetworkKind::none, false},
      {"ucx", Launcher::fork, 4, 1, true, NetworkKind::ucx, true},
      {"ucx", Launcher::mpi, 4, 2, true, NetworkKind::ucx, true},
      {"mpi", Launcher::mpi, 4, 1, true, NetworkKind::mpi, true},
      {"mpi", Launcher::mpi, 4, 4, false, NetworkKind::mpi, true},
      // A program that a rank starts inherits what was asked for, and runs nothing between ranks.
      {"mpi", Launcher::alone, 1, 1, false, NetworkKind::none, false},
      {"ucx", Launcher::alone, 1, 1, false, NetworkKind::none, false},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(std::string(row.asked) + ", " + std::to_string(row.ranks) + " ranks, " +
                 std::to_string(row.hosts) + " hosts");
    const auto plan = make_plan({.asked = row.asked,
                                 .launcher = row.launcher,
                                 .ranks = row.ranks,
                                 .hosts = row.hosts,
                                 .ucx = row.ucx,
                                 .why_no_ucx = "none"});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->network, row.network);
    EXPECT_EQ(plan->within_hosts, row.within_hosts);
  }
}

TEST(SessionPlan, RanksOfAProgramsOwnMpiAreNotJoinedByIt) {
  Situation s{.asked = "auto", .launcher = Launcher::mpi, .ranks = 4, .hosts = 2, .attached = true};
  s.why_no_ucx = "there is none";
  EXPECT_FALSE(make_plan(s));
  s.ucx = true;
  EXPECT_EQ(make_plan(s).value().network, NetworkKind::ucx);
  s.hosts = 1;
  EXPECT_EQ(make_plan(s).value().network, NetworkKind::none);
}

TEST(SessionPlan, RanksThatAgentsStartedHaveNoMpi) {
  Situation s{.asked = "mpi", .launcher = Launcher::mpi, .ranks = 4, .hosts = 2, .without_mpi = true};
  EXPECT_FALSE(make_plan(s));
  s.asked = "auto";
  EXPECT_FALSE(make_plan(s));
  s.ucx = true;
  EXPECT_EQ(make_plan(s).value().network, NetworkKind::ucx);
}

TEST(SessionPlan, EveryRefusalSaysWhyAndWhatToDo) {
  struct Refusal {
    const char* asked;
    Launcher launcher;
    std::uint32_t hosts;
    std::vector<const char*> words;
  };
  const Refusal kRefusals[] = {
      {"shm", Launcher::mpi, 2, {"4 ranks are on 2 hosts", "auto"}},
      {"ucx", Launcher::fork, 1, {"--transport ucx", "libucp is missing"}},
      {"mpi", Launcher::fork, 1, {"--transport mpi", "kasane run --transport mpi"}},
      {"auto", Launcher::fork, 2, {"4 ranks on 2 hosts", "mpirun", "libucp is missing"}},
      {"tcp", Launcher::fork, 1, {"'tcp'", "KASANE_TRANSPORT", "auto, shm, ucx or mpi"}},
  };
  for (const Refusal& r : kRefusals) {
    const auto plan = make_plan({.asked = r.asked,
                                 .launcher = r.launcher,
                                 .ranks = 4,
                                 .hosts = r.hosts,
                                 .ucx = false,
                                 .why_no_ucx = "libucp is missing"});
    ASSERT_FALSE(plan) << r.asked;
    for (const char* word : r.words)
      EXPECT_NE(plan.error().message.find(word), std::string::npos)
          << word << " in: " << plan.error().message;
  }
}

TEST(SessionPlan, UcxIsLoadedOnlyWhereItMatters) {
  auto matters = [](const char* asked, std::uint32_t ranks, std::uint32_t hosts) {
    return ucx_matters({.asked = asked,
                        .launcher = Launcher::mpi,
                        .ranks = ranks,
                        .hosts = hosts,
                        .ucx = false,
                        .why_no_ucx = {}});
  };
  EXPECT_FALSE(matters("auto", 4, 1));
  EXPECT_TRUE(matters("auto", 4, 2));
  EXPECT_TRUE(matters("ucx", 4, 1));
  EXPECT_FALSE(matters("ucx", 1, 1));
  EXPECT_FALSE(matters("mpi", 4, 2));
  EXPECT_FALSE(matters("shm", 4, 2));
}

TEST(SessionOptionsTest, ComeFromTheEnvironment) {
  ::setenv("KASANE_TRANSPORT", "ucx", 1);
  ::setenv("KASANE_MPI", "mpich", 1);
  ::setenv("KASANE_DEBUG", "seed=3,hosts=2", 1);  // the runtime's items are not the session's
  SessionOptions options;
  OptionTable table;
  const auto read = add_all_session_options(table, options).read_environment();
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(options.transport, "ucx");
  EXPECT_EQ(options.mpi, "mpich");
  EXPECT_EQ(options.hosts, 2u);
  ::setenv("KASANE_TRANSPORT", "pigeons", 1);
  EXPECT_FALSE(table.read_environment());
  for (const char* name : {"KASANE_TRANSPORT", "KASANE_MPI", "KASANE_DEBUG"}) ::unsetenv(name);
}

TEST(SessionJoin, ARankThatIsAloneNeedsNobody) {
  for (const char* asked : {"auto", "shm", "ucx", "mpi"}) {
    auto job = create_job(1, shm::job_bytes(1));
    ASSERT_TRUE(job);
    auto session = Session::join({.transport = asked}, *job);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_EQ((*session)->describe(), "1 rank on 1 host: shm");
    EXPECT_TRUE((*session)->transport().facts().completes_inline);
    const auto all = (*session)->out_of_band().allgather("me");
    ASSERT_TRUE(all);
    EXPECT_EQ(*all, std::vector<std::string>{"me"});
    session->reset();
    close_job(*job);
  }
}

TEST(SessionJoin, AnUnusableJobIsAnError) { EXPECT_FALSE(Session::join({}, Job{})); }

}  // namespace
}  // namespace kasane::comm
