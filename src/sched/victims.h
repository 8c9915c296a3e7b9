// SPDX-License-Identifier: Apache-2.0
// The order in which an idle rank asks the others for work (docs/design/sched.md, "Victims"): the nearest
// first, since a stolen thread goes on using data where it ran; within one distance at random, so that
// thieves spread.
//
// Thread safety: pure; a Victims belongs to one thief at a time.
// Invariant: a round asks every other rank once, unless it ends early, and none before one that is nearer; of
// those elsewhere, each of which costs round trips, no more than kMostElsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

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
    for (std::uint32_t r = 0; r < from_here.size(); ++r)
      if (Rank{r} != own) order_.push_back({Rank{r}, from_here[r]});
    std::ranges::stable_sort(order_, {}, &Victim::distance);
  }

  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  static constexpr std::size_t kMostElsewhere = 16;
  /// Calls ask(rank, distance) for one rank after the other until it returns true, and returns whether it
  /// did. pick(n): a random number below n.
  template <class Pick, class Ask>
  bool round(Pick&& pick, Ask&& ask) {
    for (std::size_t first = 0, last; first != order_.size(); first = last) {
      last = first;
      while (last != order_.size() && order_[last].distance == order_[first].distance) ++last;
      // The shuffle goes on while we walk: each round is a random order, and a short one costs little.
      const std::size_t most = order_[first].distance == Distance::elsewhere ? kMostElsewhere : last - first;
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
};

}  // namespace kasane::sched
