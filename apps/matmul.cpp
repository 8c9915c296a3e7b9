// SPDX-License-Identifier: Apache-2.0
// Dense matrix multiplication by recursion on quadrants: much reuse, coarse threads, memory that all ranks
// read.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/random.h"
#include "common/report.h"
#include "matrix.h"

namespace {

using Matrix = kasane::unique_array<double>;

/// Each element of m becomes value(i, j), each tile by one thread.
template <class F>
void fill(const Matrix& m, const apps::Tiling& tiling, F value) {
  kasane::run([a = m.get(), &tiling, value] {
    kasane::parallel_for(std::size_t{0}, tiling.tiles(), [a, tiling, value](std::size_t z) {
      std::memset(a + z * tiling.tile_elements(), 0, tiling.tile_elements() * sizeof(double));
      tiling.for_tile(a, z, [&](std::size_t i, std::size_t j, double& x) { x = value(i, j); });
    });
  });
}

/// y = m x, in this thread. Exact for small integers.
std::vector<double> product(const double* m, const apps::Tiling& tiling, const std::vector<double>& x) {
  std::vector<double> y(tiling.n);
  for (std::size_t z = 0; z < tiling.tiles(); ++z)
    tiling.for_tile(m, z, [&](std::size_t i, std::size_t j, const double& value) { y[i] += value * x[j]; });
  return y;
}

int run(int argc, char** argv) {
  apps::CommandLine line("matmul", "C = A B of N x N doubles in tiles, by recursion on quadrants");
  std::uint64_t n = 1024, leaf = 2;
  line.number("-n,--n", n, "Rows and columns", 1, 16384);
  line.number("--leaf", leaf,
              "One thread multiplies squares of 2^LEAF tiles a side (of 64 x 64 numbers at most)", 0, 14);
  if (auto status = line.parse(argc, argv)) return *status;

  apps::Report report(line);
  const std::uint64_t seed = line.common().seed;
  report.parameter("n", n);
  report.parameter("leaf", leaf);
  report.parameter("seed", seed);
  const apps::Tiling tiling(n);
  const std::size_t elements = tiling.elements();
  const auto matrix = [&] { return kasane::make_array<double>(elements, kasane::placement::block); };
  const Matrix a = matrix(), b = matrix(), c = matrix();
  fill(a, tiling, [seed](std::size_t i, std::size_t j) { return apps::small_at(2 * seed, i, j); });
  fill(b, tiling, [seed](std::size_t i, std::size_t j) { return apps::small_at(2 * seed + 1, i, j); });

  // levels that fork: 3 threads of 4 quadrants, twice a level
  const std::size_t above = tiling.levels - std::min<std::size_t>(tiling.levels, leaf);
  std::uint64_t threads = 0;
  for (std::size_t i = 0; i < above; ++i) threads = threads * 8 + 3;
  {
    apps::Progress progress("matmul", line.common().repeat * threads, line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      fill(c, tiling, [](std::size_t, std::size_t) { return 0.0; });
      report.measure([&] {
        kasane::run([=, a = a.get(), b = b.get(), c = c.get(), tile = tiling.tile, levels = tiling.levels] {
          apps::multiply_add<apps::Parallel>(c, a, b, tile, levels, leaf);
        });
      });
    }
  }
  // Freivalds' check: C x = A (B x) for a random x of large integers; all sums are below 2^53.
  std::vector<double> x(n);
  for (std::size_t j = 0; j < n; ++j) x[j] = static_cast<double>(apps::random_at(~seed, j) >> 48);
  report.verify(product(c.get(), tiling, x) == product(a.get(), tiling, product(b.get(), tiling, x)),
                "C x is not A (B x)");

  if (line.common().serial) {
    apps::PrivateArray<double> serial_a(a.get(), elements), serial_b(b.get(), elements), serial_c(elements);
    std::memset(serial_c.get(), 0, elements * sizeof(double));
    report.measure_serial([&] {
      apps::multiply_add<apps::Serial>(serial_c.get(), serial_a.get(), serial_b.get(), tiling.tile,
                                       tiling.levels, leaf);
    });
    report.verify(std::memcmp(c.get(), serial_c.get(), elements * sizeof(double)) == 0,
                  "C is not what the sequential elision gives");
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("matmul", [&] { return run(argc, argv); });
}
