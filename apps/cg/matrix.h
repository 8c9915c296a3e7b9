// SPDX-License-Identifier: Apache-2.0
// A random sparse matrix, symmetric and positive definite, of which any row can be made anywhere: no entry is
// sent to where its mirror image lies.
//
// It is the sum of `matchings`: the m-th pairs row i with partner(m, i), its mirror image in a random order
// of the rows, and a hash of the pair decides whether the two entries are there and how large they are; the
// diagonal outweighs its row. Then rows and columns are scaled by 1 to 10, which gives the solver something
// to do. So columns are scattered over the whole width, as in the CG of the NAS Parallel Benchmarks (Bailey
// and others, 1991), and rows differ in length.
//
// Thread safety: values; rows may be made by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/random.h"

namespace apps {

/// A permutation of [0, n) that a seed names, and its inverse: four rounds after Feistel on the even number
/// of bits that holds n, again until the result is below n.
class Shuffle {
 public:
  Shuffle(std::uint64_t seed, std::uint64_t n) noexcept : seed_(seed), n_(n) {
    while (half_ < 31 && (std::uint64_t{1} << 2 * half_) < n) ++half_;
  }
  [[nodiscard]] std::uint64_t place_of(std::uint64_t i) const noexcept {
    do {
      for (std::uint64_t r = 0; r < kRounds; ++r)
        i = (i & mask()) << half_ | ((i >> half_) ^ round(r, i & mask()));
    } while (i >= n_);
    return i;
  }
  [[nodiscard]] std::uint64_t at_place(std::uint64_t i) const noexcept {
    do {
      for (std::uint64_t r = kRounds; r-- > 0;)
        i = ((i & mask()) ^ round(r, i >> half_)) << half_ | i >> half_;
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr std::uint64_t kRounds = 4;
  [[nodiscard]] std::uint64_t mask() const noexcept { return (std::uint64_t{1} << half_) - 1; }
  [[nodiscard]] std::uint64_t round(std::uint64_t r, std::uint64_t half) const noexcept {
    return random_at(seed_ + r, half) & mask();
  }
  std::uint64_t seed_, n_;
  unsigned half_ = 1;
};

struct Recipe {
  std::uint64_t n, matchings, seed;

  /// By which row and column i are scaled.
  [[nodiscard]] double scale_of(std::uint64_t i) const noexcept {
    return 1 + static_cast<double>(random_at(seed, i) >> 11) * 0x9p-53;
  }
  /// entry(column, value), not scaled, for all entries of a row but the diagonal, in no order; a column may
  /// come twice.
  template <class F>
  void for_row(std::uint64_t row, F&& entry) const noexcept {
    for (std::uint64_t m = 0; m < matchings; ++m) {
      const Shuffle order(seed + 16 * (m + 1), n);
      const std::uint64_t column = order.at_place(n - 1 - order.place_of(row));
      if (column == row) continue;  // the middle one, where n is odd
      const auto [low, high] = row < column ? std::pair(row, column) : std::pair(column, row);
      const std::uint64_t drawn = random_at(random_at(seed + m, low), high);
      if (drawn % 4 == 0) continue;
      entry(column, static_cast<double>(drawn >> 11) * 0x1p-52 - 1);  // in [-1, 1)
    }
  }
  /// Entries of a row with its diagonal.
  [[nodiscard]] std::uint64_t entries_of(std::uint64_t row) const noexcept {
    std::uint64_t count = 1;
    for_row(row, [&](std::uint64_t, double) { ++count; });
    return count;
  }
};

/// A matrix in compressed rows, the diagonal first in each: entries [start[i], start[i + 1]) of `column` and
/// `value`.
struct Rows {
  std::size_t n;
  std::uint64_t* start;
  std::uint32_t* column;
  double* value;

  /// Fills row i, for which there is room. kAbove: by how much the diagonal outweighs the rest.
  void make(const Recipe& recipe, std::size_t i) const noexcept {
    constexpr double kAbove = 0.1;
    const double scale = recipe.scale_of(i);
    double weight = kAbove;
    std::uint64_t at = start[i] + 1;
    recipe.for_row(i, [&](std::uint64_t c, double v) {
      column[at] = static_cast<std::uint32_t>(c);
      value[at++] = scale * recipe.scale_of(c) * v;
      weight += v < 0 ? -v : v;
    });
    column[start[i]] = static_cast<std::uint32_t>(i);
    value[start[i]] = scale * scale * weight;
  }
  [[nodiscard]] double times(const double* x, std::size_t i) const noexcept {
    double sum = 0;
    for (std::uint64_t e = start[i]; e != start[i + 1]; ++e) sum += value[e] * x[column[e]];
    return sum;
  }
};

}  // namespace apps
