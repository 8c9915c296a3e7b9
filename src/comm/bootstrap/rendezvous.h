// SPDX-License-Identifier: Apache-2.0
// How ranks that another launcher (mpirun) started find the ranks of their host and come to share its memory:
// makes the Job that our own launcher makes before its fork.
//
//   every rank     listens on an abstract socket with a random name; all ranks exchange names and locations
//                  looks for the lowest rank of the same kernel and network namespace that it reaches, the
//                  host's leader; all ranks exchange the results and check them
//   leader         makes the host's memory and sockets, and passes their descriptors (SCM_RIGHTS) to each
//                  rank of the host that connects and requests them
//
// The names are gone when rendezvous() returns; nothing has a name in any file system at any time. Ranks of
// one network namespace may differ in mounts and process numbers: descriptors arrive all the same.
//
// **Trust.** Every process of the namespace sees the names and can connect. No process can take a name in
// advance, since it is random and unknown before it is in use; nor elsewhere, since ranks of another kernel
// or namespace do not look for it. Both ends of a connection get the other's user from the kernel
// (SO_PEERCRED) and close it if that is not this user. A rank that requests memory and the leader that passes
// it prove themselves by the key of the job, which travels only by the OutOfBand and in these connections.
//
// **Errors.** Every rank fails if one does, with a message that names the rank and its error. Waiting for a
// rank of the host is bounded by limit_ns; otherwise a rank waits as long as the OutOfBand does.
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
  /// Bytes of shared memory for so many ranks of one host (shm::job_bytes).
  std::size_t (*shared_bytes)(std::uint32_t host_ranks);
  /// Ranks with different domains count as ranks of different hosts, wherever they are.
  std::string domain;
  std::int64_t limit_ns = 20'000'000'000;
};

/// A job with the sockets of this host's ranks. The caller sets its launcher and closes it (close_job).
Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options);

}  // namespace kasane::comm
