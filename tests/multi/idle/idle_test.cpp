// SPDX-License-Identifier: Apache-2.0
// A job that waits costs next to no processor time, over every transport; and work that appears is found by
// ranks that have slept for long. What is compared with the time that passes is processor time, which other
// programs of the machine do not lengthen. All ranks are on one host, so rank 0 reads their clocks.
#include <gtest/gtest.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <kasane/kasane.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// A rank that only waits may use so much of one core: 3.5 %. 0.9 to 2.3 % are measured over MPI, by the day;
/// a look every millisecond is 10 %, a nap of 200 µs 5 %.
constexpr double kMostOfACore = 0.035;
constexpr auto kSettles = 1s;  ///< until naps have become long
constexpr auto kWaits = 2s;

// By going there: a thread that waits until every rank has stolen it may wait for long, since a steal over a
// network takes several turns, and fails if its victim has begun another fork meanwhile.
std::vector<pid_t> processes_of_ranks() {
  std::vector<pid_t> of(kasane::ranks());
  for (std::uint32_t rank = 0; rank < kasane::ranks(); ++rank) {
    void* const there = kasane::allocate(1, 16, kasane::placement::on(rank));
    kasane::this_thread::move_near(there);
    EXPECT_EQ(kasane::rank(), rank);
    of[rank] = ::getpid();
    kasane::deallocate(there);
  }
  return of;
}

double processor_seconds(const std::vector<pid_t>& processes) {
  double sum = 0;
  for (const pid_t process : processes) {
    clockid_t clock = 0;
    timespec used{};
    EXPECT_EQ(::clock_getcpuclockid(process, &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &used), 0);
    sum += static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }
  return sum;
}

struct Cost {
  double processor = 0, passed = 0;  ///< s
};

template <class Wait>
Cost cost_of(Wait&& wait) {
  return kasane::run([&] {
    const std::vector<pid_t> processes = processes_of_ranks();
    wait(kSettles);
    const auto start = std::chrono::steady_clock::now();
    const double before = processor_seconds(processes);
    wait(kWaits);
    const double used = processor_seconds(processes) - before;
    return Cost{used, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  });
}

void expect_next_to_nothing(const Cost& cost, std::uint32_t ranks) {
  std::printf("%.1f ms of processor time in %.1f s: %.2f %% of a core for each of %u ranks\n",
              cost.processor * 1e3, cost.passed, 100 * cost.processor / cost.passed / ranks, ranks);
  EXPECT_LT(cost.processor, kMostOfACore * ranks * cost.passed);
}

TEST(Idle, RanksWithoutWorkCostNextToNothing) {
  // A thread that sleeps keeps no worker: none of them has anything.
  expect_next_to_nothing(cost_of([](auto time) { std::this_thread::sleep_for(time); }), kasane::ranks());
}

TEST(Idle, NorDoesAThreadThatWaitsInACall) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  expect_next_to_nothing(cost_of([&](auto time) {
                           kasane::thread writer([&, time] {
                             std::this_thread::sleep_for(time);
                             EXPECT_EQ(::write(ends[1], "x", 1), 1);
                           });
                           char byte = 0;
                           EXPECT_EQ(::read(ends[0], &byte, 1), 1);
                           writer.join();
                         }),
                         kasane::ranks());
  for (const int end : ends) ::close(end);
}

TEST(Idle, NorDoesAJobWhoseThreadsAllWait) {
  expect_next_to_nothing(cost_of([](auto time) {
                           kasane::counting_semaphore never(0);
                           EXPECT_FALSE(never.try_acquire_for(time));
                         }),
                         kasane::ranks());
}

// The child computes until its parent goes on, on a worker that slept. Where a wake-up is lost the child
// yields after more than ten seconds (64 calls), and its parent goes on on the same worker.
void compute(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(Idle, WhoHasSleptLongTakesTheNextWork) {
  if (kasane::ranks() * kasane::workers() == 1) GTEST_SKIP() << "nobody else";
  const int taken = kasane::run([] {
    int n = 0;
    for (const auto rest : {0ms, 3ms, 40ms, 300ms, 1000ms}) {
      std::this_thread::sleep_for(rest);
      kasane::atomic<std::uint32_t> goes_on(0);
      pid_t of_child = 0;
      kasane::thread child([&] {
        of_child = ::gettid();
        while (goes_on.load() == 0) compute(200ms);
      });
      const pid_t of_parent = ::gettid();
      goes_on.store(1);
      child.join();
      if (of_parent != of_child) ++n;
    }
    return n;
  });
  EXPECT_EQ(taken, 5);
}

}  // namespace
