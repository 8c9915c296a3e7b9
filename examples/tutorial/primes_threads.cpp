// SPDX-License-Identifier: Apache-2.0
// docs/guide/tutorial.md, steps 1 to 3: the primes below N by a sieve of one byte a number, and among them
// the pairs p, p + 2, with T threads of the standard library. Usage: primes_threads [N [T]]
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPart = 1 << 20;  // of the sieve that a thread works on at a time

/// The primes up to the root of n.
std::vector<std::size_t> small_primes(std::size_t n) {
  std::vector<std::size_t> primes;
  for (std::size_t i = 2; i * i < n; ++i) {
    if (std::none_of(primes.begin(), primes.end(), [i](std::size_t p) { return i % p == 0; }))
      primes.push_back(i);
  }
  return primes;
}

/// Marks what is not prime among the numbers from first to last.
void mark(std::vector<char>& composite, const std::vector<std::size_t>& primes, std::size_t first,
          std::size_t last) {
  for (const std::size_t p : primes) {
    for (std::size_t i = std::max(p * p, (first + p - 1) / p * p); i < last; i += p) composite[i] = 1;
  }
}

/// f(first, last) for each part of 2 … n, on so many threads; the sum of what it returns.
template <class F>
std::size_t on_threads(std::size_t n, unsigned threads, const F& f) {
  std::vector<std::size_t> sums(threads);
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      std::size_t sum = 0;
      for (std::size_t part = t; part * kPart < n; part += threads)
        sum += f(std::max<std::size_t>(part * kPart, 2), std::min((part + 1) * kPart, n));
      sums[t] = sum;
    });
  }
  for (std::thread& thread : team) thread.join();
  return std::accumulate(sums.begin(), sums.end(), std::size_t{0});
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  const unsigned threads = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 4;
  const std::vector<std::size_t> primes = small_primes(n);
  std::vector<char> composite(n);
  const std::size_t found = on_threads(n, threads, [&](std::size_t first, std::size_t last) {
    mark(composite, primes, first, last);
    return static_cast<std::size_t>(std::count(&composite[first], &composite[0] + last, 0));
  });
  const std::size_t pairs = on_threads(n, threads, [&](std::size_t first, std::size_t last) {
    std::size_t sum = 0;
    for (std::size_t i = first; i < std::min(last, n - 2); ++i) sum += composite[i] + composite[i + 2] == 0;
    return sum;
  });
  std::printf("%zu primes below %zu, %zu pairs, %u threads\n", found, n, pairs, threads);
}
