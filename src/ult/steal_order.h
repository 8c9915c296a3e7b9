// SPDX-License-Identifier: Apache-2.0
// The order in which an idle worker asks the others of its rank for work: those on its own NUMA node first,
// since a stolen thread goes on using data where it ran; within the node, and then among the others, from a
// random one on, so that thieves spread.
//
//   [ own node: random, … , wraps ] [ other nodes: random, … , wraps ]
//
// Thread safety: immutable once it is made.
// Invariant: a round asks every other worker once, unless it ends early, and none of another node before one
// of the own. Where all are on one node the second part is empty, and costs a comparison.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kasane::ult {

/// Of: what stands for a worker.
template <class Of>
class StealOrder {
 public:
  /// Nobody.
  StealOrder() = default;
  /// all: the rank's workers; own: the place of the thief. nodes: of each worker; empty: all are on one.
  StealOrder(std::uint32_t own, std::span<const Of> all, std::span<const std::uint32_t> nodes) {
    const auto near = [&](std::size_t w) { return nodes.empty() || nodes[w] == nodes[own]; };
    for (const bool wanted : {true, false}) {
      for (std::size_t w = 0; w < all.size(); ++w)
        if (w != own && near(w) == wanted) order_.push_back(all[w]);
      if (wanted) near_ = static_cast<std::uint32_t>(order_.size());
    }
    all_ = static_cast<std::uint32_t>(order_.size());
  }

  /// Calls ask(worker) for one after the other until it returns a slot, and returns that; kNoSlot: none has.
  /// pick(n): a random number below n.
  template <class Pick, class Ask>
  SlotId round(Pick&& pick, Ask&& ask) const {
    const Of* part = order_.data();
    for (std::uint32_t n = near_, left = all_; left != 0; part += n, left -= n, n = left) {
      if (n == 0) continue;
      std::uint32_t at = pick(n);
      for (std::uint32_t asked = 0; asked < n; ++asked) {
        if (const SlotId slot = ask(part[at]); slot != kNoSlot) return slot;
        if (++at == n) at = 0;
      }
    }
    return kNoSlot;
  }

 private:
  std::vector<Of> order_;             ///< of all others
  std::uint32_t near_ = 0, all_ = 0;  ///< how many of them are on the own node, and in all
};

}  // namespace kasane::ult
