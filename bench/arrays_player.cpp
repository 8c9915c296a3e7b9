// SPDX-License-Identifier: Apache-2.0
// What kasane::array costs:
//   kasane run … -- player-arrays gemm N REPETITIONS
//     C = A B of N x N doubles in tiles of 512 x 512, once to begin with, then REPETITIONS times
//   kasane run -n 2 --workers 1 --debug relocate=off -- player-arrays patches REPETITIONS
//     a thread on rank 0 gets, puts and accumulates patches of an array of two blocks, one at each rank;
//     copies of the same shape between private arrays beside it
// Prints one JSON object: "gigaflops", a list; or lists of GB/s, "get-SHAPE-own", "put-SHAPE-other",
// "memcpy-SHAPE" …
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/array.hpp>
#include <memory>
#include <string>
#include <vector>

#include "figures.h"

namespace {

using Clock = std::chrono::steady_clock;
using kasane::bench::Figures;
using Matrix = kasane::array<double, 2>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

#ifdef KASANE_HAVE_BLAS
bool measure_gemm(std::size_t n, int repetitions, Figures& figures) {
  const kasane::tiles tiles{512, 512};
  Matrix a({n, n}, tiles), b({n, n}, tiles), c({n, n}, tiles);
  a.fill(1);
  b.fill(2);
  c.fill(0);
  for (int i = 0; i <= repetitions; ++i) {
    const auto start = Clock::now();
    kasane::gemm(1.0, a, b, 0.0, c);
    const double rate = 2e-9 * static_cast<double>(n * n * n) / seconds_since(start);
    if (i != 0) figures["gigaflops"].push_back(rate);
  }
  const double right = 2.0 * static_cast<double>(n);
  return c.min() == right && c.max() == right;
}
#else
bool measure_gemm(std::size_t, int, Figures&) {
  std::fputs("player-arrays: built without a BLAS (Debian: libopenblas-dev)\n", stderr);
  return false;
}
#endif

struct Shape {
  const char* name;
  std::size_t rows, columns;
};
constexpr Shape kShapes[] = {{"1MiB", 64, 2048}, {"256x256", 256, 256}, {"1000x8", 1000, 8}, {"1x1", 1, 1}};
constexpr std::size_t kRows = 1024, kColumns = 2048;  ///< of a block

class Patches {
 public:
  explicit Patches(Figures& figures)
      : figures_(figures), array_({2 * kRows, kColumns}, kasane::blocks{2, 1}) {
    array_.fill(0);
  }

  void repeat() {
    for (const Shape& s : kShapes) {
      const std::string name = s.name;
      for (const bool other : {false, true}) {
        const std::size_t first = (other ? kRows : 0) + 7, column = s.columns == kColumns ? 0 : 11;
        const kasane::box<2> patch{{first, column}, {first + s.rows, column + s.columns}};
        const std::string where = name + (other ? "-other" : "-own");
        keep("put-" + where, s, [&] { array_.put(patch, local_.get()); });
        keep("get-" + where, s, [&] { array_.get(patch, local_.get()); });
        keep("accumulate-" + where, s, [&] { array_.accumulate(patch, local_.get()); });
      }
      keep("memcpy-" + name, s, [&] {
        for (std::size_t i = 0; i < s.rows; ++i)
          std::memcpy(local_.get() + i * s.columns, source_.get() + i * kColumns, s.columns * sizeof(double));
      });
    }
  }

 private:
  template <class F>
  void keep(const std::string& name, const Shape& s, const F& f) {
    const double bytes = static_cast<double>(s.rows * s.columns * sizeof(double));
    const int times = bytes < 4096 ? 10000 : bytes < 100'000 ? 200 : 20;
    f();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) f();
    figures_[name].push_back(bytes * times / seconds_since(start) / 1e9);
  }
  struct Free {
    void operator()(double* p) const { std::free(p); }
  };
  static std::unique_ptr<double[], Free> private_memory() {
    constexpr std::size_t bytes = kRows * kColumns * sizeof(double);
    auto* const p = static_cast<double*>(std::malloc(bytes));
    std::memset(p, 0, bytes);
    return std::unique_ptr<double[], Free>(p);
  }

  Figures& figures_;
  Matrix array_;
  std::unique_ptr<double[], Free> local_ = private_memory(), source_ = private_memory();
};

bool measure_patches(int repetitions, Figures& figures) {
  if (kasane::ranks() != 2) {
    std::fputs("player-arrays: run patches with 2 ranks\n", stderr);
    return false;
  }
  const Matrix places({2, 8192}, kasane::blocks{2, 1});
  bool stayed = false;
  kasane::thread(kasane::near{places.address({0, 0}).get()}, [&] {
    Figures own;  // in memory of this rank
    Patches patches(own);
    kasane::this_thread::move_near(places.address({0, 0}).get());
    for (int i = 0; i < repetitions; ++i) patches.repeat();
    figures = own;
    stayed = kasane::rank() == 0;
  }).join();
  return stayed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool gemm = what == "gemm" && argc == 4, patches = what == "patches" && argc == 3;
  if (!gemm && !patches) {
    std::fputs("usage: player-arrays gemm N REPETITIONS | patches REPETITIONS\n", stderr);
    return 2;
  }
  return kasane::run([=] {
    Figures figures;
    const bool verified =
        gemm ? measure_gemm(static_cast<std::size_t>(std::atoi(argv[2])), std::atoi(argv[3]), figures)
             : measure_patches(std::atoi(argv[2]), figures);
    kasane::bench::print_figures(verified, figures);
    return verified ? 0 : 1;
  });
}
