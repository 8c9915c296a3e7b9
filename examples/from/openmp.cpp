// SPDX-License-Identifier: Apache-2.0
// docs/guide/from_openmp.md: what each directive of OpenMP becomes.
#include <cmath>
#include <cstdio>
#include <functional>
#include <kasane/kasane.hpp>
#include <kasane/team.hpp>
#include <mutex>
#include <vector>

namespace {

// #pragma omp parallel for
void squares(std::vector<double>& x) {
  kasane::parallel_for(std::size_t{0}, x.size(),
                       [&x](std::size_t i) { x[i] = static_cast<double>(i) * static_cast<double>(i); });
}

// #pragma omp parallel for reduction(+ : sum)
double sum_of(const std::vector<double>& x) {
  return kasane::parallel_reduce(
      std::size_t{0}, x.size(), 0.0, [&x](std::size_t i) { return x[i]; }, std::plus<>());
}

// #pragma omp task, taskwait
long fibonacci(int n) {
  if (n < 12) return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
  long a = 0, b = 0;
  kasane::parallel_invoke([&] { a = fibonacci(n - 1); }, [&] { b = fibonacci(n - 2); });
  return a + b;
}

// #pragma omp critical
std::size_t largest(const std::vector<double>& x) {
  kasane::mutex mutex;
  std::size_t best = 0;
  kasane::parallel_for(std::size_t{0}, x.size(), [&](std::size_t i) {
    if (i % 1000 != 0) return;
    const std::lock_guard lock(mutex);
    if (x[i] > x[best]) best = i;
  });
  return best;
}

// #pragma omp parallel, for, barrier: threads that stay where their part of the data lies
double smoothed(std::size_t n, int steps) {
  auto a = kasane::make_array<double>(n, kasane::placement::first_touch),
       b = kasane::make_array<double>(n, kasane::placement::first_touch);
  double* const x = a.get();
  double* const y = b.get();
  kasane::team([=](kasane::member& me) {
    const auto [first, last] = me.part(0, n);  // for schedule(static)
    for (std::size_t i = first; i < last; ++i) x[i] = y[i] = i == n / 2 ? 1 : 0;
    me.wait();  // barrier
    double *from = x, *to = y;
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = std::max<std::size_t>(first, 1); i < std::min(last, n - 1); ++i)
        to[i] = (from[i - 1] + 2 * from[i] + from[i + 1]) / 4;
      me.wait();
      std::swap(from, to);
    }
  });
  const double* const end = steps % 2 == 0 ? x : y;
  return kasane::parallel_reduce(
      std::size_t{0}, n, 0.0, [end](std::size_t i) { return end[i]; }, std::plus<>());
}

}  // namespace

int main() {
  return kasane::run([] {
    std::vector<double> x(100'000);
    squares(x);
    const double sum = sum_of(x), mass = smoothed(10'000, 20);
    const long fib = fibonacci(20);
    const std::size_t best = largest(x);
    std::printf("openmp: sum %.6e, fibonacci %ld, largest at %zu, mass %.3f\n", sum, fib, best, mass);
    return std::abs(sum / 3.3332833335e14 - 1) < 1e-12 && fib == 6765 && best == 99'000 &&
                   std::abs(mass - 1) < 1e-9
               ? 0
               : 1;
  });
}
