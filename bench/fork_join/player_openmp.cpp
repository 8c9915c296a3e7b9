// SPDX-License-Identifier: Apache-2.0
// OpenMP tasks of the compiler's own runtime.
#include <omp.h>

#include "fork_join/player.h"

namespace {

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0;
#pragma omp task shared(a) firstprivate(n)
  a = fib(n - 1);
  const std::uint64_t b = fib(n - 2);
#pragma omp taskwait
  return a + b;
}

std::uint64_t tree(unsigned depth) {
  if (depth == 0) return 1;
  std::uint64_t a = 0;
#pragma omp task shared(a) firstprivate(depth)
  a = tree(depth - 1);
  const std::uint64_t b = tree(depth - 1);
#pragma omp taskwait
  return a + b;
}

void in_team(unsigned workers, const std::function<void()>& measure) {
#pragma omp parallel num_threads(static_cast<int>(workers))
#pragma omp single
  measure();
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_team); }
