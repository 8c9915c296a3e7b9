// SPDX-License-Identifier: Apache-2.0
// kasane::thread: arguments, results through pointers to the parent's stack, handles that move, detach, ids.
#include <array>
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <memory>
#include <string>
#include <utility>

namespace {

/// Enough work for a thief to come.
std::uint64_t collatz(std::uint64_t n) {
  std::uint64_t steps = 0;
  for (std::uint64_t i = 1; i < n; ++i)
    for (std::uint64_t x = i; x != 1; x = x % 2 == 0 ? x / 2 : 3 * x + 1) ++steps;
  return steps;
}

int failures() {
  int bad = 0;

  // A result through a pointer to a variable of the parent, which may move to another rank meanwhile.
  std::array<std::uint64_t, 8> steps{};
  std::array<kasane::thread, 8> threads;
  for (std::size_t i = 0; i < threads.size(); ++i)
    threads[i] =
        kasane::thread([](std::uint64_t* out, std::uint64_t n) { *out = collatz(n); }, &steps[i], 20'000 + i);
  for (auto& t : threads) t.join();
  for (std::size_t i = 0; i < steps.size(); ++i) bad += steps[i] != collatz(20'000 + i);

  // The function and its arguments are built on the new thread's stack, or in global memory where they are
  // huge (a stack has 64 KiB).
  using Huge = std::array<char, 100'000>;
  std::array<char, 1000> large{};
  const auto huge = std::make_unique<Huge>();
  large.back() = huge->back() = 'x';
  char seen_large = 0, seen_huge = 0;
  kasane::thread a([&seen_large, large] { seen_large = large.back(); });
  kasane::thread b([&seen_huge](const Huge& h) { seen_huge = h.back(); }, *huge);  // a copy
  a.join();
  b.join();
  bad += seen_large != 'x' || seen_huge != 'x';

  // Handles move; ids are unique; arguments are destroyed with the thread.
  std::string text;
  kasane::thread first([&](std::string s) { text = std::move(s); }, std::string(100, 'k'));
  kasane::thread second = std::move(first);
  bad += first.joinable() || !second.joinable() || second.get_id() == kasane::this_thread::get_id();
  second.join();
  bad += text != std::string(100, 'k');
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("threads: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
