// SPDX-License-Identifier: Apache-2.0
// Which networks UCX may use to join the ranks of a job: which ranks are on one machine, and over which
// network the machines reach each other.
//
//   RankLocation (each rank's) ── allgather ──▶ all on one machine: shared memory, no listening socket
//                                           └──▶ networks with an interface of each machine, fastest first
//                                                  ─▶ tried by connecting ─▶ one interface a rank
//
// UCX's TCP serves every peer that connects: its first word is a constant, and then its messages may write
// anywhere (docs/design/comm_ucx.md). So as little as possible listens, on one address, and listeners accept
// packets only from addresses of the job's machines.
//
// Thread safety: at start, one thread. All but choose_network() and listen_to_only() are pure functions, or
// read /proc and /sys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/out_of_band.h"

namespace kasane::comm::ucx {

/// An interface that is up and has an IPv4 address. UCX names the device like the interface.
struct Interface {
  std::string name;
  std::uint32_t address = 0;   ///< in the host's byte order
  std::uint32_t prefix = 0;    ///< bits of the network
  std::uint32_t megabits = 0;  ///< a second; 0: unknown
};

/// Where a rank is, as it tells the others.
struct RankLocation {
  std::string machine;         ///< equal where processes share memory, process numbers and a network
  std::uint64_t free_shm = 0;  ///< bytes in /dev/shm
  bool user_names_transports = false, user_names_devices = false;  ///< UCX_TLS, UCX_NET_DEVICES
  bool rdma = false;                  ///< has a port that UCX can use without TCP
  std::vector<Interface> interfaces;  ///< without the loopback
};

RankLocation location_here();
std::string packed(const RankLocation&);
Result<RankLocation> unpacked(const std::string&);

/// Names of the devices whose ports are up, as UCX_NET_DEVICES takes them.
std::vector<std::string> rdma_ports();

/// The first rank of each machine.
std::vector<std::uint32_t> leaders(const std::vector<RankLocation>&);

/// One interface for each rank, all on one network, or joined by routes.
struct Network {
  std::string text;  ///< "10.0.0.0/24", or "by routes"
  std::string why;   ///< why this one was chosen: "…"
  std::vector<Interface> of_rank;
};

/// Networks on which every machine has an interface with an address that no other machine has; fastest first,
/// equal ones in rank 0's order.
std::vector<Network> common_networks(const std::vector<RankLocation>&);

/// Collective: the first of the common networks, or else of the kernel's routes, over which all machines
/// reach each other; it is tried by connecting. The error names ranks and addresses that do not reach each
/// other.
Result<Network> choose_network(OutOfBand&, const std::vector<RankLocation>&);

std::string address_text(std::uint32_t address);
std::string text(const Interface&);  ///< "eth0 (10.0.0.5/24, 10000 Mb/s)"

/// This process's listening IPv4 sockets.
std::vector<int> listening_sockets();

/// Makes the sockets drop all packets but those from one of peers (2000 at most).
Result<void> listen_to_only(const std::vector<int>& sockets, const std::vector<std::uint32_t>& peers);

}  // namespace kasane::comm::ucx
