// SPDX-License-Identifier: Apache-2.0
// The order in which an idle worker asks the others of its rank for work: those on its own NUMA node first,
// since a stolen thread goes on using data where it ran; within the node, and then among the others, from a
// random one on, so that thieves spread.
//
//   [ own node: random, … , wraps ] [ other nodes: random, … , wraps ]
//
// Thread safety: immutable.
// Invariant: a round asks every other worker once, unless it ends early, and none of another node before one
// of the own. Where all are on one node the second part is empty, and costs a comparison.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kasane::ult {

class Victims {
 public:
  /// nodes: of each worker; empty: all are on one.
  Victims(std::uint32_t own, std::uint32_t workers, std::span<const std::uint32_t> nodes) {
    const auto near = [&](std::uint32_t w) { return nodes.empty() || nodes[w] == nodes[own]; };
    for (const bool wanted : {true, false}) {
      for (std::uint32_t w = 0; w < workers; ++w)
        if (w != own && near(w) == wanted) order_.push_back(w);
      if (wanted) near_ = static_cast<std::uint32_t>(order_.size());
    }
  }

  /// Calls ask(worker) for one after the other until it returns a slot, and returns that; kNoSlot: none has.
  /// pick(n): a random number below n.
  template <class Pick, class Ask>
  SlotId round(Pick&& pick, Ask&& ask) const {
    const std::span<const std::uint32_t> all(order_);
    if (const SlotId slot = part(all.first(near_), pick, ask); slot != kNoSlot) return slot;
    return part(all.subspan(near_), pick, ask);
  }

 private:
  template <class Pick, class Ask>
  static SlotId part(std::span<const std::uint32_t> part, Pick& pick, Ask& ask) {
    const auto n = static_cast<std::uint32_t>(part.size());
    if (n == 0) return kNoSlot;
    std::uint32_t at = pick(n);
    for (std::uint32_t asked = 0; asked < n; ++asked) {
      if (const SlotId slot = ask(part[at]); slot != kNoSlot) return slot;
      if (++at == n) at = 0;
    }
    return kNoSlot;
  }

  std::vector<std::uint32_t> order_;  ///< of all others
  std::uint32_t near_ = 0;            ///< how many of them are on the own node
};

}  // namespace kasane::ult
