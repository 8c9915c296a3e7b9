// SPDX-License-Identifier: Apache-2.0
// docs/guide/tutorial.md, steps 4 to 7: the same with threads that move to where work is, on all ranks.
// Usage: primes [N]
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kPart = 1 << 20;

std::vector<std::size_t> small_primes(std::size_t n) {
  std::vector<std::size_t> primes;
  for (std::size_t i = 2; i * i < n; ++i) {
    if (std::none_of(primes.begin(), primes.end(), [i](std::size_t p) { return i % p == 0; }))
      primes.push_back(i);
  }
  return primes;
}

/// The sum of f(first, last) over the parts of 2 … n, each on the rank where it lies or on an idle one.
template <class F>
std::size_t on_parts(std::size_t n, const F& f) {
  return kasane::parallel_reduce(
      std::size_t{0}, (n + kPart - 1) / kPart, std::size_t{0},
      [&](std::size_t part) {
        return f(std::max<std::size_t>(part * kPart, 2), std::min((part + 1) * kPart, n));
      },
      std::plus<>());
}

void count(std::size_t n) {
  const std::vector<std::size_t> primes = small_primes(n);
  // The rank that marks a part first has its memory.
  const auto composite = kasane::make_array<char>(n, kasane::placement::first_touch);
  const std::size_t found = on_parts(n, [&](std::size_t first, std::size_t last) {
    std::fill(&composite[first], &composite[0] + last, 0);
    for (const std::size_t p : primes) {
      for (std::size_t i = std::max(p * p, (first + p - 1) / p * p); i < last; i += p) composite[i] = 1;
    }
    return static_cast<std::size_t>(std::count(&composite[first], &composite[0] + last, 0));
  });
  const std::size_t pairs = on_parts(n, [&](std::size_t first, std::size_t last) {
    std::size_t sum = 0;
    for (std::size_t i = first; i < std::min(last, n - 2); ++i) sum += composite[i] + composite[i + 2] == 0;
    return sum;
  });
  std::printf("%zu primes below %zu, %zu pairs, %u ranks\n", found, n, pairs, kasane::ranks());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  kasane::run([n] { count(n); });
}
