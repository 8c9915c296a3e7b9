// SPDX-License-Identifier: Apache-2.0
// What ranks of one host share before they can talk: created once, before the fork, and inherited by every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm {

struct Job {
  std::uint32_t ranks = 1;
  Rank rank{0};               ///< set in the child by the fork
  int shared_fd = -1;         ///< memfd of shared_bytes, zeroed: message rings, doorbells, reply slots of the shm transport
  std::size_t shared_bytes = 0;
  /// postbox[r] = {read end, write end} of rank r's datagram socket pair, through which peers pass file descriptors.
  struct Postbox { int in = -1, out = -1; };
  std::vector<Postbox> postbox;
};

/// Creates the descriptors (close-on-exec) for a job of ranks ranks. shared_bytes comes from shm::job_bytes(ranks).
Result<Job> create_job(std::uint32_t ranks, std::size_t shared_bytes);

}  // namespace kasane::comm
