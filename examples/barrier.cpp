// SPDX-License-Identifier: Apache-2.0
// barrier: threads that work in phases, each reading what its neighbours wrote in the phase before.
#include <array>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

int failures() {
  constexpr int kThreads = 6, kPhases = 20;
  std::array<std::array<int, kThreads>, 2> cells{};
  cells[0] = {1, 0, 0, 0, 0, 0};
  kasane::barrier barrier(kThreads);
  std::vector<kasane::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int phase = 0; phase < kPhases; ++phase) {
        const auto& from = cells[static_cast<std::size_t>(phase % 2)];
        auto& to = cells[static_cast<std::size_t>((phase + 1) % 2)];
        to[static_cast<std::size_t>(t)] =
            from[static_cast<std::size_t>(t)] + from[static_cast<std::size_t>((t + 1) % kThreads)];
        barrier.arrive_and_wait();
      }
    });
  }
  for (auto& t : threads) t.join();
  long sum = 0;
  for (int cell : cells[kPhases % 2]) sum += cell;
  return sum != 1L << kPhases;  // every phase doubles the sum
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("barrier: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
