// SPDX-License-Identifier: Apache-2.0
// How this process becomes the ranks of a job (design rule 14). Before main, before static constructors of
// the program, before any second thread:
//
//   one process ── checks ── job descriptors, space reserved ── fork × n ──▶ rank 0 … n-1, all from one image
//                                                                └─ the supervisor, until the job has ended
//
// Under mpirun a process is a rank already (same_image.h).
//
// Thread safety: one thread. Nothing here depends on static constructors of the program's objects: they have
// not run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "runtime/rank/options.h"
#include "runtime/rank/process_state.h"
#include "runtime/start/same_image.h"

namespace kasane::runtime {

/// Checks that this host can hold its part of the job. An error has the numbers: ranks, address bits (ranks ×
/// space ≤ 64 TiB), memory, descriptors. here: the number of ranks on this host; 0: not known, then memory
/// and descriptors are not checked. space_bytes 0: the options give none.
Result<void> check_job_size(std::uint64_t ranks, std::uint64_t here, std::uint64_t space_bytes);

/// What a rank needs to start its runtime.
struct Launched {
  Options options;
  comm::Job job;
  std::byte* space_base = nullptr;  ///< null: the ranks agree on it when they meet
};

/// A job of one rank, this process, without a supervisor.
Result<Launched> launch_alone(Options options);

/// One of the ranks that mpirun started, each with its own process image (same_image.h). They meet, and agree
/// on the space, in Runtime::create.
Result<Launched> launch_by_mpi(Options options, const comm::mpi::Place& place);

/// mpirun passes SIGUSR1 and SIGUSR2 to all ranks, and they are meant for main: ranks that do not run main
/// ignore them. Which ranks run it is known when they have agreed on the options; until then all ranks ignore
/// them.
void let_user_signals_pass(bool);

/// Forks options.ranks ranks and returns in each of them, with process() set. The original process supervises
/// and ends with the job's exit status.
Result<Launched> launch_ranks(Options options);

}  // namespace kasane::runtime
