// SPDX-License-Identifier: Apache-2.0
// Which transports a job uses: a pure function of what was asked for and what there is. Every rank computes it from the same facts (Session sees to
// that), so that all come to the same result, or the same refusal.
//
//   asked    one host     several hosts                            one rank: always shared memory, nothing runs between ranks
//   auto     shm          shm within, UCX between; else MPI
//   shm      shm          refused
//   ucx      UCX          UCX                                      to all but oneself, also within a host
//   mpi      MPI          MPI                                      as above; refused unless mpirun started the ranks
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "comm/bootstrap/job.h"

namespace kasane::comm {

enum class Network : std::uint8_t { none, ucx, mpi };

struct Situation {
  std::string asked = {};        ///< SessionOptions::transport
  Launcher launcher = Launcher::alone;
  std::uint32_t ranks = 1, hosts = 1;
  bool ucx = false;         ///< every rank has it
  std::string why_no_ucx = {};
};

/// Which network, if any, and for whom.
struct SessionPlan {
  Network network = Network::none;
  bool within_hosts = false;   ///< the network also joins ranks of one host
};

Result<SessionPlan> make_plan(const Situation&);

/// As in "2 hosts".
[[nodiscard]] inline std::string counted(std::uint32_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Does the plan depend on whether UCX is there? Finding out means to load it.
[[nodiscard]] bool ucx_matters(const Situation&);

}  // namespace kasane::comm
