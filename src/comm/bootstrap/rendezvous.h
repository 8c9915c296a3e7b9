// SPDX-License-Identifier: Apache-2.0
// How ranks that somebody else started (mpirun) find out who shares their host, and come to share its memory: the Job that our own launcher
// makes before its fork, made afterwards.
//
//   every rank    binds an abstract socket named by (key of the job, rank)          ── all have ──
//                 tries everybody's name: who answers is in this network namespace: on this host     ── all agree ──
//   lowest rank   makes the host's memory and postboxes, and passes their descriptors to each neighbour (SCM_RIGHTS)
//
// The names are gone when rendezvous() returns; nothing has a name in any file system at any time. A shared network namespace says nothing about
// mounts or process numbers, and need not: descriptors arrive all the same. Names can be seen and written to by every process of the
// namespace, so messages from other users are ignored.
//
// **Errors.** Every rank fails if one does, with a message that names the rank and what it said. Waiting for a neighbour is bounded by limit_ns; as
// long as the OutOfBand itself goes on, so does everybody.
//
// Thread safety: one thread a rank; collective over all ranks of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/out_of_band.h"

namespace kasane::comm {

struct RendezvousOptions {
  /// Shared bytes for so many ranks of one host (shm::job_bytes).
  std::size_t (*shared_bytes)(std::uint32_t host_ranks);
  /// Ranks whose domains differ count as ranks of different hosts, wherever they are. At most 40 characters.
  std::string domain;
  std::int64_t limit_ns = 20'000'000'000;
};

/// A job whose postboxes are those of this host's ranks; the caller closes it (close_job) and says who launched it.
Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options);

}  // namespace kasane::comm
