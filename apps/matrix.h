// SPDX-License-Identifier: Apache-2.0
// Square matrices in tiles that lie in Z-order, and their product by recursion on quadrants (Frigo,
// Leiserson, Prokop, Ramachandran: Cache-Oblivious Algorithms, 1999).
//
//   a matrix of 4 × 4 tiles:    0  1 │ 4  5      a quadrant is one contiguous quarter of the array, and so
//                               2  3 │ 6  7      on down to a tile. Where each rank owns a consecutive part
//                              ──────┼──────     of the array, it owns quadrants; and no two tiles share
//                               8  9 │12 13      more than the bytes around their seam.
//                              10 11 │14 15
//
// Thread safety: multiply_add writes c only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/random.h"

namespace apps {

/// How a matrix of n × n numbers is cut: 2^levels × 2^levels tiles of tile × tile, the least that hold it.
/// What lies outside of n × n is zero.
struct Tiling {
  std::size_t n, tile, levels = 0;

  explicit Tiling(std::size_t size) : n(size), tile(size) {
    // three tiles fit in a second-level cache; rows are whole vectors
    constexpr std::size_t kMost = 64, kStep = 8;
    for (; tile > kMost; ++levels) tile = (tile + 1) / 2;
    tile = (tile + kStep - 1) / kStep * kStep;
  }
  [[nodiscard]] std::size_t tiles() const noexcept { return std::size_t{1} << 2 * levels; }
  [[nodiscard]] std::size_t tile_elements() const noexcept { return tile * tile; }
  [[nodiscard]] std::size_t elements() const noexcept { return tiles() * tile_elements(); }

  /// Row and column (in tiles) of the tile that is number z in the array.
  struct Place {
    std::size_t row, column;
  };
  [[nodiscard]] Place place_of(std::size_t z) const noexcept {
    Place p{0, 0};
    for (std::size_t bit = levels; bit-- > 0;) {
      p.row = 2 * p.row + (z >> (2 * bit + 1) & 1);
      p.column = 2 * p.column + (z >> 2 * bit & 1);
    }
    return p;
  }

  /// element(i, j, value&) for all elements of tile z inside of n × n.
  template <class T, class F>
  void for_tile(T* matrix, std::size_t z, F&& element) const {
    const auto [row, column] = place_of(z);
    T* at = matrix + z * tile_elements();
    for (std::size_t i = row * tile; i < (row + 1) * tile; ++i)
      for (std::size_t j = column * tile; j < (column + 1) * tile; ++j, ++at)
        if (i < n && j < n) element(i, j, *at);
  }
};

/// c += a b, tiles of t × t; t is a multiple of 8. Eight sums at a time stay in registers.
inline void multiply_tile(double* c, const double* a, const double* b, std::size_t t) noexcept {
  for (std::size_t i = 0; i < t; ++i) {
    for (std::size_t j = 0; j < t; j += 8) {
      double sum[8];
      for (std::size_t v = 0; v < 8; ++v) sum[v] = c[i * t + j + v];
      for (std::size_t k = 0; k < t; ++k) {
        const double x = a[i * t + k];
        for (std::size_t v = 0; v < 8; ++v) sum[v] += x * b[k * t + j + v];
      }
      for (std::size_t v = 0; v < 8; ++v) c[i * t + j + v] = sum[v];
    }
  }
}

/// c += a b, squares of 2^levels × 2^levels tiles; threads for the quadrants of squares of more than
/// 2^serial_levels. The four quadrants are independent. In each, one product follows the other, so that the
/// sums have the same order on all threads.
template <class Pattern>
void multiply_add(double* c, const double* a, const double* b, std::size_t tile, std::size_t levels,
                  std::size_t serial_levels) {
  const std::size_t elements = tile * tile << 2 * levels, q = elements / 4;
  if (levels == serial_levels) {  // all that one thread works on, at once
    Pattern::reads(a, elements);
    Pattern::reads(b, elements);
    Pattern::updates(c, elements);
  }
  if (levels == 0) {
    multiply_tile(c, a, b, tile);
    return;
  }
  const auto quadrant = [=](std::size_t row, std::size_t column) {
    return [=] {
      double* const to = c + (2 * row + column) * q;
      for (std::size_t k = 0; k < 2; ++k)
        multiply_add<Pattern>(to, a + (2 * row + k) * q, b + (2 * k + column) * q, tile, levels - 1,
                              serial_levels);
    };
  };
  if (levels <= serial_levels) {
    for (std::size_t i = 0; i < 4; ++i) quadrant(i / 2, i % 2)();
  } else {
    // By halves: a thief takes the lower one, which the next rank owns.
    Pattern::invoke([=] { Pattern::invoke(quadrant(0, 0), quadrant(0, 1)); },
                    [=] { Pattern::invoke(quadrant(1, 0), quadrant(1, 1)); });
  }
}

/// Element (i, j) of the matrix that `seed` names: a small integer, so that sums of products are exact.
[[nodiscard]] inline double small_at(std::uint64_t seed, std::size_t i, std::size_t j) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(random_at(seed, i << 32 | j) >> 60) - 8);
}

}  // namespace apps
