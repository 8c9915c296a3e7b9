// SPDX-License-Identifier: Apache-2.0
#include "comm/session/options.h"

namespace kasane::comm {

OptionTable& add_session_options(OptionTable& table, SessionOptions& options) {
  return table.heading("Between ranks")
      .choice("--transport", "KASANE_TRANSPORT", options.transport, {"auto", "shm", "ucx", "mpi"},
              "what runs between ranks; auto: shared memory within a host, UCX or else MPI between hosts")
      .choice("--mpi", "KASANE_MPI", options.mpi, {"auto", "openmpi", "mpich"},
              "which MPI starts the ranks for --transport mpi; auto: the one of mpirun, or the first that is installed")
      .count("--hosts", "KASANE_HOSTS", options.hosts, "divide the ranks into so many parts, neighbours together, that share no memory, as if on hosts of their own (to try out networks)",
             {.least = 1});
}

}  // namespace kasane::comm
