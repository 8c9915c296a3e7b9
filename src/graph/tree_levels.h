// SPDX-License-Identifier: Apache-2.0
// The levels of vertices by an array of parents: edges on the way to the root. A rank has all parents, and
// the levels that it has needed; what is no tree is a complaint.
//
// Thread safety: each member has an object of its own; those of a rank share the arrays, and write the same
// values to them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>

#include "graph/complaints.h"
#include "graph/layout.h"

namespace kasane::graph::detail {

class TreeLevels {
 public:
  static constexpr std::uint32_t kNone = 0xfffffffe;  ///< of a vertex that is not reached

  /// parents, levels: memory of this rank for all vertices.
  TreeLevels(const Layout& l, vertex root, vertex* parents, std::uint32_t* levels,
             const Complaints& complaints) noexcept
      : vertices_(l.vertices), root_(root), parents_(parents), levels_(levels), complaints_(complaints) {}

  /// All members of the rank: takes the parents. False: the root is none.
  [[nodiscard]] bool begin(member& me, const vertex* parents) {
    me.deal(0, vertices_, 65536, [&](std::size_t first, std::size_t last) {
      fetch(parents_ + first, parents + first, last - first);
      std::fill(levels_ + first, levels_ + last, kUnknown);
    });
    me.wait_here();
    if (parents_[root_] == root_) return true;
    complaints_.add(me, "the root %u is not its own parent", root_);
    return false;
  }

  [[nodiscard]] vertex parent(vertex v) const noexcept { return parents_[v]; }

  /// Follows parents to a vertex whose level is known, and notes those on the way.
  std::uint32_t of(const member& me, vertex v) {
    std::uint32_t known = level(v).load(std::memory_order_relaxed);
    if (known != kUnknown) return known;
    if (parents_[v] == no_vertex) return note(v, kNone);
    std::uint64_t steps = 0;
    vertex u = v;
    for (; (known = known_level(u)) == kUnknown; u = parents_[u], ++steps) {
      if (parents_[u] < vertices_ && steps <= vertices_) continue;
      if (steps > vertices_)
        complaints_.add(me, "the parents of %u lead in a circle", v);
      else
        complaints_.add(me, "%u, on the way from %u, has the parent %u", u, v, parents_[u]);
      return note(v, kNone);
    }
    if (known == kNone) {
      complaints_.add(me, "the way from %u ends at %u, which has no parent and is not the root", v, u);
      return note(v, kNone);
    }
    const std::uint32_t is = known + static_cast<std::uint32_t>(steps);
    for (u = v; steps != 0; u = parents_[u], --steps) note(u, known + static_cast<std::uint32_t>(steps));
    return is;
  }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  [[nodiscard]] std::atomic_ref<std::uint32_t> level(vertex v) const noexcept {
    return std::atomic_ref<std::uint32_t>(levels_[v]);
  }
  [[nodiscard]] std::uint32_t known_level(vertex u) const noexcept {
    if (u == root_) return 0;
    return parents_[u] == no_vertex ? kNone : level(u).load(std::memory_order_relaxed);
  }
  std::uint32_t note(vertex v, std::uint32_t is) const noexcept {
    level(v).store(is, std::memory_order_relaxed);
    return is;
  }

  std::uint64_t vertices_;
  vertex root_;
  vertex* parents_;
  std::uint32_t* levels_;
  const Complaints& complaints_;
};

}  // namespace kasane::graph::detail
