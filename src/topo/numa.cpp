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

/// The node of each mapped page; negative: it has left.
Result<> ask_where(std::span<void* const> pages, int* nodes) {
  if (pages.empty() || ::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes, 0) >= 0)
    return {};
  return fail_errno(Errc::limit, "the kernel does not say where pages lie (move_pages)");
}

/// Pages of one part, by their index, ascending.
struct PageList {
  std::array<std::uint16_t, kPagesAtOnce> index{};
  std::size_t count = 0;
  void add(std::size_t page) noexcept { index[count++] = static_cast<std::uint16_t>(page); }
};

/// The present pages of a part that lie on none of the nodes.
Result<PageList> misplaced_of(const std::byte* at, std::size_t bytes, const NodeSet& wanted) {
  PageList list;
  std::array<int, kPagesAtOnce> nodes{};
  const auto looked = for_each_present(at, bytes, [&](std::span<void* const> present, std::size_t) {
    auto told = ask_where(present, nodes.data());
    for (std::size_t i = 0; told && i < present.size(); ++i) {
      if (nodes[i] >= 0 && !wanted[static_cast<std::size_t>(nodes[i])])
        list.add(static_cast<std::size_t>(static_cast<std::byte*>(present[i]) - at) / kOsPage);
    }
    return told;
  });
  KASANE_TRY(looked);
  return list;
}

/// Asks the kernel to move pages that are mapped at `at` to the node. 0, or why not: EPERM (flags), ENOMEM
/// (the node has no room). absent: receives those that are not mapped there. Of the others it says little
/// that is sure: it gives up behind a page that does not move.
int ask_to_move(std::byte* at, const PageList& list, std::uint32_t node, int flags, PageList& absent) {
  std::array<void*, kPagesAtOnce> pages;
  std::array<int, kPagesAtOnce> nodes, status{};
  for (std::size_t i = 0; i < list.count; ++i) pages[i] = at + list.index[i] * kOsPage;
  nodes.fill(static_cast<int>(node));
  const long result =
      ::syscall(SYS_move_pages, 0, list.count, pages.data(), nodes.data(), status.data(), flags);
  for (std::size_t i = 0; i < list.count; ++i)
    if (status[i] == -ENOENT || status[i] == -EFAULT) absent.add(list.index[i]);
  return result < 0 ? errno : 0;
}

/// To one node. False: it has no room.
bool move_list(std::byte* first, std::byte* second, const PageList& list, std::uint32_t node) {
  PageList absent, none;
  const int all = ask_to_move(second, list, node, MPOL_MF_MOVE_ALL, none);
  if (all != EPERM) return all != ENOMEM;
  const std::size_t from = list.index[0] * kOsPage, to = (list.index[list.count - 1] + 1) * kOsPage;
  (void)::madvise(second + from, to - from, MADV_DONTNEED);
  int result = ask_to_move(first, list, node, MPOL_MF_MOVE, absent);
  if (absent.count != 0 && result != ENOMEM) {
    for (std::size_t i = 0; i < absent.count; ++i)
      (void)*static_cast<volatile std::byte*>(second + absent.index[i] * kOsPage);
    result = ask_to_move(second, absent, node, MPOL_MF_MOVE, none);
  }
  return result != ENOMEM;
}

/// Of at most kMovedAtOnce bytes.
Result<std::uint64_t> move_part(std::byte* first, std::byte* second, std::size_t bytes, const NodeSet& wanted,
                                NodeSet& room) {
  auto list = misplaced_of(second, bytes, wanted);
  KASANE_TRY(list);
  if (list->count == 0 || room.none()) return list->count;
  const std::size_t nodes = room.count();
  std::size_t turn = 0;
  for (std::uint32_t node = 0; node < kMostNumaNodes && turn < nodes; ++node) {
    if (!room[node]) continue;
    PageList its;
    for (std::size_t i = 0; i < list->count; ++i)
      if (list->index[i] % nodes == turn) its.add(list->index[i]);
    ++turn;
    if (its.count != 0 && !move_list(first, second, its, node)) room.reset(node);
  }
  list = misplaced_of(second, bytes, wanted);
  KASANE_TRY(list);
  return list->count;
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

Result<std::uint64_t> move_to_nodes(std::byte* first, std::byte* second, std::size_t bytes,
                                    const NodeSet& wanted, NodeSet& room) {
  static_assert(kMovedAtOnce == kPagesAtOnce * kOsPage);
  std::uint64_t stay = 0;
  for (std::size_t done = 0; done < bytes; done += kMovedAtOnce) {
    const std::size_t part = std::min(bytes - done, kMovedAtOnce);
    const auto stays = move_part(first + done, second + done, part, wanted, room);
    KASANE_TRY(stays);
    stay += *stays;
  }
  return stay;
}

Result<> count_pages(const void* at, std::size_t bytes, const NodeSet& wanted, NumaPages& to) {
  std::array<int, kPagesAtOnce> nodes{};
  return for_each_present(at, bytes, [&](std::span<void* const> present, std::size_t absent) -> Result<> {
    to.absent += absent;
    KASANE_TRY(ask_where(present, nodes.data()));
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
