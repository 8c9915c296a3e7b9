// SPDX-License-Identifier: Apache-2.0
// kasane::parallel_invoke in a job: kasane run -n 1 --workers WORKERS -- player-fork-join-kasane …
#include <kasane/kasane.hpp>

#include "fork_join/player.h"

namespace {

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0, b = 0;
  kasane::parallel_invoke([&a, n] { a = fib(n - 1); }, [&b, n] { b = fib(n - 2); });
  return a + b;
}

std::uint64_t tree(unsigned depth) {
  if (depth == 0) return 1;
  std::uint64_t a = 0, b = 0;
  kasane::parallel_invoke([&a, depth] { a = tree(depth - 1); }, [&b, depth] { b = tree(depth - 1); });
  return a + b;
}

/// `kasane run` has started the workers.
void in_job(unsigned workers, const std::function<void()>& measure) {
  if (kasane::workers() != workers || kasane::ranks() != 1) {
    std::fprintf(stderr, "player-fork-join-kasane: run it with 1 rank of %u workers\n", workers);
    std::exit(2);
  }
  kasane::run([&measure] { measure(); });
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_job); }
