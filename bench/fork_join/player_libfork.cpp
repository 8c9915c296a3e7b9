// SPDX-License-Identifier: Apache-2.0
// libfork 3: coroutines on a lazy_pool.
#include <libfork/core.hpp>
#include <libfork/schedule.hpp>

#include "fork_join/player.h"

namespace {

constexpr auto fib_task = [](auto self, unsigned n) -> lf::task<std::uint64_t> {
  if (n < 2) co_return n;
  std::uint64_t a = 0, b = 0;
  co_await lf::fork(&a, self)(n - 1);
  co_await lf::call(&b, self)(n - 2);
  co_await lf::join;
  co_return a + b;
};

constexpr auto tree_task = [](auto self, unsigned depth) -> lf::task<std::uint64_t> {
  if (depth == 0) co_return 1;
  std::uint64_t a = 0, b = 0;
  co_await lf::fork(&a, self)(depth - 1);
  co_await lf::call(&b, self)(depth - 1);
  co_await lf::join;
  co_return a + b;
};

lf::lazy_pool* pool = nullptr;  // the one that runs: a recursion takes its size alone

std::uint64_t fib(unsigned n) { return lf::sync_wait(*pool, fib_task, n); }
std::uint64_t tree(unsigned depth) { return lf::sync_wait(*pool, tree_task, depth); }

void in_pool(unsigned workers, const std::function<void()>& measure) {
  lf::lazy_pool made(workers);
  pool = &made;
  measure();
  pool = nullptr;
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_pool); }
