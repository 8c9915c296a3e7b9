// SPDX-License-Identifier: Apache-2.0
// TooManyCooks: coroutines awaited in pairs on its CPU executor.
#define TMC_IMPL
#include <tmc/all_headers.hpp>
#include <tuple>

#include "fork_join/player.h"

namespace {

tmc::task<std::uint64_t> fib_task(unsigned n) {
  if (n < 2) co_return n;
  const auto both = co_await tmc::spawn_tuple(fib_task(n - 1), fib_task(n - 2));
  co_return std::get<0>(both) + std::get<1>(both);
}

tmc::task<std::uint64_t> tree_task(unsigned depth) {
  if (depth == 0) co_return 1;
  const auto both = co_await tmc::spawn_tuple(tree_task(depth - 1), tree_task(depth - 1));
  co_return std::get<0>(both) + std::get<1>(both);
}

std::uint64_t fib(unsigned n) { return tmc::post_waitable(tmc::cpu_executor(), fib_task(n)).get(); }
std::uint64_t tree(unsigned depth) { return tmc::post_waitable(tmc::cpu_executor(), tree_task(depth)).get(); }

void in_executor(unsigned workers, const std::function<void()>& measure) {
  tmc::cpu_executor().set_thread_count(workers).init();
  measure();
  tmc::cpu_executor().teardown();
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_executor); }
