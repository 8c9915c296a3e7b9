// SPDX-License-Identifier: Apache-2.0
// The user's options of how ranks reach each other. Apart from session.h, for programs that only pass them
// on.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace kasane::comm {

struct SessionOptions {
  std::string transport = "auto";  ///< auto, shm, ucx, mpi
  std::string mpi = "auto";        ///< auto, openmpi, mpich: the MPI that started the ranks, if any; or pmix
  /// divide the ranks into so many parts (of neighbouring ranks) that act as separate hosts; to try out
  /// networks
  std::uint64_t hosts = 1;
};

/// Adds --transport and --mpi, bound to options, which must outlive the table.
OptionTable& add_session_options(OptionTable& table, SessionOptions& options);
/// Adds `hosts` to the items of KASANE_DEBUG.
OptionTable& add_session_items(OptionTable& items, SessionOptions& options);
/// For programs of comm alone: both; of KASANE_DEBUG only those items.
OptionTable& add_all_session_options(OptionTable& table, SessionOptions& options);

}  // namespace kasane::comm
