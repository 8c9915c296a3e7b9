// SPDX-License-Identifier: Apache-2.0
// Signals that come all the time, as a profiler's do, on every rank: the program's handlers store to its
// shared variables, and faults, steals, locks and puts go on as if there were none.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <kasane/kasane.hpp>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::uint32_t kMostRanks = 4, kLines = 64;
/// Each rank counts what it handles, where no other rank sees it; all count together in one variable.
std::uint64_t* g_own[kMostRanks];
std::atomic<std::uint64_t> g_all{0};
/// Signals that come later are not counted: some wait while a worker is in the runtime, perhaps until the job
/// ends.
std::atomic<bool> g_counts{false};
/// Blocks that all ranks store to, each to words of its own. They are evicted where DRAM is small.
struct Line {
  std::uint64_t of_rank[kMostRanks];
  char rest[4096 - kMostRanks * 8];
};
Line g_lines[kLines];

void on_tick(int) {
  if (!g_counts.load(std::memory_order_relaxed)) return;
  const std::uint32_t rank = kasane::rank();
  const std::uint64_t own = __atomic_add_fetch(g_own[rank], 1, __ATOMIC_RELAXED);
  g_all.fetch_add(1, std::memory_order_relaxed);
  g_lines[own % kLines].of_rank[rank] = own;
}

/// Outside of the space.
std::uint64_t* private_word() {
  return static_cast<std::uint64_t*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

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

struct Outcome {
  unsigned wrong = 0;
  std::uint64_t handled[kMostRanks] = {};
  [[nodiscard]] std::uint64_t all() const {
    return std::accumulate(handled, handled + kMostRanks, std::uint64_t{0});
  }
};

/// Works until each rank has handled `most` signals, or the time is over; then stop() ends them.
template <typename Start, typename Stop>
Outcome work_while(std::uint64_t most, Start start, Stop stop) {
  on_every_rank([] {
    if (g_own[kasane::rank()] == nullptr) g_own[kasane::rank()] = private_word();
    *g_own[kasane::rank()] = 0;
  });
  g_all = 0;
  g_counts = true;
  on_every_rank(start);
  Outcome o;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool enough = false; !enough && std::chrono::steady_clock::now() < end;) {
    o.wrong += work().wrong;
    enough = g_all.load() >= most * kasane::ranks();
  }
  on_every_rank(stop);
  g_counts = false;
  // The last ones are being handled.
  do {
    ::usleep(10'000);
    on_every_rank([&o] { o.handled[kasane::rank()] = *g_own[kasane::rank()]; });
  } while (o.all() != g_all.load() && std::chrono::steady_clock::now() < end + std::chrono::seconds(5));
  return o;
}

/// Which signals wait, and which are blocked, of each OS thread of rank 0.
void print_masks() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("Sig") || line.starts_with("State") || line.starts_with("Pid"))
        std::cerr << line << "  ";
    std::cerr << '\n';
  }
}

void expect_all_counted(const Outcome& o, std::uint64_t least) {
  EXPECT_EQ(o.wrong, 0u);
  EXPECT_EQ(g_all.load(), o.all());
  EXPECT_GE(o.all(), least);
  if (testing::Test::HasFailure()) print_masks();
}

TEST(Signals, InterruptNothingThatMatters) {
  const Outcome o =
      kasane::run([] { return work_while(3000, [] { interrupt_every(100); }, [] { interrupt_every(0); }); });
  expect_all_counted(o, 100);
}

/// On each rank an OS thread of the program that sends signals to the worker on which it was started.
struct Sender {
  pthread_t to;
  bool started;
  std::atomic<bool> stop;
};
Sender g_senders[kMostRanks];

TEST(Signals, ToAWorkerInterruptNothingThatMatters) {
  const Outcome o = kasane::run([] {
    return work_while(
        1000,
        [] {
          Sender& s = g_senders[kasane::rank()];
          if (s.started) return;  // the thread was stolen before it began
          s.started = true;
          struct sigaction action{};
          action.sa_handler = on_tick;
          action.sa_flags = SA_RESTART;
          ::sigaction(SIGUSR1, &action, nullptr);
          s.to = ::pthread_self();
          s.stop = false;
          std::thread([&s] {
            while (!s.stop.load()) {
              ::pthread_kill(s.to, SIGUSR1);
              ::usleep(50);
            }
          }).detach();
        },
        [] {
          for (Sender& s : g_senders) s.stop = true;
        });
  });
  expect_all_counted(o, 100);
}

}  // namespace
