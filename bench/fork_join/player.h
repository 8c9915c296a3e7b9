// SPDX-License-Identifier: Apache-2.0
// What the players of `kasane bench core --only fork-join` share: the two recursions' sizes, checks and
// clock. A player is a program that forks and joins by the public interface of one system, as a user of that
// system writes it:
//
//   player-fork-join-NAME fib|tree SIZE WORKERS REPETITIONS
//
// It prints one JSON object: whether all results were right, and of each repetition the ns per inner node of
// the recursion.
//   fib    fib(SIZE): subtrees of unequal sizes, fib(SIZE + 1) - 1 inner nodes
//   tree   counts the leaves of a complete binary tree of depth SIZE, 2^SIZE - 1 inner nodes
//
// Thread safety: main alone calls play().
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

namespace kasane::bench {

/// The recursions of one system; each inner node forks one child, calls the other and joins.
struct Recursions {
  std::uint64_t (*fib)(unsigned n);
  std::uint64_t (*tree)(unsigned depth);
};

[[gnu::noinline]] inline std::uint64_t call_fib(unsigned n) {
  if (n < 2) return n;
  const std::uint64_t a = call_fib(n - 1);
  asm volatile("");  // keeps the compiler from turning the recursion into loops
  return a + call_fib(n - 2);
}

[[gnu::noinline]] inline std::uint64_t call_tree(unsigned depth) {
  if (depth == 0) return 1;
  const std::uint64_t a = call_tree(depth - 1);
  asm volatile("");
  return a + call_tree(depth - 1);
}

/// The body of a player's main. with(workers, measure) starts the system with so many workers, calls
/// measure(), from which the recursions are called, and stops the system.
inline int play(int argc, char** argv, Recursions of,
                void (*with)(unsigned workers, const std::function<void()>& measure)) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s fib|tree SIZE WORKERS REPETITIONS\n", argv[0]);
    return 2;
  }
  const bool fib = std::string_view(argv[1]) == "fib";
  const auto size = static_cast<unsigned>(std::atoi(argv[2])),
             workers = static_cast<unsigned>(std::atoi(argv[3]));
  const auto recursion = fib ? of.fib : of.tree;
  const std::uint64_t expected = fib ? call_fib(size) : std::uint64_t{1} << size;
  const std::uint64_t nodes = fib ? call_fib(size + 1) - 1 : expected - 1;
  std::vector<double> ns(static_cast<std::size_t>(std::atoi(argv[4])));
  bool verified = true;
  with(workers, [&] {
    verified = recursion(size) == expected;  // the first run warms up
    for (double& one : ns) {
      const auto begin = std::chrono::steady_clock::now();
      verified = recursion(size) == expected && verified;
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
      one = took.count() / static_cast<double>(nodes);
    }
  });
  std::printf("{\"verified\": %s, \"ns\": [", verified ? "true" : "false");
  for (std::size_t i = 0; i < ns.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", ns[i]);
  std::puts("]}");
  return verified ? 0 : 1;
}

}  // namespace kasane::bench
