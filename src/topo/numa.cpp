// SPDX-License-Identifier: Apache-2.0
#include "topo/numa.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <span>
#include <utility>

#include "topo/number_list.h"

namespace kasane::topo {
namespace {

constexpr std::size_t kOsPage = 4096;
constexpr int kWeightedInterleave = 6;  // MPOL_WEIGHTED_INTERLEAVE, of newer headers
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
using Mask = std::array<unsigned long, kMostNumaNodes / kWordBits>;

Mask mask_of(const NodeSet& nodes) {
  Mask mask{};
  for (std::uint32_t n = 0; n < kMostNumaNodes; ++n)
    if (nodes[n]) mask[n / kWordBits] |= 1ul << n % kWordBits;
  return mask;
}

int mode_of(NumaPolicy::Kind kind) noexcept {
  switch (kind) {
    case NumaPolicy::Kind::local: break;
    case NumaPolicy::Kind::preferred: return MPOL_PREFERRED;
    case NumaPolicy::Kind::interleave: return MPOL_INTERLEAVE;
    case NumaPolicy::Kind::weighted: return kWeightedInterleave;
  }
  return MPOL_DEFAULT;
}

long bind(void* at, std::size_t bytes, const NumaPolicy& policy, unsigned flags) noexcept {
  if (policy.kind == NumaPolicy::Kind::local)
    return ::syscall(SYS_mbind, at, bytes, MPOL_DEFAULT, nullptr, 0ul, flags);
  const Mask mask = mask_of(policy.nodes);
  // the kernel leaves the last bit out
  return ::syscall(SYS_mbind, at, bytes, mode_of(policy.kind), mask.data(), kMostNumaNodes + 1ul, flags);
}

/// A line of a file, without `key` before it; empty: there is none.
std::string line_of(const char* file, const std::string& key = {}) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

/// Why the kernel did not set the policy, and what to do.
Error refusal(int number, std::size_t bytes, const NumaPolicy& policy) {
  const std::string what =
      fmt::format("cannot bind {} bytes to NUMA nodes {}", bytes, nodes_text(policy.nodes));
  if (number == EPERM)
    return {Errc::limit, what +
                             ": the system call mbind is forbidden here (a container's seccomp filter: start "
                             "it with --cap-add SYS_NICE)"};
  if (number == EINVAL && policy.kind == NumaPolicy::Kind::weighted)
    return {Errc::unsupported, what + " by weights: that needs Linux 6.9"};
  return {Errc::limit, what + ": " + std::generic_category().message(number)};
}

/// As many as a call of the kernel is asked about.
constexpr std::size_t kPagesAtOnce = 512;

/// Calls visit(present, absent) for some hundred OS pages of the range after the others: the addresses of
/// those that are present, and how many are not. What the kernel moves and what it answers for are pages that
/// have a translation at `at`; a page that only other mappings, other processes or system calls have touched
/// has none, so each present one is touched here. Absent ones stay absent; one that leaves between the look
/// and the touch gets a frame of zeros, which is overwritten when it comes back.
template <class Visit>
Result<> for_each_present(const void* at, std::size_t bytes, Visit&& visit) {
  std::array<unsigned char, kPagesAtOnce> resident{};
  std::array<void*, kPagesAtOnce> pages{};
  auto* const first = static_cast<std::byte*>(const_cast<void*>(at));
  for (std::size_t done = 0; done < bytes; done += kPagesAtOnce * kOsPage) {
    const std::size_t part = std::min(bytes - done, kPagesAtOnce * kOsPage), all = part / kOsPage;
    if (::mincore(first + done, part, resident.data()) != 0) return fail_errno(Errc::limit, "mincore");
    std::size_t present = 0;
    for (std::size_t i = 0; i < all; ++i) {
      if ((resident[i] & 1) == 0) continue;
      std::byte* const page = first + done + i * kOsPage;
      (void)*static_cast<volatile std::byte*>(page);
      pages[present++] = page;
    }
    KASANE_TRY(visit(std::span<void* const>(pages.data(), present), all - present));
  }
  return {};
}

}  // namespace

NodeSet parse_nodes(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  NodeSet nodes;
  for (const std::uint32_t n : parse_list(text).value_or(std::vector<std::uint32_t>()))
    if (n < kMostNumaNodes) nodes.set(n);
  return nodes;
}

std::string nodes_text(const NodeSet& nodes) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t n = 0; n < kMostNumaNodes; ++n)
    if (nodes[n]) numbers.push_back(n);
  return list_text(std::move(numbers));
}

NodeSet memory_nodes() {
  NodeSet nodes = parse_nodes(line_of("/sys/devices/system/node/has_memory"));
  if (nodes.none()) return NodeSet().set(0);
  const std::string allowed = line_of("/proc/self/status", "Mems_allowed_list:");
  return allowed.empty() ? nodes : nodes & parse_nodes(allowed);
}

std::uint32_t current_node() noexcept {
  unsigned cpu = 0, node = 0;
  return ::syscall(SYS_getcpu, &cpu, &node, nullptr) == 0 ? node : 0;
}

Result<> check_nodes(const NodeSet& nodes, const NodeSet& all) {
  const NodeSet absent = nodes & ~all;
  if (nodes.any() && absent.none()) return {};
  if (nodes.none()) return fail(Errc::invalid_argument, "no NUMA node is named");
  const NodeSet here = parse_nodes(line_of("/sys/devices/system/node/has_memory"));
  const bool forbidden = (absent & here).any();
  return fail(Errc::invalid_argument,
              forbidden
                  ? fmt::format("NUMA node {} is forbidden to this process by its cpuset (it may use {})",
                                nodes_text(absent & here), nodes_text(all))
                  : fmt::format("there is no NUMA node {} with memory (this machine has {})",
                                nodes_text(absent), nodes_text(all)));
}

Result<> set_memory_policy(void* at, std::size_t bytes, const NumaPolicy& policy) {
  if (bind(at, bytes, policy, 0) == 0) return {};
  return tl::unexpected<Error>(refusal(errno, bytes, policy));
}

bool move_to_policy(void* at, std::size_t bytes, const NumaPolicy& policy) noexcept {
  const auto mapped =
      for_each_present(at, bytes, [](std::span<void* const>, std::size_t) -> Result<> { return {}; });
  return mapped && bind(at, bytes, policy, MPOL_MF_MOVE_ALL) == 0;
}

Result<> count_pages(const void* at, std::size_t bytes, const NodeSet& wanted, NumaPages& to) {
  std::array<int, kPagesAtOnce> nodes{};
  return for_each_present(at, bytes, [&](std::span<void* const> present, std::size_t absent) -> Result<> {
    to.absent += absent;
    if (present.empty()) return {};
    if (::syscall(SYS_move_pages, 0, present.size(), present.data(), nullptr, nodes.data(), 0) < 0)
      return fail_errno(Errc::limit, "the kernel does not say where pages lie (move_pages)");
    for (std::size_t i = 0; i < present.size(); ++i) {
      if (nodes[i] < 0) {  // has left since
        ++to.absent;
        continue;
      }
      const auto node = static_cast<std::size_t>(nodes[i]);
      if (node >= to.on.size()) to.on.resize(node + 1);
      ++to.on[node];
      if (wanted.any() && !wanted[node]) ++to.misplaced;
    }
    return {};
  });
}

}  // namespace kasane::topo
