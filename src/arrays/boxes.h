// SPDX-License-Identifier: Apache-2.0
// Patches and the tiles that they touch. Thread safety: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <kasane/array_layout.hpp>

namespace kasane::arrays {

[[nodiscard]] inline bool empty(const detail::ArrayLayout& l, const std::size_t* first,
                                const std::size_t* last) noexcept {
  for (std::size_t d = 0; d < l.dimensions; ++d)
    if (first[d] >= last[d]) return true;
  return false;
}

/// Calls f(first, last) for the part of the patch in each tile, in C's order.
template <class F>
void each_tile(const detail::ArrayLayout& l, const std::size_t* first, const std::size_t* last, const F& f) {
  if (empty(l, first, last)) return;
  std::size_t from[detail::ArrayLayout::kMost], to[detail::ArrayLayout::kMost];
  const auto end_of = [&](std::size_t d) { return std::min(last[d], (from[d] / l.tile[d] + 1) * l.tile[d]); };
  for (std::size_t d = 0; d < l.dimensions; ++d) {
    from[d] = first[d];
    to[d] = end_of(d);
  }
  for (;;) {
    f(from, to);
    std::size_t d = l.dimensions;
    while (d > 0 && to[d - 1] == last[d - 1]) {
      --d;
      from[d] = first[d];
      to[d] = end_of(d);
    }
    if (d == 0) return;
    from[d - 1] = to[d - 1];
    to[d - 1] = end_of(d - 1);
  }
}

}  // namespace kasane::arrays
