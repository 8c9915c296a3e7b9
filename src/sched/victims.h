// SPDX-License-Identifier: Apache-2.0
// The order in which an idle rank asks the others for work (docs/design/sched.md, "Victims"): the nearest
// first, since a stolen thread goes on using data where it ran; within one distance at random, so that
// thieves spread.
//
// In jobs where not all ranks are told that this one is idle (sched/idle_bits.h) those that are come first,
// since it is they who wake it.
//
// Thread safety: pure; a Victims belongs to one thief at a time.
// Invariant: a round asks every other rank once, unless it ends early, and none before one that is nearer,
// but for those that come first; of those elsewhere, each of which costs round trips, no more than
// kMostElsewhere. Of more than kAll at another distance, each of which takes page tables here, it knows kAll,
// which lie all over and differ for each rank.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sched/idle_bits.h"

namespace kasane::sched {

enum class Distance : std::uint8_t {
  numa_node,  ///< the workers of both run on one NUMA node of one host
  host,       ///< one host
  elsewhere,
};

/// mine, theirs: the only NUMA node on which the rank's workers may run, if there is only one.
[[nodiscard]] constexpr Distance distance(bool same_host, std::optional<std::uint32_t> mine,
                                          std::optional<std::uint32_t> theirs) noexcept {
  if (!same_host) return Distance::elsewhere;
  return mine && mine == theirs ? Distance::numa_node : Distance::host;
}

class Victims {
 public:
  /// from_here: of each rank of the job; own's is not looked at.
  Victims(std::span<const Distance> from_here, Rank own) {
    const auto ranks = static_cast<std::uint32_t>(from_here.size());
    std::size_t others[3] = {}, seen[3] = {};  // at each distance
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (Rank{r} != own) ++others[static_cast<std::size_t>(from_here[r])];
    const bool all = IdleBits(ranks).all();
    for (std::uint32_t i = 1; i < ranks; ++i) {
      const Rank r{(raw(own) + i) % ranks};
      const Distance d = from_here[raw(r)];
      const std::size_t n = others[static_cast<std::size_t>(d)], k = seen[static_cast<std::size_t>(d)]++;
      if (!all && std::has_single_bit(i))
        told_.push_back({r, d});
      else if (d == Distance::elsewhere || n <= kAll || k * kAll % n < kAll)
        order_.push_back({r, d});
    }
    std::ranges::stable_sort(order_, {}, &Victim::distance);
  }

  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  static constexpr std::size_t kMostElsewhere = 16, kAll = 63;
  /// Calls ask(rank, distance) for one rank after the other until it returns true, and returns whether it
  /// did. pick(n): a random number below n.
  template <class Pick, class Ask>
  bool round(Pick&& pick, Ask&& ask) {
    const auto told = static_cast<std::uint32_t>(told_.size());
    for (std::uint32_t i = 0, begin = told != 0 ? pick(told) : 0; i < told; ++i)
      if (const Victim& v = told_[(begin + i) % told]; ask(v.rank, v.distance)) return true;
    for (std::size_t first = 0, last; first != order_.size(); first = last) {
      last = first;
      while (last != order_.size() && order_[last].distance == order_[first].distance) ++last;
      // The shuffle goes on while we walk: each round is a random order, and a short one costs little.
      const std::size_t most =
          order_[first].distance == Distance::elsewhere ? kMostElsewhere - told : last - first;
      for (std::size_t end = last; end != first && last - end < most; --end) {
        std::swap(order_[end - 1], order_[first + pick(static_cast<std::uint32_t>(end - first))]);
        if (ask(order_[end - 1].rank, order_[end - 1].distance)) return true;
      }
    }
    return false;
  }

 private:
  struct Victim {
    Rank rank;
    Distance distance;
  };
  std::vector<Victim> order_;  ///< by distance
  std::vector<Victim> told_;   ///< fewer than kMostElsewhere
};

}  // namespace kasane::sched
