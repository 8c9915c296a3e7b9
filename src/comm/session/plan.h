// SPDX-License-Identifier: Apache-2.0
// Which transports a job uses: a pure function of the user's options and of what is available. Every rank
// computes it from the same facts (Session ensures that), so all get the same result or the same refusal.
//
//   asked    one host     several hosts                        (one rank: always shared memory)
//   auto     shm          shm within, UCX between; else MPI
//   shm      shm          refused
//   ucx      UCX          UCX                                  (to all other ranks, also within a host)
//   mpi      MPI          MPI                                  (to all; only where mpirun started them)
//
// Where the MPI is the program's own it is no network (attached).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "comm/bootstrap/job.h"

namespace kasane::comm {

enum class NetworkKind : std::uint8_t { none, ucx, mpi };

struct Situation {
  std::string asked = {};  ///< SessionOptions::transport
  Launcher launcher = Launcher::alone;
  std::uint32_t ranks = 1, hosts = 1;
  bool attached = false;     ///< the MPI is the program's: a fault in a call of it could wait for that call
  bool without_mpi = false;  ///< started by kasane run --hosts, or met by PMIx: there is no MPI
  bool ucx = false;          ///< every rank has it
  std::string why_no_ucx = {};
};

/// Which network, if any, and for which ranks.
struct SessionPlan {
  NetworkKind network = NetworkKind::none;
  bool within_hosts = false;  ///< the network also joins ranks of one host
};

Result<SessionPlan> make_plan(const Situation&);

/// For example "2 hosts".
[[nodiscard]] inline std::string counted(std::uint32_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Does the plan depend on whether UCX is available? Checking that loads it.
[[nodiscard]] bool ucx_matters(const Situation&);

}  // namespace kasane::comm
