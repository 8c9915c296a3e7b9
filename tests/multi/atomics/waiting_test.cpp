// SPDX-License-Identifier: Apache-2.0
// std::atomic::wait and what the standard library builds on it: threads are suspended, not their workers, so
// with one worker the thread that notifies runs.
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

#include "multi/atomics/placed.h"

namespace {

using kasane::test::make_on, kasane::test::on_each_rank, kasane::test::Places,
    kasane::test::variables_are_shared;

/// libstdc++ counts waiting threads in a variable of the program.
constexpr const char* kPrivate = "each rank has its own variables";

template <class T>
void passes_a_turn_by_wait() {
  if (!variables_are_shared()) GTEST_SKIP() << kPrivate;
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto turn = make_on<std::atomic<T>>(r, T{0});
      std::vector<long> payload(1000, 0);
      const long wrong = on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t n) {
        long seen_wrong = 0;
        for (std::uint32_t i = t; i < 3 * n; i += n) {
          for (T now; (now = turn->load(std::memory_order_acquire)) != static_cast<T>(i);) turn->wait(now);
          seen_wrong += payload[500] != static_cast<long>(i);
          payload[500] = static_cast<long>(i) + 1;
          turn->store(static_cast<T>(i + 1), std::memory_order_release);
          turn->notify_all();
        }
        return seen_wrong;
      });
      ASSERT_EQ(wrong, 0);
    }
  });
}

TEST(Waiting, AThreadWaitsForAnInt) { passes_a_turn_by_wait<int>(); }
TEST(Waiting, AThreadWaitsForAnotherType) { passes_a_turn_by_wait<std::uint64_t>(); }

TEST(Waiting, SemaphoresLatchesAndBarriersOfTheStandardWork) {
  if (!variables_are_shared()) GTEST_SKIP() << kPrivate;
  kasane::run([] {
    const Places places;
    std::counting_semaphore<1000> free(2), filled(0);
    std::latch done(static_cast<std::ptrdiff_t>(2 * kasane::ranks()));
    std::atomic<long> sum{0};
    kasane::thread producer([&] {
      for (std::uint32_t i = 0; i < 20 * kasane::ranks(); ++i) {
        free.acquire();
        filled.release();
      }
    });
    on_each_rank(places, 2, [&](std::uint32_t, std::uint32_t) {
      for (int i = 0; i < 10; ++i) {
        filled.acquire();
        sum += 1;
        free.release();
      }
      done.arrive_and_wait();
      return 0;
    });
    producer.join();
    EXPECT_EQ(sum.load(), 20 * kasane::ranks());
    EXPECT_TRUE(done.try_wait());
    EXPECT_FALSE(filled.try_acquire_for(std::chrono::milliseconds(5)));
  });
}

/// A futex of the program in global memory, by the call that libstdc++ makes.
TEST(Waiting, AFutexInGlobalMemoryIsAllRanks) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto turn = make_on<std::atomic<int>>(r, 0);
      long payload = 0;
      const long wrong = on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t n) {
        long seen_wrong = 0;
        for (std::uint32_t i = t; i < 3 * n; i += n) {
          for (int now; (now = turn->load(std::memory_order_acquire)) != static_cast<int>(i);)
            ::syscall(SYS_futex, turn.get(), FUTEX_WAIT_PRIVATE, now, nullptr);
          seen_wrong += payload != static_cast<long>(i);
          payload = static_cast<long>(i) + 1;
          turn->store(static_cast<int>(i + 1), std::memory_order_release);
          ::syscall(SYS_futex, turn.get(), FUTEX_WAKE_PRIVATE, 0x7fffffff);
        }
        return seen_wrong;
      });
      ASSERT_EQ(wrong, 0);
    }
  });
}

/// An OS thread of the program, outside the workers.
TEST(Waiting, AnOSThreadNotifiesAThread) {
  if (!variables_are_shared()) GTEST_SKIP() << kPrivate;
  static std::atomic<int> word{0};
  word = 0;
  std::thread other([] {
    word.wait(0);
    word = 2;
    word.notify_all();
  });
  kasane::run([] {
    word = 1;
    word.notify_all();
    word.wait(1);
    EXPECT_EQ(word.load(), 2);
  });
  other.join();
}

}  // namespace
