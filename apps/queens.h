// SPDX-License-Identifier: Apache-2.0
// Counts the placements of N queens that do not attack each other: three bit masks a row, a thread for every
// candidate of the first rows.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace apps {

/// The known counts (OEIS A000170) for N = 0 … 18.
inline constexpr std::array<std::uint64_t, 19> kQueens = {
    1,   1,    0,     0,     2,      10,      4,        40,       92,       352,
    724, 2680, 14200, 73712, 365596, 2279184, 14772512, 95815104, 666090624};

/// A partial placement: squares of the next row that are attacked from above and along both diagonals.
struct Board {
  std::uint32_t columns = 0, left = 0, right = 0;
  [[nodiscard]] constexpr Board with(std::uint32_t queen) const noexcept {
    return {columns | queen, (left | queen) << 1, (right | queen) >> 1};
  }
  [[nodiscard]] constexpr std::uint32_t open(std::uint32_t all) const noexcept {
    return all & ~(columns | left | right);
  }
};

/// Solutions that complete board, in this thread.
inline std::uint64_t count_queens(std::uint32_t all, Board board) {
  if (board.columns == all) return 1;
  std::uint64_t n = 0;
  for (std::uint32_t open = board.open(all); open != 0; open &= open - 1)
    n += count_queens(all, board.with(open & -open));
  return n;
}

/// The same, with a thread for every candidate of the next `rows` rows.
template <class Pattern>
std::uint64_t count_queens(std::uint32_t all, Board board, std::uint32_t rows) {
  if (rows == 0 || board.columns == all) return count_queens(all, board);
  const std::uint32_t open = board.open(all);
  return Pattern::sum(static_cast<std::uint32_t>(std::popcount(open)), std::uint64_t{0},
                      [=](std::uint32_t nth) {
                        std::uint32_t rest = open;
                        for (; nth > 0; --nth) rest &= rest - 1;
                        return count_queens<Pattern>(all, board.with(rest & -rest), rows - 1);
                      });
}

}  // namespace apps
