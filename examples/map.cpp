// SPDX-License-Identifier: Apache-2.0
// A map that all ranks fill and read at once, beside std::unordered_map filled by one thread. Prints what an
// operation costs.
//
//   kasane run -n 2 -- map [ENTRIES]
#include <time.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/kasane.hpp>
#include <unordered_map>
#include <vector>

namespace {

using Map = kasane::unordered_map<std::uint64_t, std::uint64_t>;

/// A different number for each i.
std::uint64_t key(std::uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  return (i ^ i >> 31) * 0xD6E8FEB86659FD93u;
}

/// Some order of 0 … n-1, with repetitions.
std::uint64_t any(std::uint64_t i, std::uint64_t n) { return (key(i) >> 20) % n; }

/// Of the processor, so that other programs do not count.
double now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// Nanoseconds of a call f(i), for n of them.
template <class F>
double timed(std::uint64_t n, const F& f) {
  const double begin = now_ns();
  for (std::uint64_t i = 0; i < n; ++i) f(i);
  return (now_ns() - begin) / static_cast<double>(n);
}

/// One thread; all entries at its rank, at another one, or in the standard map.
template <class Insert, class Find>
std::uint64_t alone(const char* what, std::uint64_t n, const Insert& insert, const Find& find) {
  std::uint64_t wrong = 0;
  const double in = timed(n, [&](std::uint64_t i) { insert(key(i), i); });
  const double out = timed(n, [&](std::uint64_t i) { wrong += find(key(any(i, n))) != any(i, n); });
  std::printf("map: %-22s insert %6.0f ns, find %6.0f ns\n", what, in, out);
  return wrong;
}

std::uint64_t one_thread(const char* what, std::uint64_t n, std::uint32_t rank) {
  const Map map({rank});
  return alone(
      what, n, [&](std::uint64_t k, std::uint64_t v) { map.insert(k, v); },
      [&](std::uint64_t k) { return map.find(k).value_or(~std::uint64_t{0}); });
}

std::uint64_t standard(std::uint64_t n) {
  std::unordered_map<std::uint64_t, std::uint64_t> map;
  return alone(
      "std::unordered_map", n, [&](std::uint64_t k, std::uint64_t v) { map.emplace(k, v); },
      [&](std::uint64_t k) {
        const auto found = map.find(k);
        return found != map.end() ? found->second : ~std::uint64_t{0};
      });
}

/// A thread at each rank inserts its part, then looks for all.
std::uint64_t all_ranks(std::uint64_t n) {
  const Map map;
  const std::uint32_t ranks = kasane::ranks();
  std::vector<std::uint64_t> wrong(ranks, 0);
  const auto at_each = [&](auto&& f) {
    std::vector<kasane::thread> threads;
    const std::uint64_t begin = kasane_clock_ns();
    for (std::uint32_t r = 0; r < ranks; ++r)
      threads.emplace_back(kasane::at{r}, [&f, h = Map::handle(map), r] { f(h, r); });
    for (auto& t : threads) t.join();
    return static_cast<double>(kasane_clock_ns() - begin) / static_cast<double>(n);
  };
  const double in = at_each([n, ranks](const Map::handle& h, std::uint64_t r) {
    for (std::uint64_t i = r; i < n; i += ranks) h.insert(key(i), i);
  });
  const double out = at_each([n, ranks, &wrong](const Map::handle& h, std::uint64_t r) {
    std::uint64_t w = 0;
    for (std::uint64_t i = r; i < n; i += ranks) w += h.find(key(any(i, n))) != any(i, n);
    wrong[r] = w;
  });
  std::printf("map: %-22s insert %6.0f ns, find %6.0f ns, size %zu\n", "all ranks at once", in, out,
              map.size());
  std::uint64_t sum = map.size() != n;
  for (const std::uint64_t w : wrong) sum += w;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
  const std::uint64_t wrong = kasane::run([n] {
    std::uint64_t w = standard(n) + one_thread("here", n, kasane::rank());
    w += one_thread("at the last rank", n, kasane::ranks() - 1);
    return w + all_ranks(n);
  });
  std::printf("map: %s\n", wrong == 0 ? "ok" : "FAILED");
  return wrong == 0 ? 0 : 1;
}
