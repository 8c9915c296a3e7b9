// SPDX-License-Identifier: Apache-2.0
// parallel_for and parallel_invoke: a matrix product over arrays that are placed in parts on all ranks.
#include <cstdio>
#include <kasane/kasane.hpp>

namespace {

constexpr int n = 96;

int failures() {
  const auto a = kasane::make_array<double>(n * n, kasane::placement::block);
  const auto b = kasane::make_array<double>(n * n, kasane::placement::block);
  const auto c = kasane::make_array<double>(n * n, kasane::placement::block);
  kasane::parallel_invoke([&] { kasane::parallel_for(0, n * n, [p = a.get()](int i) { p[i] = i % 7; }); },
                          [&] { kasane::parallel_for(0, n * n, [p = b.get()](int i) { p[i] = i % 5; }); });
  kasane::parallel_for(0, n, [a = a.get(), b = b.get(), c = c.get()](int row) {
    for (int column = 0; column < n; ++column) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }
  });
  int bad = 0;
  for (int row = 0; row < n; row += 5)
    for (int column = 0; column < n; column += 3) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += (row * n + k) % 7 * ((k * n + column) % 5);
      bad += c[static_cast<std::size_t>(row * n + column)] != sum;
    }
  return bad != 0;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("parallel_for: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
