// SPDX-License-Identifier: Apache-2.0
// docs/guide/from_global_arrays.md: the calls of Global Arrays on kasane::array, from threads.
#include <cmath>
#include <cstdio>
#include <kasane/array.hpp>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t n = 256, kTile = 64;
using Matrix = kasane::array<double, 2>;

/// Work by a shared counter (NGA_Read_inc): each thread takes the next tile of b, and adds it to a twice.
void add_tiles(Matrix& a, const Matrix& b) {
  kasane::array<long, 1> counter({1});
  counter.fill(0);
  constexpr long tiles = (n / kTile) * (n / kTile);
  kasane::parallel_for(0, 8, [&](int) {
    std::vector<double> patch(kTile * kTile);
    for (long tile = 0; (tile = counter.fetch_add({0}, 1)) < tiles;) {
      const auto row = static_cast<std::size_t>(tile) / (n / kTile) * kTile,
                 column = static_cast<std::size_t>(tile) % (n / kTile) * kTile;
      const kasane::box<2> where{{row, column}, {row + kTile, column + kTile}};
      b.get(where, patch.data());                  // NGA_Get
      a.accumulate(where, patch.data(), {}, 2.0);  // NGA_Acc
    }
  });
}

double error() {
  Matrix a({n, n}), b({n, n}, kasane::tiles{kTile, kTile});  // NGA_Create, NGA_Create_irreg
  a.fill(1);                                                 // GA_Fill
  b.fill(0);
  b.for_each_part([](auto part) {  // NGA_Distribution, NGA_Access
    for (std::size_t i = 0; i < part.extent(0); ++i)
      for (std::size_t j = 0; j < part.extent(1); ++j) part(i, j) = static_cast<double>(part.first(0) + i);
  });
  add_tiles(a, b);
  return std::abs(a.sum() - n * n * (1 + 2 * (n - 1) / 2.0)) + std::abs(a.get({5, 7}) - 11);
}

}  // namespace

int main() {
  const double wrong = kasane::run(error);
  std::printf("global arrays: error %.1e\n", wrong);
  return wrong < 1e-6 ? 0 : 1;
}
