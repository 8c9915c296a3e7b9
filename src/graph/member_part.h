// SPDX-License-Identifier: Apache-2.0
// What each member of a kernel's team has: the graph, and its rank's part of it.
//
// Thread safety: a member's own.
#pragma once

#include <cstddef>
#include <kasane/team.hpp>

#include "graph/layout.h"

namespace kasane::graph::detail {

class MemberPart {
 protected:
  /// l: lives as long as this.
  MemberPart(const Layout& l, member& me) noexcept
      : l_(l), me_(me), part_(l.parts[me.rank()]), base_(l.first_of(me.rank())) {}

  /// f(row) for the rows of this rank that have a vertex; members share them. It does not wait.
  template <class F>
  void each_row(F&& f) const {
    const std::size_t first = l_.block - l_.size_of(me_.rank());  // its empty places come first
    me_.deal(first, l_.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row) f(row);
    });
  }
  /// f(rank) for the others, which different ranks ask in different order.
  template <class F>
  void each_other_rank(F&& f) const {
    for (std::uint32_t i = 1; i < l_.ranks; ++i) f((me_.rank() + i) % l_.ranks);
  }

  const Layout& l_;
  member& me_;
  const Part& part_;
  const vertex base_;
};

}  // namespace kasane::graph::detail
