// SPDX-License-Identifier: Apache-2.0
#include "comm/launch/launch.h"

#include <unistd.h>

#include <cstdlib>

#include "base/environment.h"
#include "base/options.h"
#include "base/process.h"
#include "base/standard_descriptors.h"
#include "comm/bootstrap/supervisor.h"
#include "comm/mpi/library.h"
#include "comm/mpi/place.h"
#include "comm/shm/shm_transport.h"

namespace kasane::comm {
namespace {

constexpr std::uint64_t kMaxRanks = 1024;

/// Returns in every rank that it forks; in the supervisor it never returns.
Result<Job> fork_ranks(std::uint32_t ranks, bool tag_output) {
  auto job = create_job(ranks, shm::job_bytes(ranks));
  KASANE_TRY(job);
  job->launcher = Launcher::fork;
  auto supervisor = Supervisor::create(ranks, {.tag_output = tag_output, .main_in_every_rank = true});
  KASANE_TRY(supervisor);
  const auto rank = supervisor->fork_ranks();
  KASANE_TRY(rank);
  // _exit: handlers registered for exit() belong to the program, which runs in the ranks.
  if (*rank == kNoRank) ::_exit(supervisor->run());
  job->rank = *rank;
  // From here on an exit of a rank is orderly: no runtime reports when main has ended.
  supervisor->status().of(*rank).phase.store(diagnostics::Phase::ended);
  set_process_rank(*rank);
  ::setenv("KASANE_RANKS", "1", 1);  // programs that a rank starts are jobs of their own
  return job;
}

}  // namespace

Result<std::unique_ptr<Session>> launch() {
  open_standard_descriptors();
  SessionOptions options;
  std::uint64_t ranks = 1;
  bool tag_output = false;
  OptionTable table;
  table.count("-n,--ranks", "KASANE_RANKS", ranks, "processes of the job", {1, kMaxRanks})
      .flag("--tag-output", "KASANE_TAG_OUTPUT", tag_output, "put the rank before every line of output");
  add_all_session_options(table, options);
  KASANE_TRY(table.read_environment());

  if (variable("KASANE_RANKS") == nullptr) {
    if (mpi::Library::launched()) {
      Job job;
      job.launcher = Launcher::mpi;
      const mpi::Place place = mpi::place(environ);
      job.rank = place.rank;
      job.ranks = place.ranks;
      job.agent = mpi::take_agent(place);
      auto session = Session::join(options, std::move(job));
      if (session) set_process_rank((*session)->transport().rank());
      return session;
    }
    KASANE_TRY(mpi::refuse_unjoined_tasks(environ));
  }
  auto job = fork_ranks(static_cast<std::uint32_t>(ranks), tag_output);
  KASANE_TRY(job);
  return Session::join(options, std::move(*job));
}

}  // namespace kasane::comm
