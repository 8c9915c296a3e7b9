// SPDX-License-Identifier: Apache-2.0
// The times of a simulated cluster, after LogGP (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman, "LogGP:
// Incorporating Long Messages into the LogP Model"): latency, overhead at each end, gap between messages and
// gap for each byte, of the links inside a host and between hosts; racks of hosts below one switch, each with
// an uplink that its hosts share.
//
//   post ─ o ─▶ sender's port (gap, bytes) ─▶ [uplink of its rack, of the other's] ─ L ─▶ receiver's port
//
// A port or uplink does one message after the other: who comes to a busy one waits. So a place that many
// ranks send to is a queue, which is what a step shows that grows with the ranks.
//
// Thread safety: none (as the simulator).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/transport.h"

namespace kasane::comm::sim {

struct Link {
  std::uint64_t latency_ns = 0;
  std::uint64_t overhead_ns = 0;  ///< of a processor, at each end that takes part
  /// the same of what handlers take, and of rings; 0: overhead_ns
  std::uint64_t message_overhead_ns = 0;
  std::uint64_t gap_ns = 0;  ///< of a port, for each message
  double ns_per_byte = 0;
  [[nodiscard]] std::uint64_t overhead_of(bool message) const noexcept {
    return message && message_overhead_ns != 0 ? message_overhead_ns : overhead_ns;
  }
};

struct Timing {
  static constexpr std::uint64_t kSliceNs = 1'400'000;  ///< what Linux lets a thread compute before another
  Link in_host, between_hosts;
  std::uint32_t ranks_per_host = 1, hosts_per_rack = 32;
  std::uint64_t between_racks_ns = 0;  ///< more latency
  double uplink_ns_per_byte = 0;       ///< of a rack, in each direction; 0: never a bottleneck
  bool one_sided = true;               ///< between hosts: the network serves reads, writes and atomics
  std::uint32_t cores = 0;             ///< on which all ranks compute, in slices of kSliceNs; 0: enough
  std::uint64_t wake_ns = 0;           ///< until a thread runs that slept
  /// one in so many messages is late, as those that a network has lost and sends again; 0: none
  std::uint64_t late_one_in = 0, late_ns = 0;
  std::uint64_t notice_ns = 1'000'000'000;  ///< until who posts to a rank that has died is told so
  std::uint64_t fault_ns = 0;               ///< of a processor for a fault of a page, beside the network

  /// InfiniBand HDR: 1 us, 25 GB/s.
  [[nodiscard]] static Timing rdma() noexcept {
    Timing t;
    t.in_host = {.latency_ns = 300, .overhead_ns = 100, .gap_ns = 50, .ns_per_byte = 0.1};
    t.between_hosts = {.latency_ns = 800, .overhead_ns = 100, .gap_ns = 10, .ns_per_byte = 0.04};
    t.between_racks_ns = 400;
    t.uplink_ns_per_byte = 0.04 / 16;  // 32 hosts below 16 ports: 2 to 1
    t.wake_ns = 5'000;
    t.fault_ns = 1'500;
    return t;
  }
  /// Ethernet of 25 Gb/s, TCP.
  [[nodiscard]] static Timing tcp() noexcept {
    Timing t = rdma();
    t.between_hosts = {.latency_ns = 10'000, .overhead_ns = 2'000, .gap_ns = 500, .ns_per_byte = 0.32};
    t.between_racks_ns = 2'000;
    t.uplink_ns_per_byte = 0.32 / 16;
    t.one_sided = false;
    return t;
  }
};

/// When what is sent arrives. Calls come in about the order of their times.
class Links {
 public:
  Links(const Timing& timing, std::uint32_t ranks)
      : timing_(timing),
        hosts_((ranks + timing.ranks_per_host - 1) / timing.ranks_per_host),
        out_(hosts_),
        in_(hosts_),
        up_(hosts_ / timing.hosts_per_rack + 1),
        down_(up_.size()) {}

  [[nodiscard]] bool in_host(std::uint32_t from, std::uint32_t to) const noexcept {
    return host(from) == host(to);
  }
  [[nodiscard]] const Link& between(std::uint32_t from, std::uint32_t to) const noexcept {
    return in_host(from, to) ? timing_.in_host : timing_.between_hosts;
  }
  std::uint64_t arrival(std::uint32_t from, std::uint32_t to, std::size_t bytes, std::uint64_t now) noexcept {
    if (from == to) return now;
    const Link& link = between(from, to);
    const auto busy = static_cast<std::uint64_t>(static_cast<double>(bytes) * link.ns_per_byte);
    if (in_host(from, to)) return now + link.latency_ns + link.gap_ns + busy;
    const std::uint64_t each = std::max(link.gap_ns, busy);
    std::uint64_t at = pass(out_[host(from)], now, each);
    std::uint64_t latency = link.latency_ns;
    if (rack(from) != rack(to)) {
      const auto shared = static_cast<std::uint64_t>(static_cast<double>(bytes) * timing_.uplink_ns_per_byte);
      at = pass(up_[rack(from)], at, shared);
      at = pass(down_[rack(to)], at, shared);
      latency += timing_.between_racks_ns;
    }
    // The bytes come in while they go out: only a port that is busy delays them once more.
    return std::max(pass(in_[host(to)], at + latency - std::min(at + latency, each), each), at + latency);
  }

 private:
  [[nodiscard]] std::uint32_t host(std::uint32_t rank) const noexcept {
    return rank / timing_.ranks_per_host;
  }
  [[nodiscard]] std::uint32_t rack(std::uint32_t rank) const noexcept {
    return host(rank) / timing_.hosts_per_rack;
  }
  /// Through a place that does one after the other.
  static std::uint64_t pass(std::uint64_t& free_from, std::uint64_t now, std::uint64_t each) noexcept {
    return free_from = std::max(free_from, now) + each;
  }

  Timing timing_;
  std::uint32_t hosts_;
  std::vector<std::uint64_t> out_, in_, up_, down_;
};

/// What a rank has sent and received.
struct Traffic {
  std::uint64_t messages_out = 0, bytes_out = 0, messages_in = 0, bytes_in = 0;
  std::array<std::uint64_t, kMaxRegions> operations_in{};  ///< of others on each of its regions
};

}  // namespace kasane::comm::sim
