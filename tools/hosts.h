// SPDX-License-Identifier: Apache-2.0
// kasane run --hosts: starts a job's ranks on several hosts, without an MPI. Likewise --attach on this one.
//
//   kasane run ── ssh HOST kasane agent ──▶ agent (host_agent.cpp) ──▶ ranks of that host
//
// No port is opened for this, and no key is on a command line: ssh joins the two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/rank/options.h"

namespace kasane::tools {

inline constexpr char kAgentCommand[] = "agent";

struct HostRanks {
  std::string host;
  std::uint32_t ranks = 0;
};

/// "a:2,b:3": two ranks and three. A number that is left out: 1, or an equal part of `ranks` (0: not given)
/// where all are left out.
Result<std::vector<HostRanks>> hosts_of(const std::string& list, std::uint64_t ranks);

/// Runs the job, and returns its exit status. agent: the command that runs another on a host; %h is its name.
int run_on_hosts(const runtime::Options&, const std::vector<HostRanks>&, const std::string& agent,
                 std::vector<std::string> command);

/// Runs a program that attaches on options.ranks ranks of this host, without an MPI: each is a process with a
/// main of its own.
int run_attaching_here(const runtime::Options&, std::vector<std::string> command);

}  // namespace kasane::tools
