// SPDX-License-Identifier: Apache-2.0
#include "comm/session/options.h"

namespace kasane::comm {

OptionTable& add_session_options(OptionTable& table, SessionOptions& options) {
  return table.heading("Between ranks")
      .choice("--transport", "KASANE_TRANSPORT", options.transport, {"auto", "shm", "ucx", "mpi"},
              "What runs between ranks. auto: shared memory within a host, UCX or else MPI between hosts.")
      .choice("--mpi", "KASANE_MPI", options.mpi, {"auto", "openmpi", "mpich", "pmix"},
              "Which MPI starts the ranks for --transport mpi. auto: that of mpirun, or the first that is "
              "installed; no MPI but PMIx where a launcher has started them that is no MPI's (srun, "
              "prterun). pmix: PMIx, where mpirun has it, too.");
}

OptionTable& add_session_items(OptionTable& items, SessionOptions& options) {
  return items.count("hosts", "", options.hosts,
                     "Divide the ranks into so many parts of consecutive ranks that share no memory, as if "
                     "each part were on a host of its own, to try out networks.",
                     {.least = 1});
}

OptionTable& add_all_session_options(OptionTable& table, SessionOptions& options) {
  OptionTable items;
  return add_session_options(table, options)
      .list("", "KASANE_DEBUG", add_session_items(items, options), "settings for developers",
            OtherItems::ignored);
}

}  // namespace kasane::comm
