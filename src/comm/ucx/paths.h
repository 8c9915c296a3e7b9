// SPDX-License-Identifier: Apache-2.0
// Which of UCX's transports and devices a job uses, and how large its queues in shared memory are. It depends
// on where its ranks are (network.h) and on the user's settings (UCX_TLS, UCX_NET_DEVICES, UCX_POSIX_…),
// which are always kept.
//
//   ranks            transports         devices
//   one machine      posix cma self     none: nothing listens. Not sysv, whose memory the group can access
//   several          tcp self           each rank's interface on the one network that joins them
//   … all with RDMA  ib self            the ports that are up, no TCP; not tested: there was no such device
//   … to join ranks of one host as well   also posix cma
//
// Thread safety: at start, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/out_of_band.h"
#include "comm/ucx/network.h"

namespace kasane::comm::ucx {

struct Paths {
  std::string transports;  ///< as UCX_TLS; empty: the user's, or all
  std::string devices;     ///< as UCX_NET_DEVICES; empty: the user's, or none are needed
  std::string text;        ///< what was chosen and why, for users
  /// a rank that UCX must reach from here, on another machine if there is one
  std::uint32_t other = 0;
  bool through_memory = false;       ///< UCX may use queues in /dev/shm
  std::vector<std::uint32_t> peers;  ///< addresses that may connect to this rank; empty: all
};

/// Collective. locations: of all ranks. within_hosts: UCX also joins ranks of one host. transports: replaces
/// UCX_TLS unless empty.
Result<Paths> choose_paths(OutOfBand&, const std::vector<RankLocation>& locations, bool within_hosts,
                           const std::string& transports);

/// UCX's receive queues of a lane: entries, and buffers behind them.
struct Queues {
  std::uint32_t lanes = 0, entries = 0, buffers = 0;
};

/// As many lanes, and as large queues, as the free space in /dev/shm allows for all ranks of this machine.
Result<Queues> fit_queues(const std::vector<RankLocation>& locations, std::uint32_t rank,
                          std::uint32_t lanes);

}  // namespace kasane::comm::ucx
