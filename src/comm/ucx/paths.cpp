// SPDX-License-Identifier: Apache-2.0
// See paths.h.
#include "comm/ucx/paths.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace kasane::comm::ucx {
namespace {

constexpr std::uint32_t kMostPeers = 2000;  ///< of a filter (4096 instructions)
constexpr std::uint32_t kMostEntries = 64, kFewestEntries = 8;
constexpr std::uint64_t kBufferBytes = 9 << 10;  ///< UCX_POSIX_SEG_SIZE, 8256, and UCX's heads
/// what else a lane has there: the entries, whole pages
constexpr std::uint64_t kLaneBytes = 64 << 10;

bool starts_in_memory(const std::string& transport) {
  for (const char* name : {"posix", "sysv", "mm", "sm", "shm", "all", "^"}) {
    if (transport.rfind(name, 0) == 0) return true;
  }
  return false;
}

/// Does a list of transports, as UCX_TLS takes it, allow shared memory?
bool names_memory(const std::string& transports) {
  std::istringstream words(transports);
  for (std::string word; std::getline(words, word, ',');) {
    if (starts_in_memory(word)) return true;
  }
  return transports.empty();
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
  return all;
}

std::string user_setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(name) + "=" + value;
}

bool share_a_machine(const std::vector<RankLocation>& locations) {
  return leaders(locations).size() < locations.size();
}

/// Addresses from which ranks of other machines may connect to rank me, and those of its own machine where
/// TCP may join those too.
std::vector<std::uint32_t> peers_of(const std::vector<RankLocation>& locations, std::uint32_t me,
                                    bool own_too) {
  std::vector<std::uint32_t> addresses;
  for (const std::uint32_t r : leaders(locations)) {
    if (!own_too && locations[r].machine == locations[me].machine) continue;
    for (const Interface& i : locations[r].interfaces) addresses.push_back(i.address);
  }
  if (addresses.size() > kMostPeers) addresses.clear();
  return addresses;
}

}  // namespace

Result<Paths> choose_paths(OutOfBand& all, const std::vector<RankLocation>& locations, bool within_hosts,
                           const std::string& transports) {
  const std::uint32_t me = raw(all.rank());
  const auto any = [&](bool RankLocation::* what) {
    return std::any_of(locations.begin(), locations.end(), [what](const RankLocation& p) { return p.*what; });
  };
  const bool one_machine = leaders(locations).size() == 1 && (locations.size() > 1 || within_hosts);
  const bool memory_too = within_hosts && share_a_machine(locations);
  const bool users_transports = any(&RankLocation::user_names_transports),
             users_devices = any(&RankLocation::user_names_devices);
  const bool rdma = !one_machine && std::all_of(locations.begin(), locations.end(),
                                                [](const RankLocation& p) { return p.rdma; });
  const std::string asked = transports.empty() ? user_setting("UCX_TLS") : "UCX_TLS=" + transports;

  Paths paths;
  paths.other = static_cast<std::uint32_t>((me + 1) % locations.size());
  for (const std::uint32_t r : leaders(locations)) {
    if (locations[r].machine != locations[me].machine) paths.other = r;
  }
  if (users_transports) {
    paths.transports = transports;
    paths.text = "as asked: " + asked;
  } else if (one_machine) {
    paths.transports = "posix,cma,self";
    paths.text = "no sockets on one host";
  } else {
    paths.transports = std::string(rdma ? "ib" : "tcp") + (memory_too ? ",posix,cma,self" : ",self");
  }
  const std::string named = users_transports
                                ? (transports.empty() ? asked.substr(asked.find('=') + 1) : transports)
                                : paths.transports;
  paths.through_memory = names_memory(named);

  if (users_devices) {
    paths.text += (paths.text.empty() ? "" : "; ") + user_setting("UCX_NET_DEVICES");
    if (!one_machine) paths.peers = peers_of(locations, me, /*own_too=*/within_hosts);
  } else if (one_machine) {
    // These devices are used only if the user asks for a network by UCX_TLS.
    std::vector<std::string> devices = rdma_ports();
    devices.emplace_back("lo");
    paths.devices = joined(devices);
  } else if (rdma && !users_transports) {
    paths.devices = joined(rdma_ports());
    paths.text = "between hosts: " + paths.devices + ", because every host has RDMA";
  } else {
    auto network = choose_network(all, locations);
    KASANE_TRY(network);
    std::vector<std::string> devices = users_transports ? rdma_ports() : std::vector<std::string>{};
    devices.push_back(network->of_rank[me].name);
    paths.devices = joined(devices);
    paths.text += (paths.text.empty() ? "" : "; ") + std::string("between hosts: ") +
                  text(network->of_rank[me]) + ", because " + network->why;
    // All of a host's addresses: a packet that comes by a route may have another source than the address that
    // this rank sends to.
    paths.peers = peers_of(locations, me, /*own_too=*/memory_too);
  }
  return paths;
}

Result<Queues> fit_queues(const std::vector<RankLocation>& locations, std::uint32_t rank,
                          std::uint32_t lanes) {
  std::uint64_t free = ~std::uint64_t{0}, here = 0;
  for (const RankLocation& location : locations) {
    if (location.machine != locations[rank].machine) continue;
    free = std::min(free, location.free_shm);
    ++here;
  }
  const auto bytes = [](std::uint32_t entries) {
    return std::uint64_t{2} * entries * kBufferBytes + kLaneBytes;
  };
  for (std::uint32_t entries = kMostEntries; entries >= kFewestEntries; entries /= 2) {
    if (here * lanes * bytes(entries) <= free)
      return Queues{.lanes = lanes, .entries = entries, .buffers = 2 * entries};
  }
  const std::uint64_t fit = free / (here * bytes(kFewestEntries));
  if (fit >= 1)
    return Queues{.lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(fit, lanes)),
                  .entries = kFewestEntries,
                  .buffers = 2 * kFewestEntries};
  return fail(Errc::limit, "/dev/shm has " + std::to_string(free >> 10) + " KiB free, but UCX needs " +
                               std::to_string((here * bytes(kFewestEntries) >> 10) + 1) +
                               " KiB for the queues of " + std::to_string(here) +
                               (here == 1 ? " rank" : " ranks") +
                               " there: make it larger (mount -o remount,size=1G /dev/shm; docker run "
                               "--shm-size=1g), or use --transport shm");
}

}  // namespace kasane::comm::ucx
