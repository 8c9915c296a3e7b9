// SPDX-License-Identifier: Apache-2.0
// The BLAS by itself, in private memory: C = A B of N x N doubles, once to begin with, then REPETITIONS
// times.
//   OPENBLAS_NUM_THREADS=2 player-openblas N REPETITIONS
// Prints one JSON object: "gigaflops", a list.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" void cblas_dgemm(int, int, int, int, int, int, double, const double*, int, const double*, int,
                            double, double*, int);

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int n = std::atoi(argv[1]), repetitions = std::atoi(argv[2]);
  const std::size_t elements = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
  std::vector<double> a(elements, 1), b(elements, 2), c(elements, 0), rates;
  for (int i = 0; i <= repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    cblas_dgemm(101, 111, 111, n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i != 0) rates.push_back(2e-9 * n * static_cast<double>(elements) / seconds);
  }
  const bool right = c.front() == 2.0 * n && c.back() == 2.0 * n;
  std::printf("{\"verified\": %s, \"gigaflops\": [", right ? "true" : "false");
  for (std::size_t i = 0; i < rates.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", rates[i]);
  std::puts("]}");
}
