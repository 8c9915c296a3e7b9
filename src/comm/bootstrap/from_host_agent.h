// SPDX-License-Identifier: Apache-2.0
// The exchange of ranks that `kasane run` started without an MPI and without a fork: --hosts, and --attach.
// Each host has an agent (tools/host_agent.cpp), which starts its ranks, each with a socket to it; the
// agents' input and output lead to kasane run.
//
//   rank ── what it has ──▶ agent ── ssh ──▶ kasane run ── when all have come: what all have ──▶ every rank
//
// Thread safety: as OutOfBand says.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/owned_fd.h"
#include "comm/out_of_band.h"

namespace kasane::comm {

/// Before the bytes of each message, between rank and agent and between agent and kasane run. The hosts have
/// one byte order: threads move between them.
struct AgentMessage {
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;

  enum : std::uint32_t {
    kMine = 1,  ///< from a rank: its bytes
    kAll,       ///< to a rank: for each rank the number of its bytes, a std::uint64_t, and they
    kLeft,      ///< from a rank: it ends as it should; or has detached, or all that attach were refused
    kFirstOfAgents,
  };
};

/// socket: to the agent of this host.
std::unique_ptr<OutOfBand> out_of_band_by_agent(OwnedFd socket, Rank rank, std::uint32_t ranks);

/// AgentMessage::kLeft. Without an agent (socket: -1) nothing.
void tell_agent_of_leaving(int socket, Rank rank) noexcept;

}  // namespace kasane::comm
