// SPDX-License-Identifier: Apache-2.0
// What the environments of launchers say.
#include "comm/mpi/place.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/mpi/library.h"

namespace kasane::comm::mpi {
namespace {

Place place_in(std::vector<std::string> variables) {
  std::vector<char*> environment;
  for (auto& v : variables) environment.push_back(v.data());
  environment.push_back(nullptr);
  return place(environment.data());
}

TEST(MpiPlace, OpenMpisMpirun) {
  const Place p = place_in({"HOME=/", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8",
                            "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3"});
  EXPECT_EQ(p.mpi, LaunchedFor::openmpi);
  EXPECT_EQ(p.rank, Rank{3});
  EXPECT_EQ(p.ranks, 8u);
  EXPECT_EQ(p.local_ranks, 2u);
}

TEST(MpiPlace, MpichsMpirun) {
  const Place p = place_in({"PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALNRANKS=4"});
  EXPECT_EQ(p.mpi, LaunchedFor::mpich);
  EXPECT_EQ(p.ranks, 4u);
  EXPECT_EQ(p.local_ranks, 4u);
}

TEST(MpiPlace, SlurmsWithPmix) {
  const Place p = place_in({"PMIX_RANK=1", "SLURM_NTASKS=2"});
  EXPECT_EQ(p.mpi, LaunchedFor::unnamed);
  EXPECT_EQ(p.rank, Rank{1});
  EXPECT_EQ(p.ranks, 2u);
  EXPECT_EQ(p.local_ranks, 0u) << "not said";
}

TEST(MpiPlace, AnAgentBeforeTheMpirunInWhichKasaneRunWasCalled) {
  const Place p = place_in({"PMI_RANK=0", "PMI_SIZE=1", "KASANE_AGENT_RANK=3", "KASANE_AGENT_RANKS=4",
                            "KASANE_AGENT_HERE=2", "KASANE_AGENT_SOCKET=7"});
  EXPECT_EQ(p.mpi, LaunchedFor::agent);
  EXPECT_EQ(p.rank, Rank{3});
  EXPECT_EQ(p.ranks, 4u);
  EXPECT_EQ(p.local_ranks, 2u);
  EXPECT_EQ(p.agent, 7);
}

TEST(MpiPlace, NoLauncher) {
  EXPECT_FALSE(place_in({}).launched());
  EXPECT_FALSE(place_in({"OMPI_COMM_WORLD_RANK=", "PMI_RANK=one", "PMI_RANKS=1", "SLURM_NTASKS=2",
                         "OMPI_COMM_WORLD_SIZE=2"})
                   .launched());
}

/// Why these variables cannot be those of a job; empty: they can.
std::string refusal(std::vector<std::string> variables) {
  std::vector<char*> environment;
  for (auto& v : variables) environment.push_back(v.data());
  environment.push_back(nullptr);
  const auto result = refuse_unjoined_tasks(environment.data());
  return result ? std::string() : result.error().message;
}

// As Slurm 22.05 sets them: srun's tasks have the step's variables, a batch script and salloc's shell only
// the allocation's.
TEST(MpiPlace, TasksOfSrunThatNoMpiJoinsAreRefused) {
  const std::vector<std::string> task{"SLURM_JOB_ID=1", "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0",
                                      "SLURM_STEP_NUM_TASKS=2"};
  for (const char* text :
       {"srun started 2 tasks, of which this is task 1", "--mpi=pmi2", "--mpi=pmix", "KASANE_RANKS=1"}) {
    EXPECT_NE(refusal(task).find(text), std::string::npos) << refusal(task);
  }
  const std::vector<std::string> batch{"SLURM_JOB_ID=1", "SLURM_NTASKS=2", "SLURM_PROCID=0",
                                       "SLURM_LOCALID=0"},
      shell{"SLURM_JOB_ID=1", "SLURM_NTASKS=2"};
  EXPECT_EQ(refusal(batch), "");
  EXPECT_EQ(refusal(shell), "");
  EXPECT_EQ(refusal({"SLURM_JOB_ID=1", "SLURM_NTASKS=1", "SLURM_PROCID=0", "SLURM_STEP_ID=0",
                     "SLURM_STEP_NUM_TASKS=1"}),
            "")
      << "srun -n 1";
  EXPECT_EQ(refusal({}), "");
  for (const char* joined : {"PMI_RANK=1", "PMIX_RANK=1", "OMPI_COMM_WORLD_RANK=1"}) {
    std::vector<std::string> with = task;
    with.emplace_back(joined);
    EXPECT_EQ(refusal(with), "") << joined;
  }
}

// A PMIx launcher is one, but which MPI it started the user must say.
TEST(MpiPlace, AutoAsksForTheNameWhereNobodySaysIt) {
  ::setenv("PMIX_RANK", "0", 1);
  EXPECT_TRUE(Library::launched());
  const auto library = load("auto");
  ::unsetenv("PMIX_RANK");
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("KASANE_MPI"), std::string::npos) << library.error().message;
  EXPECT_FALSE(Library::launched());
}

}  // namespace
}  // namespace kasane::comm::mpi
