// SPDX-License-Identifier: Apache-2.0
// What a load costs whose block is another rank's, by threads of one worker that miss at the same time.
//   kasane run -n 2 --workers 1 --transport ucx --debug relocate=off -- player-misses BLOCKS REPETITIONS T…
// BLOCKS blocks of 4 KiB lie at rank 0, which rests; T threads on rank 1 load a word of each, every block
// once, in random order. Prints one JSON object: "threads-T", a list of REPETITIONS figures, µs a block.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <kasane/sync.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "figures.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlockWords = 4096 / 8;

/// A round: T threads of rank 1 load all blocks. Rank 0, when it rests, takes threads that are ready
/// elsewhere; so it computes until each has begun, and from then on none is ready: each runs or waits.
struct Round {
  const std::uint64_t* words;
  const std::vector<std::uint32_t>& order;
  std::size_t threads;
  kasane::atomic_ref<std::uint64_t> begun;
  std::size_t ready = 0, first_loads = 0, wrong = 0;
  Clock::time_point start{};

  /// One of the threads, which have one worker.
  void load_part(std::size_t t) {
    if (++ready == threads) start = Clock::now();
    while (ready != threads) kasane::this_thread::yield();
    for (std::size_t i = t; i < order.size(); i += threads) {
      const volatile std::uint64_t* const word = words + order[i] * kBlockWords;
      const bool right = *word == order[i];
      wrong += right ? 0 : 1;
      if (i == t && ++first_loads == threads) begun.store(1);
    }
  }
  /// On rank 1. Microseconds a block; below zero if something is wrong.
  double play() {
    kasane::acquire_all();  // drops what the round before has brought
    std::vector<kasane::thread> all;
    for (std::size_t t = 0; t < threads; ++t) all.emplace_back([this, t] { load_part(t); });
    for (kasane::thread& thread : all) thread.join();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    return wrong == 0 && kasane::rank() == 1 ? us / static_cast<double>(order.size()) : -1;
  }
};

/// On rank 0. True if all values are right.
bool measure(const std::uint64_t* words, std::size_t blocks, std::uint64_t* flag, char* place,
             int repetitions, const std::vector<std::size_t>& threads, kasane::bench::Figures& figures) {
  std::vector<std::uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 random{1};
  bool right = true;
  const kasane::atomic_ref<std::uint64_t> begun(*flag);
  for (int r = -1; r < repetitions; ++r) {  // the first one's pages are not known yet
    for (const std::size_t t : threads) {
      std::shuffle(order.begin(), order.end(), random);
      begun.store(0);
      double us = -1;
      kasane::thread round(kasane::near{place}, [&] {
        const std::vector<std::uint32_t> here = order;
        us = std::make_unique<Round>(Round{words, here, t, begun})->play();
      });
      while (begun.load() == 0) kasane::this_thread::move_to(0);  // rank 1 may have taken this thread
      round.join();
      right = right && us >= 0;
      if (r >= 0) figures["threads-" + std::to_string(t)].push_back(us);
    }
  }
  return right;
}

char* allocate_on(std::uint32_t rank, std::size_t blocks) {
  return static_cast<char*>(kasane::allocate(blocks * kBlockWords * 8, 65536, kasane::placement::on(rank)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || kasane::ranks() != 2) {
    std::fputs("player-misses BLOCKS REPETITIONS THREADS...: run it with 2 ranks\n", stderr);
    return 2;
  }
  const std::size_t blocks = std::strtoull(argv[1], nullptr, 10);
  const int repetitions = std::atoi(argv[2]);
  return kasane::run([&] {
    std::vector<std::size_t> threads;
    for (int i = 3; i < argc; ++i) threads.push_back(std::strtoull(argv[i], nullptr, 10));
    auto* const words = reinterpret_cast<std::uint64_t*>(allocate_on(0, blocks));
    auto* const flag = reinterpret_cast<std::uint64_t*>(allocate_on(0, 1));
    char* const place = allocate_on(1, 1);
    kasane::bench::Figures figures;
    bool verified = false;
    kasane::thread(kasane::near{words}, [&] {
      for (std::size_t b = 0; b < blocks; ++b) words[b * kBlockWords] = b;
      verified = measure(words, blocks, flag, place, repetitions, threads, figures);
    }).join();
    kasane::bench::print_figures(verified, figures);
    for (void* const p : {static_cast<void*>(words), static_cast<void*>(flag), static_cast<void*>(place)})
      kasane::deallocate(p);
    return verified ? 0 : 1;
  });
}
