// SPDX-License-Identifier: Apache-2.0
// Which NUMA node memory comes from: the kernel's policies, set by system calls and checked by asking the
// kernel where pages lie. A policy of shared memory belongs to the memory, not to a mapping: it holds for
// whichever process or system call touches a page first.
//
// Thread safety: every call from any thread.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kasane::topo {

/// As many as the kernel can have.
inline constexpr std::uint32_t kMostNumaNodes = 1024;
using NodeSet = std::bitset<kMostNumaNodes>;

/// parse_list(), with blanks around it; numbers beyond kMostNumaNodes are left out. Empty where the text is
/// none.
[[nodiscard]] NodeSet parse_nodes(std::string_view text);
/// list_text().
[[nodiscard]] std::string nodes_text(const NodeSet&);
/// Nodes that have memory which this process may use (its cpuset); {0} where the kernel knows of no nodes.
[[nodiscard]] NodeSet memory_nodes();
/// The node of the core on which the caller runs.
[[nodiscard]] std::uint32_t current_node() noexcept;

/// Where the kernel takes the page of a first touch from. Where these nodes are full it takes another one:
/// a policy that forbids that (MPOL_BIND) ends in the out-of-memory killer.
struct NumaPolicy {
  enum class Kind : std::uint8_t {
    local,       ///< the node of the core that touches it
    preferred,   ///< the one node in `nodes`
    interleave,  ///< page by page of the nodes in turn
    weighted,    ///< likewise, by the weights in /sys/kernel/mm/mempolicy/weighted_interleave (Linux 6.9)
  };
  Kind kind = Kind::local;
  NodeSet nodes;

  static NumaPolicy on(std::uint32_t node) { return {Kind::preferred, NodeSet().set(node)}; }
  friend bool operator==(const NumaPolicy&, const NumaPolicy&) = default;
};

/// Fails where a node is not one of `usable` (memory_nodes()): invalid_argument, which says whether it is
/// absent or forbidden.
[[nodiscard]] Result<> check_nodes(const NodeSet&, const NodeSet& usable);
/// Sets the policy, whose nodes are usable, of the memory behind [at, at + bytes), whole OS pages of a
/// mapping. Pages that are present stay. Errc::limit: the kernel refuses; the message says what to do.
[[nodiscard]] Result<> set_memory_policy(void* at, std::size_t bytes, const NumaPolicy&);
/// As many bytes as move_to_nodes() asks the kernel about at once.
inline constexpr std::size_t kMovedAtOnce = 2 * 1024 * 1024;
/// Moves pages of [first, first + bytes), whole OS pages, that are present and lie on none of the nodes
/// `wanted` to those of them that have room, in turns. The same memory is mapped at `second`, too, by a
/// shared mapping of a file, whose entries may be dropped. Returns how many pages stay. The bytes do not
/// change, and any thread and system call may go on using them, through any mapping.
///
/// Without CAP_SYS_NICE the kernel moves a page only if one page table entry on the machine maps it. So this
/// drops the entries at `second`; pages that have none at `first` are touched at `second`. Those stay that
/// are used through `second` meanwhile, or that other processes map: call again, when these have dropped
/// their entries. Those stay, too, that the kernel uses (direct I/O), and for which there is no room: a node
/// without is taken from `room`.
[[nodiscard]] Result<std::uint64_t> move_to_nodes(std::byte* first, std::byte* second, std::size_t bytes,
                                                  const NodeSet& wanted, NodeSet& room);

/// Where the OS pages of a range lie.
struct NumaPages {
  std::vector<std::uint64_t> on;  ///< by the node's number; as long as the highest one needs
  std::uint64_t absent = 0;
  std::uint64_t misplaced = 0;  ///< on none of the nodes that were wanted
};
/// wanted: empty: any node will do. Touches pages that are present, so that they are mapped at `at`; absent
/// ones stay absent. Adds to `to`.
[[nodiscard]] Result<> count_pages(const void* at, std::size_t bytes, const NodeSet& wanted, NumaPages& to);

}  // namespace kasane::topo
