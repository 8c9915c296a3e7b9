// SPDX-License-Identifier: Apache-2.0
// What a user may say about how ranks reach each other. Kept apart from session.h for those who only pass it on.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace kasane::comm {

struct SessionOptions {
  std::string transport = "auto";   ///< auto, shm, ucx, mpi
  std::string mpi = "auto";         ///< auto, openmpi, mpich: which one started the ranks, if one did
  std::uint64_t hosts = 1;          ///< divide the job's ranks into so many parts (neighbouring ranks together) that act as if on hosts of their own; to try out networks
};

/// Adds --transport, --mpi and --hosts, bound to options, which must outlive the table.
OptionTable& add_session_options(OptionTable& table, SessionOptions& options);

}  // namespace kasane::comm
