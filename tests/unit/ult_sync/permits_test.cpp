// SPDX-License-Identifier: Apache-2.0
// Semaphore, shared mutex, latch and once on one rank with 1, 2 and 4 workers, against oracles, under random
// schedules.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include "ult/sync/latch.h"
#include "ult/sync/once.h"
#include "ult/sync/semaphore.h"
#include "ult/sync/shared_mutex.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

class PermitsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t workers() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Workers, PermitsTest, ::testing::Values(1u, 2u, 4u));

void join_all(const std::vector<ThreadId>& threads) {
  for (ThreadId t : threads) Pool::join(t);
}
void maybe_yield(std::minstd_rand& random) {
  if (random() % 4 == 0) Pool::yield();
}

// ---- semaphore ----

TEST_P(PermitsTest, NoMoreThanThePermitsAreInside) {
  for (unsigned seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TestPool pool(workers(), 256);
    std::minstd_rand plan(seed);
    const std::uint32_t permits = 1 + static_cast<std::uint32_t>(plan() % 4),
                        wanted = 2 + static_cast<std::uint32_t>(plan() % 20);
    std::atomic<std::uint32_t> inside{0}, most{0}, passed{0};
    pool.run([&] {
      Semaphore semaphore(permits);
      std::vector<ThreadId> threads;
      for (std::uint32_t t = 0; t < wanted; ++t) {
        threads.push_back(fork([&, t] {
          std::minstd_rand random(seed * 1009u + t + 1u);
          for (int i = 0; i < 30; ++i) {
            if (random() % 4 == 0 ? !semaphore.try_acquire() : (semaphore.acquire(), false)) continue;
            const std::uint32_t now = ++inside;
            for (std::uint32_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
            }
            maybe_yield(random);
            --inside;
            ++passed;
            semaphore.release(1);
            maybe_yield(random);
          }
        }));
      }
      join_all(threads);
      for (std::uint32_t i = 0; i < permits; ++i) EXPECT_TRUE(semaphore.try_acquire()) << "a permit is lost";
      EXPECT_FALSE(semaphore.try_acquire());
    });
    EXPECT_LE(most.load(), permits);
    EXPECT_GT(passed.load(), 0u);
  }
}

TEST(Semaphore, ServesInOrderAndManyAtOnce) {
  TestPool pool(1);
  std::vector<int> order;
  pool.run([&] {
    Semaphore semaphore(0);
    std::vector<ThreadId> threads;
    for (int t = 0; t < 20; ++t) {
      threads.push_back(fork([&, t] {  // one worker: it runs until it blocks, then the next is forked
        semaphore.acquire();
        order.push_back(t);
      }));
    }
    EXPECT_FALSE(semaphore.try_acquire());
    semaphore.release(7);
    for (int i = 0; i < 50; ++i) Pool::yield();
    EXPECT_EQ(order.size(), 7u);
    semaphore.release(13);
    join_all(threads);
  });
  for (int t = 0; t < 20; ++t) EXPECT_EQ(order.at(static_cast<std::size_t>(t)), t);
}

// ---- shared mutex ----

TEST_P(PermitsTest, WritersAreAloneAndReadersSeeWholeValues) {
  for (unsigned seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TestPool pool(workers(), 256);
    std::minstd_rand plan(seed);
    const std::uint32_t wanted = 2 + static_cast<std::uint32_t>(plan() % 20);
    std::uint64_t first = 0, second = 0;  // plain, equal whenever no thread writes
    std::atomic<std::uint64_t> writes{0}, torn{0};
    pool.run([&] {
      SharedMutex mutex;
      std::vector<ThreadId> threads;
      for (std::uint32_t t = 0; t < wanted; ++t) {
        threads.push_back(fork([&, t] {
          std::minstd_rand random(seed * 1013u + t + 1u);
          for (int i = 0; i < 30; ++i) {
            const bool trying = random() % 4 == 0;
            if (random() % 3 == 0) {
              if (trying ? !mutex.try_lock() : (mutex.lock(), false)) continue;
              ++first;
              maybe_yield(random);
              ++second;
              ++writes;
              mutex.unlock();
            } else {
              if (trying ? !mutex.try_lock_shared() : (mutex.lock_shared(), false)) continue;
              const std::uint64_t seen = first;
              maybe_yield(random);
              if (seen != second) ++torn;
              mutex.unlock_shared();
            }
            maybe_yield(random);
          }
        }));
      }
      join_all(threads);
      EXPECT_TRUE(mutex.try_lock());
      mutex.unlock();
    });
    EXPECT_EQ(torn.load(), 0u);
    EXPECT_EQ(first, writes.load());
    EXPECT_EQ(second, writes.load());
  }
}

TEST(SharedMutex, ReadersShareAndAWaitingWriterGoesBeforeLaterReaders) {
  TestPool pool(1);
  std::string order;
  pool.run([&] {
    SharedMutex mutex;
    mutex.lock_shared();
    std::vector<ThreadId> threads;
    const auto reader = [&] { mutex.lock_shared(), order += 'r', Pool::yield(), mutex.unlock_shared(); };
    threads.push_back(fork(reader));
    threads.push_back(fork([&] { mutex.lock(), order += 'w', mutex.unlock(); }));
    threads.push_back(fork(reader));
    threads.push_back(fork(reader));
    EXPECT_FALSE(mutex.try_lock_shared()) << "a writer waits";
    EXPECT_FALSE(mutex.try_lock());
    EXPECT_EQ(order, "r");
    mutex.unlock_shared();
    join_all(threads);
  });
  EXPECT_EQ(order, "rwrr");
}

// ---- latch ----

TEST_P(PermitsTest, NobodyPassesALatchBeforeAllHaveCountedDown) {
  for (unsigned seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TestPool pool(workers(), 256);
    constexpr std::uint32_t kThreads = 12;
    std::array<std::uint32_t, kThreads> done{};
    std::atomic<std::uint32_t> early{0};
    pool.run([&] {
      auto latch = std::make_unique<Latch>(kThreads);
      std::vector<ThreadId> threads;
      for (std::uint32_t t = 0; t < kThreads; ++t) {
        threads.push_back(fork([&, t] {
          std::minstd_rand random(seed * 1019u + t + 1u);
          maybe_yield(random);
          done[t] = 1;  // a plain store: the latch orders it
          latch->count_down(1);
          if (random() % 2 == 0) return;
          if (random() % 4 != 0)
            latch->wait();
          else
            while (!latch->try_wait()) Pool::yield();
          for (const std::uint32_t d : done)
            if (d != 1) ++early;
        }));
      }
      latch->wait();
      for (const std::uint32_t d : done)
        if (d != 1) ++early;
      join_all(threads);
      latch.reset();
      Latch open(0);
      EXPECT_TRUE(open.try_wait());
      open.wait();
    });
    EXPECT_EQ(early.load(), 0u);
  }
}

// ---- once ----

TEST_P(PermitsTest, OnceRunsOneOfThemAndAllSeeWhatItDid) {
  for (unsigned seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TestPool pool(workers(), 256);
    int runs = 0, failures = 0;
    std::atomic<int> wrong{0}, thrown{0};
    pool.run([&] {
      Once once;
      std::vector<ThreadId> threads;
      for (std::uint32_t t = 0; t < 12; ++t) {
        threads.push_back(fork([&, t] {
          std::minstd_rand random(seed * 1021u + t + 1u);
          maybe_yield(random);
          try {
            if (once.begin()) {
              struct Abandon {  // as std::call_once: a caller that throws leaves it to the next
                Once& once;
                bool done = false;
                ~Abandon() { once.end(done); }
              } attempt{once};
              Pool::yield();
              if (failures < 2) {
                ++failures;
                throw 1;
              }
              ++runs;
              attempt.done = true;
            }
            if (runs != 1) ++wrong;
          } catch (int) {
            ++thrown;
          }
        }));
      }
      join_all(threads);
    });
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(thrown.load(), 2);
    EXPECT_EQ(wrong.load(), 0);
  }
}

// ---- misuse ----

template <class F>
void in_a_thread(F f) {
  TestPool pool(1);
  pool.run(f);
}

TEST(PermitsDeathTest, Misuse) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(in_a_thread([] {
                 SharedMutex m;
                 m.unlock();
               }),
               "unlocks a shared_mutex that nobody holds alone");
  EXPECT_DEATH(in_a_thread([] {
                 SharedMutex m;
                 m.unlock_shared();
               }),
               "unlocks a shared_mutex that nobody holds");
  EXPECT_DEATH(in_a_thread([] {
                 SharedMutex m;
                 m.lock_shared();
               }),
               "destroyed while a thread holds it");
  in_a_thread([] {
    Semaphore s(1);
    EXPECT_FALSE(s.release((1u << 30) - 1));
    EXPECT_TRUE(s.try_acquire() && !s.try_acquire()) << "what is refused has not happened";
    Latch l(1);
    EXPECT_FALSE(l.count_down(2));
    EXPECT_FALSE(l.try_wait());
    EXPECT_TRUE(l.count_down(1));
  });
  EXPECT_DEATH(in_a_thread([] {
                 auto s = std::make_unique<Semaphore>(0);
                 fork([&] { s->acquire(); });
                 s.reset();
               }),
               "a semaphore is destroyed while a thread waits");
  EXPECT_DEATH(in_a_thread([] {
                 auto l = std::make_unique<Latch>(1);
                 fork([&] { l->wait(); });
                 l.reset();
               }),
               "a latch is destroyed while a thread waits");
  EXPECT_DEATH(Latch(1), "work only on threads of a run");
}

}  // namespace
}  // namespace kasane::ult
