// SPDX-License-Identifier: Apache-2.0
// Sums over the members of a team, and one member's decision for the others of its rank.
//
//   sums.put(me, v); me.wait(); v = sums.of_all(me);       every member of the job has the sum
//
// A value is published in the member's own slot at its rank, in turns of two, so that the next one may be put
// while others still read this one. One member a rank gets the slots of all; the others read its sum.
//
// Thread safety: all members make the same calls in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <kasane/team.hpp>

#include "graph/layout.h"

namespace kasane::graph::detail {

/// kN numbers of T. Not on a stack, which changes: other ranks would fetch it at each turn.
template <class T, std::size_t kN>
class Sums {
 public:
  using Values = std::array<T, kN>;

  Sums(std::uint32_t all_ranks, std::uint32_t of_rank)
      : workers_(of_rank), slots_(all_ranks, 2 * of_rank + 1), buffers_(all_ranks, of_rank) {}

  /// What a member passes to its calls.
  struct Turn {
    std::uint32_t parity = 0;
  };

  void put(const member& me, Turn turn, const Values& v) const noexcept {
    slots_.get()[me.rank()][turn.parity * workers_ + me.rank_index()].v = v;
  }
  /// After put() and me.wait(). Members of a rank wait for each other here, if there are several.
  [[nodiscard]] Values of_all(member& me, Turn& turn) const {
    Slot* const mine = slots_.get()[me.rank()];
    if (me.rank_index() == 0) {
      Values sum{};
      for (std::uint32_t r = 0; r < me.size() / workers_; ++r) {
        const Slot* from = slots_.get()[r] + turn.parity * workers_;
        if (r != me.rank()) {
          fetch(buffers_.get()[me.rank()], from, workers_);
          from = buffers_.get()[me.rank()];
        }
        for (std::uint32_t w = 0; w < workers_; ++w)
          for (std::size_t i = 0; i < kN; ++i) sum[i] += from[w].v[i];
      }
      mine[2 * workers_].v = sum;
    }
    me.wait_here();
    turn.parity ^= 1;
    return mine[2 * workers_].v;
  }

 private:
  struct alignas(64) Slot {
    Values v;
  };
  std::uint32_t workers_;
  AtRanks<Slot> slots_, buffers_;
};

}  // namespace kasane::graph::detail
