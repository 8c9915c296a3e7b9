// SPDX-License-Identifier: Apache-2.0
// Signals that come all the time, as a profiler's do, on every rank: the program's handlers run, and faults,
// steals, locks and puts go on as if there were none.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <mutex>
#include <utility>
#include <vector>

namespace {

std::atomic<std::uint64_t> ticks{0};  // of this rank: a global is each rank's own

void on_tick(int) { ticks.fetch_add(1, std::memory_order_relaxed); }

/// This rank's process is interrupted every `microseconds`, by turns of real and of used time: the first also
/// while its threads sleep. 0: no more.
void interrupt_every(long microseconds) {
  struct sigaction action{};
  action.sa_handler = on_tick;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGALRM, SIGPROF}) ::sigaction(signal, &action, nullptr);
  const itimerval time{{0, microseconds}, {0, microseconds}};
  ::setitimer(ITIMER_REAL, &time, nullptr);
  ::setitimer(ITIMER_PROF, &time, nullptr);
}

/// The function runs on each rank.
template <typename Function>
void on_every_rank(Function function) {
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
    const auto place = kasane::make_array<char>(1, kasane::placement::on(r));
    kasane::thread(kasane::near{place.get()}, function).join();
  }
}

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0;
  kasane::thread child([&] { a = fib(n - 1); });
  const std::uint64_t b = fib(n - 2);
  child.join();
  return a + b;
}

struct Work {
  unsigned wrong = 0;
  std::uint64_t counted = 0;
};

/// Blocks falsely shared by all threads, a counter under a lock, stolen stacks, and direct puts and gets.
Work work() {
  constexpr std::uint64_t kThreads = 8, kWords = 4096, kAdds = 20;
  const auto shared = kasane::make_array<std::uint64_t>(kWords, kasane::placement::cyclic);
  kasane::mutex mutex;
  Work w;
  std::vector<kasane::thread> threads;
  threads.reserve(kThreads);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t, words = shared.get()] {
      for (std::uint64_t i = t; i < kWords; i += kThreads) words[i] = i * i;
      for (std::uint64_t i = 0; i < kAdds; ++i) {
        const std::lock_guard lock(mutex);
        ++w.counted;
      }
    });
  }
  w.wrong += fib(14) != 377;
  for (auto& t : threads) t.join();
  w.wrong += w.counted != kThreads * kAdds;
  for (std::uint64_t i = 0; i < kWords; ++i) w.wrong += shared[i] != i * i;
  kasane::release_all();  // before the direct view is used
  std::vector<std::uint64_t> got(kWords);
  kasane::get(got.data(), kasane::global_ptr<const std::uint64_t>(shared.get()), kWords);
  for (std::uint64_t i = 0; i < kWords; ++i) w.wrong += got[i] != i * i;
  return w;
}

TEST(Signals, InterruptNothingThatMatters) {
  const auto [wrong, quiet] = kasane::run([] {
    on_every_rank([] { interrupt_every(500); });
    unsigned bad = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) bad += work().wrong;
    unsigned without = 0;  // ranks that nobody interrupted
    on_every_rank([] { interrupt_every(0); });
    on_every_rank([&] { without += ticks.load() < 100; });
    return std::pair(bad, without);
  });
  EXPECT_EQ(wrong, 0u);
  if (kasane::workers() ==
      1) {  // else a thread may be stolen before it has begun, and some rank is not asked
    EXPECT_EQ(quiet, 0u);
  }
}

}  // namespace
