// SPDX-License-Identifier: Apache-2.0
// Arrays several times as large as the budget of DRAM: each operation against a formula.
//   kasane run -n 2 --dram 10M -- larger N FOLDER: matrices of N x N doubles; a file is written to FOLDER
// Says how many bytes the arrays have, and what is wrong.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/array.hpp>
#include <string>
#include <vector>

namespace {

using Matrix = kasane::array<double, 2>;

/// A small whole number for each place, so that sums of products are exact.
double at(std::size_t i, std::size_t j, std::uint64_t seed) {
  std::uint64_t x = (i * 1000003 + j) * 0x9e3779b97f4a7c15u + seed;
  x ^= x >> 31;
  return static_cast<double>((x * 0xbf58476d1ce4e5b9u) >> 61) - 3;
}

void set(Matrix& a, std::uint64_t seed) {
  a.for_each_part([seed](auto part) {
    for (std::size_t i = 0; i < part.extent(0); ++i)
      for (std::size_t j = 0; j < part.extent(1); ++j)
        part(i, j) = at(part.first(0) + i, part.first(1) + j, seed);
  });
}

void require(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

/// y = a x, some rows at a time.
std::vector<double> product(const Matrix& a, const std::vector<double>& x) {
  const std::size_t n = x.size(), together = 16;
  std::vector<double> y(n), rows(together * n);
  for (std::size_t i = 0; i < n; i += together) {
    const std::size_t end = i + together < n ? i + together : n;
    a.get({{i, 0}, {end, n}}, rows.data());
    for (std::size_t r = i; r < end; ++r)
      for (std::size_t j = 0; j < n; ++j) y[r] += rows[(r - i) * n + j] * x[j];
  }
  return y;
}

void patches(Matrix& a, std::uint64_t seed) {
  const std::size_t n = a.extent(0);
  std::vector<double> patch(64 * 100), ones(64 * 100, 1);
  for (std::size_t i = 0; i + 64 <= n; i += n / 5) {
    a.accumulate({{i, i / 2}, {i + 64, i / 2 + 100}}, ones.data(), 100, 2);
    a.get({{i, i / 2}, {i + 64, i / 2 + 100}}, patch.data(), 100);
    for (std::size_t r = 0; r < 64; ++r)
      for (std::size_t c = 0; c < 100; ++c)
        require(patch[r * 100 + c] == at(i + r, i / 2 + c, seed) + 2, "accumulate and get");
    a.accumulate({{i, i / 2}, {i + 64, i / 2 + 100}}, ones.data(), 100, -2);
  }
}

void neighbours(std::size_t n) {
  Matrix a({n, n}, kasane::tiles{300, 200}, kasane::ghosts(1, kasane::boundary::periodic)), b({n, n});
  set(a, 5);
  a.update_ghosts();
  kasane::copy(a, b);
  std::vector<double> wrong(1);
  a.for_each_part([&](auto part) {
    for (std::ptrdiff_t i : {std::ptrdiff_t{-1}, static_cast<std::ptrdiff_t>(part.extent(0))})
      for (std::ptrdiff_t j = 0; j < static_cast<std::ptrdiff_t>(part.extent(1)); ++j) {
        const std::size_t row = (part.first(0) + n + static_cast<std::size_t>(i)) % n;
        if (part(i, j) != at(row, part.first(1) + static_cast<std::size_t>(j), 5)) wrong[0] = 1;
      }
  });
  require(wrong[0] == 0, "ghosts");
}

void all(std::size_t n, const std::string& file, const kasane::distribution& how) {
  Matrix a({n, n}, how), b({n, n}, how), c({n, n}, how);
  set(a, 1);
  set(b, 2);
  patches(a, 1);
  double sum = 0, both = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      sum += at(i, j, 1);
      both += at(i, j, 1) * at(i, j, 2);
    }
  require(a.sum() == sum, "sum");
  require(kasane::dot(a, b) == both, "dot");
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = at(i, 0, 3);
#ifdef KASANE_HAVE_BLAS
  kasane::gemm(1.0, a, b, 0.0, c);
  require(product(c, x) == product(a, product(b, x)), "gemm");
#endif
  kasane::transpose(a, c);
  a.save(file);
  b = Matrix::load(file, kasane::tiles{256, 128});
  kasane::add(1, a, -1, b, b);
  require(b.min() == 0 && b.max() == 0, "save and load");
  for (std::size_t i = 0; i < n; i += 7) require(c.get({i, n - 1 - i}) == at(n - 1 - i, i, 1), "transpose");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 1000;
  const std::string file = std::string(argc > 2 ? argv[2] : ".") + "/larger.npy";
  kasane::run([&] {
    all(n, file, kasane::tiles{256, 256});
    all(n / 2, file, kasane::blocks());  // gemm reads wide blocks more than once
    neighbours(n);
  });
  std::remove(file.c_str());
  std::printf("arrays of %zu MiB: ok\n", 3 * n * n * sizeof(double) >> 20);
}
