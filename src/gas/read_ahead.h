// SPDX-License-Identifier: Apache-2.0
// What comes along when a page is brought in from SSD: recognises sweeps (ascending, descending, with a stride) among the pages that are asked for, and says how
// many pages further on to bring at once.
//
//   asked for   10 ─▶ 11 ─▶ 12,13 ─▶ 14…17 ─▶ 18…25 ─▶ …     the second neighbour makes a sweep; each time it is met where it was expected its window doubles
//               40 ─▶ 43 ─▶ 46,49 ─▶ …                       a stride needs to be seen twice, and a page elsewhere brings nothing but itself
//
// Several sweeps at once: a merge reads two and writes a third, eight threads have theirs. What they were is forgotten where others need the room.
//
// Thread safety: none, the caller has a flag. Pure: nothing but numbers goes in and out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace kasane::gas {

class ReadAhead {
 public:
  static constexpr std::uint32_t kMost = 32;      ///< pages that come at once
  static constexpr std::int64_t kMostStride = 64; ///< pages

  struct Plan {
    std::int64_t stride = 0;
    std::uint32_t pages = 1;   ///< page, page + stride, …: with the one that is asked for
  };

  /// `page` is asked for, and not here. most: pages that the caller would take at once, from 1.
  [[nodiscard]] Plan ask(std::uint64_t page, std::uint32_t most) noexcept {
    const auto at = static_cast<std::int64_t>(page);
    for (Sweep& s : sweeps_) {
      if (s.meets(at)) return go_on(s, at, most);
    }
    Sweep* near = nullptr;
    for (Sweep& s : sweeps_) {
      const std::int64_t stride = at - s.last;
      if (s.used == 0 || stride == 0 || std::abs(stride) > kMostStride) continue;
      if (stride == s.stride || std::abs(stride) == 1) {
        s.stride = stride;
        s.window = 1;
        return go_on(s, at, most);
      }
      if (near == nullptr || std::abs(stride) < std::abs(at - near->last)) near = &s;
    }
    // Nobody's next: perhaps the second page of a sweep with a stride, else the first of a new one, in place of the oldest.
    Sweep& s = near != nullptr ? *near : *std::min_element(sweeps_.begin(), sweeps_.end(), [](const Sweep& x, const Sweep& y) { return x.used < y.used; });
    s = {at, near != nullptr ? at - s.last : 0, 0, ++clock_};
    return {};
  }

 private:
  static constexpr std::int64_t kMostSkipped = 16;

  struct Sweep {
    std::int64_t last = 0;       ///< the page asked for last, or brought along with it
    std::int64_t stride = 0;     ///< 0: not known
    std::uint32_t window = 0;    ///< pages of the last plan; 0: no sweep yet
    std::uint64_t used = 0;      ///< 0: never

    /// Is it the next page, or nearly? Some were here already and were not asked for; some of the last plan could not come.
    [[nodiscard]] bool meets(std::int64_t at) const noexcept {
      if (window == 0 || (at - last) % stride != 0) return false;
      const std::int64_t further = (at - last) / stride;
      return further > -static_cast<std::int64_t>(window) && further <= kMostSkipped && further != 0;
    }
  };

  Plan go_on(Sweep& s, std::int64_t at, std::uint32_t most) noexcept {
    const auto above_zero = s.stride > 0 ? std::uint64_t{kMost} : static_cast<std::uint64_t>(at / -s.stride) + 1;
    s.window = static_cast<std::uint32_t>(std::min({2 * std::uint64_t{s.window}, std::uint64_t{most}, std::uint64_t{kMost}, above_zero}));
    s.last = at + s.stride * (static_cast<std::int64_t>(s.window) - 1);
    s.used = ++clock_;
    return {s.stride, s.window};
  }

  std::array<Sweep, 16> sweeps_{};
  std::uint64_t clock_ = 0;
};

}  // namespace kasane::gas
