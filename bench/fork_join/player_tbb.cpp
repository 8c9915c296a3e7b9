// SPDX-License-Identifier: Apache-2.0
// oneTBB: tbb::parallel_invoke in an arena.
#include <tbb/global_control.h>
#include <tbb/parallel_invoke.h>
#include <tbb/task_arena.h>

#include "fork_join/player.h"

namespace {

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0, b = 0;
  tbb::parallel_invoke([&a, n] { a = fib(n - 1); }, [&b, n] { b = fib(n - 2); });
  return a + b;
}

std::uint64_t tree(unsigned depth) {
  if (depth == 0) return 1;
  std::uint64_t a = 0, b = 0;
  tbb::parallel_invoke([&a, depth] { a = tree(depth - 1); }, [&b, depth] { b = tree(depth - 1); });
  return a + b;
}

void in_arena(unsigned workers, const std::function<void()>& measure) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, workers);
  tbb::task_arena arena(static_cast<int>(workers));
  arena.execute(measure);
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_arena); }
