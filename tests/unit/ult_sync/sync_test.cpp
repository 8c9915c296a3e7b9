// SPDX-License-Identifier: Apache-2.0
// Mutex, condition variable and barrier on one rank with 1, 2 and 4 workers, against sequential oracles.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "ult/sync/barrier.h"
#include "ult/sync/condition_variable.h"
#include "ult/sync/mutex.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

class SyncTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t workers() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Workers, SyncTest, ::testing::Values(1u, 2u, 4u));

void join_all(const std::vector<ThreadId>& threads) {
  for (ThreadId t : threads) Pool::join(t);
}

// ---- mutex ----

TEST_P(SyncTest, MutexMakesAPlainCounterRight) {
  TestPool pool(workers());
  std::uint64_t counter = 0;
  pool.run([&] {
    Mutex mutex;
    std::vector<ThreadId> threads;
    for (int t = 0; t < 50; ++t) {
      threads.push_back(fork([&, t] {
        std::minstd_rand random(static_cast<unsigned>(t + 1));
        for (int i = 0; i < 200; ++i) {
          mutex.lock();
          const std::uint64_t seen = counter;
          if (random() % 8 == 0) Pool::yield();  // others run while we hold it
          counter = seen + 1;
          mutex.unlock();
        }
      }));
    }
    join_all(threads);
  });
  EXPECT_EQ(counter, 50u * 200u);
}

// Waiters that queued while it was held are served in the order of their arrival.
TEST(Mutex, ServesABatchInOrder) {
  TestPool pool(1);
  std::vector<int> order;
  pool.run([&] {
    Mutex mutex;
    mutex.lock();
    std::vector<ThreadId> threads;
    for (int t = 0; t < 20; ++t) {
      threads.push_back(fork([&, t] {  // one worker: it runs until it blocks, then the next is forked
        mutex.lock();
        order.push_back(t);
        mutex.unlock();
      }));
    }
    EXPECT_TRUE(order.empty());
    mutex.unlock();
    EXPECT_FALSE(mutex.try_lock()) << "handed over directly: nobody barges in";
    join_all(threads);
  });
  std::vector<int> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(SyncTest, TryLockFailsWhileAnotherHoldsIt) {
  TestPool pool(workers());
  pool.run([&] {
    Mutex mutex;
    EXPECT_TRUE(mutex.try_lock());
    bool locked = true;
    Pool::join(fork([&] { locked = mutex.try_lock(); }));
    EXPECT_FALSE(locked);
    mutex.unlock();
    EXPECT_TRUE(mutex.try_lock());
    mutex.unlock();
  });
}

TEST_P(SyncTest, MutexMayBeHeldOverForkAndJoin) {
  TestPool pool(workers());
  std::uint64_t sum = 0;
  pool.run([&] {
    Mutex mutex;
    std::vector<ThreadId> threads;
    for (int t = 0; t < 20; ++t) {
      threads.push_back(fork([&] {
        for (int i = 0; i < 20; ++i) {
          mutex.lock();
          const std::uint64_t before = sum;
          const ThreadId child = fork([&sum, before] {
            Pool::yield();
            sum = before + 1;
          });
          Pool::join(child);
          mutex.unlock();
        }
      }));
    }
    join_all(threads);
  });
  EXPECT_EQ(sum, 400u);
}

// ---- condition variable ----

struct BoundedQueue {
  explicit BoundedQueue(std::size_t most_) : most(most_) {}

  void put(std::uint64_t item) {
    mutex.lock();
    while (items.size() == most) not_full.wait(mutex);
    items.push_back(item);
    mutex.unlock();
    not_empty.notify_one();
  }
  std::uint64_t take() {
    mutex.lock();
    while (items.empty()) not_empty.wait(mutex);
    const std::uint64_t item = items.front();
    items.pop_front();
    not_full.notify_one();
    mutex.unlock();
    return item;
  }

  Mutex mutex;
  ConditionVariable not_empty, not_full;
  std::deque<std::uint64_t> items;
  std::size_t most;
};

// One notification a put and a take, never more: a single lost one hangs.
TEST_P(SyncTest, EveryProducedItemIsConsumedOnce) {
  TestPool pool(workers());
  constexpr std::uint64_t kProducers = 7, kItems = 300, kConsumers = 5;
  std::array<std::vector<std::uint64_t>, kConsumers> taken;
  pool.run([&] {
    BoundedQueue queue(3);
    std::vector<ThreadId> threads;
    for (std::uint64_t c = 0; c < kConsumers; ++c) {
      threads.push_back(fork([&, c] {
        for (std::uint64_t i = 0; i < kProducers * kItems / kConsumers; ++i) taken[c].push_back(queue.take());
      }));
    }
    for (std::uint64_t p = 0; p < kProducers; ++p) {
      threads.push_back(fork([&, p] {
        for (std::uint64_t i = 0; i < kItems; ++i) queue.put(p * kItems + i);
      }));
    }
    join_all(threads);
  });
  std::vector<std::uint64_t> all;
  for (const auto& t : taken) all.insert(all.end(), t.begin(), t.end());
  std::sort(all.begin(), all.end());
  std::vector<std::uint64_t> expected(kProducers * kItems);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  EXPECT_EQ(all, expected);
}

TEST(ConditionVariable, NotifiesTheOldestFirst) {
  TestPool pool(1);
  std::vector<int> order;
  pool.run([&] {
    Mutex mutex;
    ConditionVariable condition;
    std::vector<ThreadId> threads;
    for (int t = 0; t < 10; ++t) {
      threads.push_back(fork([&, t] {
        mutex.lock();
        condition.wait(mutex);
        order.push_back(t);
        mutex.unlock();
      }));
    }
    for (int t = 0; t < 10; ++t) {
      condition.notify_one();
      yield_until([&] { return order.size() == static_cast<std::size_t>(t + 1); });
      EXPECT_EQ(order.back(), t);
    }
    condition.notify_one();  // no thread waits: it is not kept
    join_all(threads);
  });
}

TEST_P(SyncTest, NotifyAllWakesEverybodyWhoWaits) {
  TestPool pool(workers());
  int woken = 0;
  pool.run([&] {
    Mutex mutex;
    ConditionVariable condition;
    int round = 0, waiting = 0;
    std::vector<ThreadId> threads;
    for (int t = 0; t < 30; ++t) {
      threads.push_back(fork([&] {
        for (int r = 1; r <= 10; ++r) {
          mutex.lock();
          ++waiting;
          while (round < r) condition.wait(mutex);
          ++woken;
          mutex.unlock();
        }
      }));
    }
    for (int r = 1; r <= 10; ++r) {
      yield_until([&] {
        mutex.lock();
        const bool all = waiting == 30 * r;
        if (all) round = r;
        mutex.unlock();
        return all;
      });
      condition.notify_all();
    }
    join_all(threads);
  });
  EXPECT_EQ(woken, 300);
}

// ---- barrier ----

TEST_P(SyncTest, NobodyPassesABarrierBeforeAllHaveArrived) {
  TestPool pool(workers());
  constexpr std::uint32_t kThreads = 13, kPhases = 60;
  pool.run([&] {
    Barrier barrier(kThreads);
    std::vector<std::uint32_t> phase(kThreads, 0);
    std::atomic<std::uint32_t> early{0};
    std::vector<ThreadId> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.push_back(fork([&, t] {
        std::minstd_rand random(t + 1);
        for (std::uint32_t p = 1; p <= kPhases; ++p) {
          if (random() % 4 == 0) Pool::yield();
          phase[t] = p;  // a plain store: the barrier orders it
          EXPECT_TRUE(barrier.arrive_and_wait());
          for (std::uint32_t seen : phase)
            if (seen != p) ++early;
          EXPECT_TRUE(barrier.arrive_and_wait());
        }
      }));
    }
    join_all(threads);
    EXPECT_EQ(early.load(), 0u);
  });
}

TEST(Barrier, OfOneThreadNeverWaits) {
  TestPool pool(1);
  pool.run([] {
    Barrier barrier(1);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(barrier.arrive_and_wait());
  });
  EXPECT_EQ(pool.total(&Counters::suspends), 0u);
}

// ---- random programs ----

// Threads that take random sets of mutexes in ascending order, move units between plain accounts, meet at
// barriers, and pass tokens through a condition variable. The oracle: the sum of accounts, the count of
// tokens, the phase.
void random_program(std::uint32_t workers, unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::size_t kAccounts = 6;
  std::mt19937 plan(seed);
  const std::uint32_t threads_wanted = 2 + plan() % 12;
  const int steps = 5 + static_cast<int>(plan() % 30);
  TestPool pool(workers, 256);
  pool.run([&] {
    std::array<Mutex, kAccounts> mutexes;
    std::array<std::int64_t, kAccounts> accounts{};
    Mutex token_mutex;
    ConditionVariable token_there;
    std::int64_t tokens = 0, passed = 0;
    Barrier barrier(threads_wanted);
    std::vector<int> phases(threads_wanted, 0);
    std::atomic<int> wrong{0};
    std::vector<ThreadId> threads;
    for (std::uint32_t t = 0; t < threads_wanted; ++t) {
      threads.push_back(fork([&, t] {
        std::minstd_rand random(seed * 977u + t + 1u);
        for (int s = 0; s < steps; ++s) {
          const std::size_t a = random() % kAccounts, b = random() % kAccounts;
          const std::size_t low = std::min(a, b), high = std::max(a, b);
          mutexes[low].lock();
          if (high != low) mutexes[high].lock();
          const std::int64_t units = static_cast<std::int64_t>(random() % 100);
          const std::int64_t from = accounts[low], to = accounts[high];
          if (random() % 8 == 0) Pool::yield();
          if (random() % 16 == 0) Pool::join(fork([] { Pool::yield(); }));
          if (high != low) {
            accounts[low] = from - units;
            accounts[high] = to + units;
            mutexes[high].unlock();
          }
          mutexes[low].unlock();
        }
        // Each adds a token and takes one: as many notifications as waiters need, and no more.
        token_mutex.lock();
        ++tokens;
        if (random() % 2 == 0) {
          token_there.notify_one();
          token_mutex.unlock();
        } else {
          token_mutex.unlock();
          random() % 4 == 0 ? token_there.notify_all() : token_there.notify_one();
        }
        token_mutex.lock();
        while (tokens == 0) token_there.wait(token_mutex);
        --tokens;
        ++passed;
        token_mutex.unlock();
        for (int p = 1; p <= 5; ++p) {
          phases[t] = p;
          EXPECT_TRUE(barrier.arrive_and_wait());
          for (int seen : phases)
            if (seen != p) ++wrong;
          EXPECT_TRUE(barrier.arrive_and_wait());
        }
      }));
    }
    join_all(threads);
    EXPECT_EQ(std::accumulate(accounts.begin(), accounts.end(), std::int64_t{0}), 0);
    EXPECT_EQ(tokens, 0);
    EXPECT_EQ(passed, static_cast<std::int64_t>(threads_wanted));
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST_P(SyncTest, RandomProgramsAgreeWithTheOracle) {
  for (unsigned seed = 1; seed <= 150 && !HasFailure(); ++seed) random_program(workers(), seed);
}

// ---- records ----

TEST_P(SyncTest, RecordsAreTakenByOneAtATimeAndReused) {
  TestPool pool(workers());
  std::atomic<int> shared{0};
  pool.run([&] {
    SyncRecords records(*pool);
    std::vector<ThreadId> threads;
    std::vector<std::atomic<int>> users(64);
    for (int t = 0; t < 16; ++t) {
      threads.push_back(fork([&, t] {
        std::minstd_rand random(static_cast<unsigned>(t + 1));
        std::vector<SyncHandle> mine;
        for (int i = 0; i < 2000; ++i) {
          if (mine.size() < 4 && (mine.empty() || random() % 2 == 0)) {
            mine.push_back(records.take());
            if (users.at(mine.back().index())++ != 0) ++shared;
            records.store(mine.back(), SyncField::fifo, 1);
          } else {
            --users.at(mine.back().index());
            records.give_back(mine.back());
            mine.pop_back();
          }
          if (random() % 64 == 0) Pool::yield();
        }
        for (SyncHandle h : mine) {
          --users.at(h.index());
          records.give_back(h);
        }
      }));
    }
    join_all(threads);
    const SyncHandle fresh = records.take();
    EXPECT_EQ(records.load(fresh, SyncField::fifo), 0u) << "a taken record is zeroed";
    records.give_back(fresh);
  });
  EXPECT_EQ(shared.load(), 0);
}

TEST(SyncRecords, RunOutWithAClearError) {
  TestPool pool(1);
  pool.run([&] {
    SyncRecords records(*pool);
    for (std::uint32_t i = 0; i < kSyncRecords; ++i) ASSERT_EQ(records.take(), SyncHandle::of(Rank{0}, i));
    try {
      Mutex one_more;
      ADD_FAILURE() << "there should be none left";
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find("131072"), std::string::npos) << e.what();
    }
    records.give_back(SyncHandle::of(Rank{0}, 5));
    Mutex fits;
  });
}

// ---- misuse ----

template <class F>
void in_a_thread(F f) {
  TestPool pool(1);
  pool.run(f);
}

class SyncDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(SyncDeathTest, Mutex) {
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 m.unlock();
               }),
               "unlocks a mutex that it does not hold");
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 m.lock();
                 m.lock();
               }),
               "locks a mutex that it holds already");
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 m.lock();
               }),
               "destroyed while a thread holds it");
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 m.lock();
                 Pool::join(fork([&] { m.unlock(); }));
               }),
               "unlocks a mutex that it does not hold");
}

TEST_F(SyncDeathTest, ConditionVariable) {
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 ConditionVariable c;
                 c.wait(m);
               }),
               "without holding the mutex");
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m, other;
                 ConditionVariable c;
                 fork([&] {
                   m.lock();
                   c.wait(m);
                 });
                 other.lock();
                 c.wait(other);
               }),
               "two different mutexes");
  EXPECT_DEATH(in_a_thread([] {
                 Mutex m;
                 auto c = std::make_unique<ConditionVariable>();
                 fork([&] {
                   m.lock();
                   c->wait(m);
                 });
                 c.reset();
               }),
               "destroyed while a thread waits");
}

TEST_F(SyncDeathTest, Barrier) {
  EXPECT_DEATH(in_a_thread([] { Barrier b(0); }), "a barrier for no threads");
  EXPECT_DEATH(in_a_thread([] {
                 auto b = std::make_unique<Barrier>(2);
                 fork([&] { static_cast<void>(b->arrive_and_wait()); });
                 b.reset();
               }),
               "destroyed while a thread waits");
}

TEST_F(SyncDeathTest, OutsideOfAThread) {
  EXPECT_DEATH(Mutex(), "work only on threads of a run");
  EXPECT_DEATH(ConditionVariable(), "work only on threads of a run");
  EXPECT_DEATH(Barrier(2), "work only on threads of a run");
}

}  // namespace
}  // namespace kasane::ult
