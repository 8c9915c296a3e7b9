// SPDX-License-Identifier: Apache-2.0
// How ranks that somebody else started (mpirun) find out who shares their host, and come to share its memory: the Job that our own launcher
// makes before its fork, made afterwards.
//
//   every rank    listens on an abstract socket with a name of its own, drawn at random                ── tells all its name, and where it is ──
//                 looks for the lowest rank of the same kernel and network namespace that it reaches   ── all agree ──
//   lowest rank   makes the host's memory and postboxes, and passes their descriptors (SCM_RIGHTS) to each neighbour that connects and asks
//
// The names are gone when rendezvous() returns; nothing has a name in any file system at any time. A shared network namespace says nothing about
// mounts or process numbers, and need not: descriptors arrive all the same.
//
// **Trust.** Every process of the namespace sees the names and can connect. No name can be taken ahead, since nobody knows it before it is in use, nor elsewhere,
// since ranks of another kernel or namespace do not look for it. Both ends of a connection ask the kernel whose the other is (SO_PEERCRED): it is this user's, or
// closed. Who asks for memory, and who passes it, has the key of the job, which travels by the OutOfBand and in these connections alone.
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
  /// Ranks whose domains differ count as ranks of different hosts, wherever they are.
  std::string domain;
  std::int64_t limit_ns = 20'000'000'000;
};

/// A job whose postboxes are those of this host's ranks; the caller closes it (close_job) and says who launched it.
Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options);

}  // namespace kasane::comm
