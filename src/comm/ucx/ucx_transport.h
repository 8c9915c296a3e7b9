// SPDX-License-Identifier: Apache-2.0
// The transport over UCX: InfiniBand, RoCE, TCP or UCX's own shared memory, whichever UCX finds between two
// ranks.
//
//   thread ─▶ its lane (a ucp_worker under a lock that is only tried) ─▶ endpoint ─▶ lane 0 of the peer
//                                                                        put, get, atomic, message
//
// Built with KASANE_HAVE_UCX where UCX's headers are found. Only available() and create() load the library,
// so programs that do not use it neither start UCX nor get its signal handlers. docs/design/comm_ucx.md has
// the protocols.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "comm/out_of_band.h"
#include "comm/transport.h"

namespace kasane::comm::ucx {

inline constexpr std::uint32_t kMaxLanes = 16;

struct Options {
  std::uint32_t lanes = 0;           ///< workers of UCX; 0: usable cores + 1, at most kMaxLanes
  std::uint32_t outstanding = 1024;  ///< operations outstanding on a lane
  /// which of UCX's transports (as UCX_TLS); empty: UCX_TLS, else as in paths.h
  std::string tls;
  bool within_hosts = true;  ///< also joins ranks of one host
};

/// Joins the ranks of exchange; collective. bells: this rank's doorbells, rung at arrivals. Both outlive the
/// transport.
Result<std::unique_ptr<Transport>> create(OutOfBand& exchange, Bells& bells, const Options& options = {});

/// Can create() work in this build on this machine? The error says what is missing.
Result<void> available();

}  // namespace kasane::comm::ucx
