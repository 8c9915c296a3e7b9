// SPDX-License-Identifier: Apache-2.0
// citor: ThreadPool::forkJoin. With one participant it calls both functions, and forks nothing.
#include <citor/cpos/fork_join.h>
#include <citor/hints.h>
#include <citor/thread_pool.h>

#include "fork_join/player.h"

namespace {

citor::ThreadPool* pool = nullptr;  // the one that runs: a recursion takes its size alone

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0, b = 0;
  pool->forkJoin<citor::CcdLocalForkJoinHints>([&a, n] { a = fib(n - 1); }, [&b, n] { b = fib(n - 2); });
  return a + b;
}

std::uint64_t tree(unsigned depth) {
  if (depth == 0) return 1;
  std::uint64_t a = 0, b = 0;
  pool->forkJoin<citor::CcdLocalForkJoinHints>([&a, depth] { a = tree(depth - 1); },
                                               [&b, depth] { b = tree(depth - 1); });
  return a + b;
}

void in_pool(unsigned workers, const std::function<void()>& measure) {
  citor::ThreadPool made(workers);
  pool = &made;
  measure();
  pool = nullptr;
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_pool); }
