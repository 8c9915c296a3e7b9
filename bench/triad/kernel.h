// SPDX-License-Identifier: Apache-2.0
// STREAM's Triad (J. McCalpin), and how a player is asked for it. Both players, that of Kasane and that of
// ordinary memory, run this same loop. player_….cpp are compiled with -O3, which vectorises it.
//
// A player reads a request a line and answers each with a line:
//   array VERSION N        allocates a, b, c of N doubles in this way, and fills them  → done
//   run ordinary|streaming PASSES     so many passes, with a barrier after each        → seconds
//   check                  whether a is what the last run makes it; spoils a           → done
// or with "error WHY". It ends at the end of its input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace kasane::bench::triad {

inline constexpr double kFactor = 3;
/// Parts of threads begin at multiples of so many elements: a cache line.
inline constexpr std::size_t kLine = 8;

/// What a thread works on: [first, last) of the arrays.
struct Part {
  double *a, *b, *c;
  std::size_t first, last;
};

/// b[i] is its index in the whole array, `from` that of element 0; so a becomes that and kFactor.
inline void fill(const Part& p, std::size_t from) {
  for (std::size_t i = p.first; i < p.last; ++i) {
    p.a[i] = -1;
    p.b[i] = static_cast<double>(from + i);
    p.c[i] = 1;
  }
}
/// Elements of a that are wrong, and spoils them, so that the next run has to make them anew.
inline std::uint64_t check(const Part& p, std::size_t from) {
  std::uint64_t wrong = 0;
  for (std::size_t i = p.first; i < p.last; ++i) {
    wrong += p.a[i] != static_cast<double>(from + i) + kFactor ? 1 : 0;
    p.a[i] = -1;
  }
  return wrong;
}

/// a = b + r c. The arrays do not overlap.
[[gnu::noinline]] inline void triad(double* __restrict a, const double* __restrict b,
                                    const double* __restrict c, double r, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + r * c[i];
}

/// The same by stores that go past the caches: a's lines are not read before they are overwritten. On CPUs
/// without such stores as triad(). a is aligned to 16 bytes.
[[gnu::noinline]] inline void triad_streaming(double* __restrict a, const double* __restrict b,
                                              const double* __restrict c, double r, std::size_t n) {
#ifdef __SSE2__
  const __m128d factor = _mm_set1_pd(r);
  std::size_t i = 0;
  for (; i + kLine <= n; i += kLine)
    for (std::size_t k = 0; k < kLine; k += 2)
      _mm_stream_pd(a + i + k,
                    _mm_add_pd(_mm_loadu_pd(b + i + k), _mm_mul_pd(factor, _mm_loadu_pd(c + i + k))));
  for (; i < n; ++i) a[i] = b[i] + r * c[i];
  _mm_sfence();  // the barrier after the pass orders ordinary stores alone
#else
  triad(a, b, c, r, n);
#endif
}

inline void pass(const Part& p, bool streaming) {
  const std::size_t n = p.last - p.first;
  (streaming ? triad_streaming : triad)(p.a + p.first, p.b + p.first, p.c + p.first, kFactor, n);
}

/// Answers requests until the input ends. Player has void array(version, n), double run(streaming, passes),
/// std::uint64_t check(); they throw what is wrong.
template <class Player>
int answer(Player& player) {
  char line[256], version[64], stores[16];
  unsigned long long n = 0;
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    try {
      if (std::sscanf(line, "array %63s %llu", version, &n) == 2) {
        player.array(version, static_cast<std::size_t>(n));
        std::puts("done");
      } else if (std::sscanf(line, "run %15s %llu", stores, &n) == 2) {
        std::printf("%.9f\n", player.run(std::strcmp(stores, "streaming") == 0, n));
      } else if (std::strcmp(line, "check\n") == 0) {
        const std::uint64_t wrong = player.check();
        if (wrong != 0) throw std::runtime_error(std::to_string(wrong) + " elements are wrong");
        std::puts("done");
      } else {
        throw std::runtime_error("no such request: " + std::string(line));
      }
    } catch (const std::exception& e) {
      std::printf("error %s\n", e.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace kasane::bench::triad
