// SPDX-License-Identifier: Apache-2.0
// Loops and sums over [begin, end) in pieces of at most `grain`, halved and halved again. Where it is cut
// depends on the range and the grain alone, so a sum of floating-point numbers has the same bits in every
// run, on any number of ranks, and in the sequential elision.
#pragma once

#include <cstddef>

namespace apps {

/// body(begin, end) for every piece.
template <class Pattern, class F>
void for_pieces(std::size_t begin, std::size_t end, std::size_t grain, F body) {
  if (end - begin <= grain) {
    if (begin != end) body(begin, end);
    return;
  }
  const std::size_t middle = begin + (end - begin) / 2;
  Pattern::invoke([=] { for_pieces<Pattern>(begin, middle, grain, body); },
                  [=] { for_pieces<Pattern>(middle, end, grain, body); });
}

/// The sum of body(begin, end) over the pieces, by operator+ in their order. The range is not empty.
template <class Pattern, class F>
[[nodiscard]] auto sum_pieces(std::size_t begin, std::size_t end, std::size_t grain, F body)
    -> decltype(body(begin, end)) {
  if (end - begin <= grain) return body(begin, end);
  const std::size_t middle = begin + (end - begin) / 2;
  decltype(body(begin, end)) left{}, right{};
  Pattern::invoke([=, &left] { left = sum_pieces<Pattern>(begin, middle, grain, body); },
                  [=, &right] { right = sum_pieces<Pattern>(middle, end, grain, body); });
  return left + right;
}

/// About how many threads such a loop ends, or kasane::parallel_for: for the progress bar.
[[nodiscard]] inline std::size_t threads_of_pieces(std::size_t n, std::size_t grain) {
  return n <= grain ? 0 : 1 + 2 * threads_of_pieces(n / 2, grain);
}

}  // namespace apps
