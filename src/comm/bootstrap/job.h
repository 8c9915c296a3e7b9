// SPDX-License-Identifier: Apache-2.0
// What the ranks of one host share before they can communicate: made before the fork and inherited by every
// rank (create_job), or passed between ranks that mpirun started (rendezvous.h). Ranks of other hosts count
// in `ranks` but have no sockets here. Plain data; its maker closes it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm {

/// How the ranks were started: there is one rank only; by our launcher's fork; each by itself, by mpirun or
/// kasane run --hosts.
enum class Launcher : std::uint8_t { alone, fork, mpi };

struct Job {
  std::uint32_t ranks = 1;  ///< of the whole job, on all hosts
  Rank rank{0};             ///< set in the child by the fork
  Launcher launcher = Launcher::alone;
  /// Launcher::mpi: by kasane run --hosts, in place of an mpirun: the socket to this host's agent
  int agent = -1;
  std::uint32_t hosts = 1;  ///< number of hosts with ranks of the job
  /// memfd of shared_bytes, zeroed: message rings, doorbells, reply slots of the shm transport; grows by the
  /// memory of regions
  int shared_fd = -1;
  std::size_t shared_bytes = 0;
  /// sockets[r] = {read end, write end} of rank r's datagram socket pair, through which peers pass file
  /// descriptors. {-1, -1}: r is on another host. A rank needs its own read end and the host's lowest rank's
  /// write end; the lowest rank needs all of them.
  struct SocketPair {
    int in = -1, out = -1;
  };
  std::vector<SocketPair> sockets;

  [[nodiscard]] bool on_this_host(Rank r) const noexcept {
    return raw(r) < sockets.size() && sockets[raw(r)].out >= 0;
  }
  /// The ranks of this host in ascending order. A rank's position here numbers its part of the shared memory.
  [[nodiscard]] std::vector<Rank> host_ranks() const;
};

/// Creates the descriptors (close-on-exec) for a job of so many ranks, all on this host. shared_bytes:
/// shm::job_bytes(ranks).
Result<Job> create_job(std::uint32_t ranks, std::size_t shared_bytes);

/// Closes a job's descriptors. Transports created from it must not attach any more.
void close_job(const Job&) noexcept;

}  // namespace kasane::comm
