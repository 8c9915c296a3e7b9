// SPDX-License-Identifier: Apache-2.0
// Distributed arrays: a 9-point stencil with ghost cells, and a product of matrices by the BLAS that the
// program links (kasane::blas).
#include <cmath>
#include <cstdio>
#include <kasane/array.hpp>
#include <numbers>
#include <utility>

namespace {

using Grid = kasane::array<double, 2>;

constexpr std::size_t n = 200;  // inner points along an edge; outside of them lies a rim of zeros
constexpr int steps = 20;

double wave(std::size_t i, double waves) {
  return std::sin(std::numbers::pi * waves * static_cast<double>(i + 1) / (n + 1));
}

/// One step from one grid to another. Each part is computed where it lies; its neighbours' points are in
/// ghosts.
void step(Grid& from, Grid& to) {
  from.update_ghosts();
  to.for_each_part([&from](auto out) {
    const auto in = from.view_of(out.where());
    const auto rows = static_cast<std::ptrdiff_t>(out.extent(0)),
               columns = static_cast<std::ptrdiff_t>(out.extent(1));
    for (std::ptrdiff_t i = 0; i < rows; ++i)
      for (std::ptrdiff_t j = 0; j < columns; ++j)
        out(i, j) = 0.5 * in(i, j) + 0.09375 * (in(i - 1, j) + in(i + 1, j) + in(i, j - 1) + in(i, j + 1)) +
                    0.03125 * (in(i - 1, j - 1) + in(i - 1, j + 1) + in(i + 1, j - 1) + in(i + 1, j + 1));
  });
}

/// The largest error after some steps: a sine mode decays by a known factor a step.
double stencil() {
  Grid a({n, n}, kasane::blocks(), kasane::ghosts(1)), b({n, n}, kasane::blocks(), kasane::ghosts(1));
  a.fill(0);  // the ghosts, too: the rim
  b.fill(0);
  a.for_each_part([](auto part) {
    for (std::size_t i = 0; i < part.extent(0); ++i)
      for (std::size_t j = 0; j < part.extent(1); ++j)
        part(i, j) = wave(part.first(0) + i, 3) * wave(part.first(1) + j, 5);
  });
  Grid exact({n, n});
  const double down = std::cos(3 * std::numbers::pi / (n + 1)),
               across = std::cos(5 * std::numbers::pi / (n + 1));
  const double decay = 0.5 + 2 * 0.09375 * (down + across) + 4 * 0.03125 * down * across;
  kasane::transform(a, exact, [left = std::pow(decay, steps)](double x) { return left * x; });
  for (int i = 0; i < steps; ++i) {
    step(a, b);
    std::swap(a, b);
  }
  kasane::transform(a, exact, exact, [](double is, double should) { return std::abs(is - should); });
  return exact.max();
}

/// The largest error of Q Qᵀ = 1, where the rows of Q are cosines of different frequencies.
double product() {
  Grid q({n, n}, kasane::tiles{64, 64}), turned({n, n}), one({n, n}, kasane::tiles{64, 64});
  q.for_each_part([](auto part) {
    for (std::size_t i = 0; i < part.extent(0); ++i)
      for (std::size_t j = 0; j < part.extent(1); ++j) {
        const auto k = static_cast<double>(part.first(0) + i),
                   x = static_cast<double>(part.first(1) + j) + 0.5;
        part(i, j) = std::sqrt((k == 0 ? 1.0 : 2.0) / n) * std::cos(std::numbers::pi * k * x / n);
      }
  });
  kasane::transpose(q, turned);
  kasane::gemm(1.0, q, turned, 0.0, one);
  for (std::size_t i = 0; i < n; ++i) one.set({i, i}, one.get({i, i}) - 1);
  return std::max(one.max(), -one.min());
}

}  // namespace

int main() {
  const double of_stencil = kasane::run(stencil), of_product = kasane::run(product);
  std::printf("arrays: stencil's error %.1e, product's error %.1e\n", of_stencil, of_product);
  return of_stencil < 1e-12 && of_product < 1e-12 ? 0 : 1;
}
