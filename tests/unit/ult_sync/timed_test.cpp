// SPDX-License-Identifier: Apache-2.0
// Waits with a deadline on one rank with 1, 2 and 4 workers, against oracles, under random schedules. No test
// asserts how long anything takes, but for one thing: no thread gives up before the deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ult/sync/condition_variable.h"
#include "ult/sync/semaphore.h"
#include "ult/sync/shared_mutex.h"
#include "ult/timed.h"
#include "unit/ult_sync/random_threads.h"

namespace kasane::ult {
namespace {

class TimedTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t workers() const { return GetParam(); }
  template <class F>
  void for_seeds(const F& body) {
    for (unsigned seed = 1; seed <= 25 && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      TestPool pool(workers(), 256);
      pool.run([&] { body(seed); });
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, TimedTest, ::testing::Values(1u, 2u, 4u));

void maybe_yield(std::minstd_rand& random) {
  if (random() % 4 == 0) Pool::yield();
}
/// Now, soon (0 to 100 µs), or never.
std::uint64_t some_deadline(std::minstd_rand& random) {
  switch (random() % 6) {
    case 0: return kNoDeadline;
    case 1: return 0;
    default: return now_ns() + random() % 100'000;
  }
}

// ---- timers ----

TEST(Timers, TheEarliestFirstAndOneForEachThread) {
  Timers timers;
  Timer due;
  EXPECT_EQ(timers.earliest(), Timers::kNever);
  EXPECT_FALSE(timers.take_due(std::numeric_limits<std::uint64_t>::max() - 1, due));
  EXPECT_TRUE(timers.add({.at_ns = 30, .slot = SlotId{3}, .round = 1}));
  EXPECT_TRUE(timers.add({.at_ns = 10, .slot = SlotId{1}, .round = 1}));
  EXPECT_FALSE(timers.add({.at_ns = 20, .slot = SlotId{2}, .round = 1}));
  EXPECT_EQ(timers.earliest(), 10u);
  EXPECT_FALSE(timers.take_due(9, due));
  timers.remove(SlotId{1});
  timers.remove(SlotId{7});
  EXPECT_EQ(timers.earliest(), 20u);
  EXPECT_FALSE(timers.add({.at_ns = 40, .slot = SlotId{2}, .round = 2}))
      << "a new round takes the old one's place";
  EXPECT_EQ(timers.earliest(), 30u);
  EXPECT_FALSE(timers.add({.at_ns = 5, .slot = SlotId{2}, .round = 1})) << "an older one comes too late";
  ASSERT_TRUE(timers.take_due(30, due));
  EXPECT_EQ(due.slot, SlotId{3});
  ASSERT_TRUE(timers.take_due(40, due));
  EXPECT_EQ(due.slot, SlotId{2});
  EXPECT_EQ(due.round, 2u);
  EXPECT_EQ(timers.earliest(), Timers::kNever);
}

// ---- one thread ----

TEST_P(TimedTest, NobodyGivesUpBeforeTheDeadline) {
  TestPool pool(workers());
  pool.run([] {
    Semaphore semaphore(0);
    SharedMutex shared;
    Mutex mutex;
    ConditionVariable condition;
    shared.lock();
    for (const std::uint64_t wait_ns : {1u, 1'000u, 100'000u, 30'000'000u}) {  // the last one sleeps
      for (int what = 0; what < 4; ++what) {
        const std::uint64_t deadline = now_ns() + wait_ns;
        bool got = false;
        if (what == 0) got = semaphore.try_acquire_until(deadline);
        if (what == 1) got = shared.try_lock_until(deadline);
        if (what == 2) got = shared.try_lock_shared_until(deadline);
        if (what == 3) {
          mutex.lock();
          got = condition.wait_until(mutex, deadline);
          mutex.unlock();
        }
        EXPECT_FALSE(got) << what;
        EXPECT_GE(now_ns(), deadline) << what;
      }
    }
    shared.unlock();
    EXPECT_TRUE(shared.try_lock_until(0)) << "what is free is taken even where the deadline has passed";
    shared.unlock();
    semaphore.release(1);
    EXPECT_TRUE(semaphore.try_acquire_until(0));
  });
}

TEST(Timed, AnIdleWorkerSleepsUntilTheDeadline) {
  TestPool pool(1);
  const std::uint64_t before = pool.total(&Counters::sleeps);
  pool.run([] {
    Semaphore semaphore(0);
    EXPECT_FALSE(semaphore.try_acquire_until(now_ns() + 20'000'000));
  });
  EXPECT_GE(pool.total(&Counters::sleeps), before + 1);
}

// With --stats: a worker's idle time is a wait's when it ends with the thread that waited, though not more of
// it than that thread has waited. Workers are idle here for 2 ms before each wait of 0.2 ms begins.
TEST(Timed, IdleTimeThatEndsWithAThreadIsItsWaits) {
  constexpr std::uint32_t kWorkers = 3;
  const auto places = std::make_unique<PlaceTable[]>(kWorkers);
  for (std::uint32_t w = 0; w < kWorkers; ++w) places[w].open([]() noexcept -> std::uintptr_t { return 1; });
  TestPool pool(kWorkers, 256, 256, nullptr, {}, places.get());
  std::uint64_t waited_ns = 0;
  const std::uint64_t begin = now_ns();
  pool.run([&] {
    Semaphore semaphore(0);
    for (int round = 0; round < 30; ++round) {
      for (const std::uint64_t end = now_ns() + 2'000'000; now_ns() < end;) relax();
      const std::uint64_t since = now_ns();
      EXPECT_FALSE(semaphore.try_acquire_until(since + 200'000));
      waited_ns += now_ns() - since;
    }
  });
  const std::uint64_t all_ns = kWorkers * (now_ns() - begin), told = pool.total(&Counters::ns_wait_locks);
  EXPECT_GT(told, 0u);
  EXPECT_LE(told, waited_ns);
  EXPECT_LE(pool.total(&Counters::ns_idle), all_ns) << "more was taken from it than it had";
  std::uint64_t at_places = 0;
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    places[w].for_each([&](Account account, std::uintptr_t, std::uint64_t ns) {
      if (account == Account::wait_locks) at_places += ns;
    });
  EXPECT_EQ(at_places, told);
}

// What a thief idled for is nobody's wait, also when it has run others since.
TEST(Timed, IdleTimeThatEndsWithATheftIsNoWaits) {
  const auto places = std::make_unique<PlaceTable[]>(2);
  for (std::uint32_t w = 0; w < 2; ++w) places[w].open([]() noexcept -> std::uintptr_t { return 1; });
  TestPool pool(2, 256, 256, nullptr, {}, places.get());
  pool.run([&] {
    std::atomic<bool> done{false};
    const ThreadId spins = fork([&] {
      while (!done) relax();
    });
    // stolen by the other worker, which has been idle, and finds something to run each time from now on
    Semaphore there(0), back(0);
    const ThreadId answers = fork([&] {
      there.acquire();
      back.release(1);
    });
    there.release(1);
    back.acquire();
    EXPECT_EQ(pool.total(&Counters::ns_wait_locks), 0u);
    EXPECT_GT(pool.total(&Counters::ns_idle), 0u);
    done = true;
    Pool::join(answers);
    Pool::join(spins);
  });
}

// Several workers sleep for ever when a deadline comes up on one that then computes: another must see to it.
TEST(Timed, ASleeperIsWokenForTheDeadlineOfABusyWorker) {
  TestPool pool(2);
  pool.run([&pool] {
    yield_until([&] { return pool.total(&Counters::sleeps) != 0; });
    Semaphore semaphore(0);
    std::atomic<bool> gave_up{false};
    const ThreadId waits = fork([&] {
      EXPECT_FALSE(semaphore.try_acquire_until(now_ns() + 1'000'000));
      gave_up = true;
    });
    const std::uint64_t hangs = now_ns() + 60'000'000'000u;
    while (!gave_up && now_ns() < hangs) relax();  // no step of this thread lets its worker look
    EXPECT_TRUE(gave_up.load());
    Pool::join(waits);
  });
}

// ---- random schedules ----

TEST_P(TimedTest, NoPermitIsLostOrFoundTwice) {
  for_seeds([](unsigned seed) {
    const std::uint32_t permits = 1 + seed % 3;
    Semaphore semaphore(permits);
    std::atomic<std::uint32_t> inside{0}, most{0};
    random_threads(10, seed, [&](std::uint32_t, std::minstd_rand& random) {
      for (int i = 0; i < 30; ++i) {
        const std::uint64_t deadline = some_deadline(random);
        if (!semaphore.try_acquire_until(deadline)) {
          EXPECT_GE(now_ns(), deadline);
          continue;
        }
        const std::uint32_t now = ++inside;
        for (std::uint32_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        maybe_yield(random);
        --inside;
        semaphore.release(1);
      }
    });
    EXPECT_LE(most.load(), permits);
    for (std::uint32_t i = 0; i < permits; ++i) EXPECT_TRUE(semaphore.try_acquire()) << "a permit is lost";
    EXPECT_FALSE(semaphore.try_acquire());
  });
}

TEST_P(TimedTest, WritersAreAloneAndReadersBehindOneThatGivesUpGoOn) {
  for_seeds([](unsigned seed) {
    SharedMutex mutex;
    std::uint64_t first = 0, second = 0;  // plain, equal whenever no thread writes
    std::atomic<std::uint64_t> writes{0}, torn{0};
    random_threads(10, seed, [&](std::uint32_t, std::minstd_rand& random) {
      for (int i = 0; i < 30; ++i) {
        const std::uint64_t deadline = some_deadline(random);
        if (random() % 3 == 0) {
          if (!mutex.try_lock_until(deadline)) continue;
          ++first;
          maybe_yield(random);
          ++second;
          ++writes;
          mutex.unlock();
        } else {
          if (!mutex.try_lock_shared_until(deadline)) continue;
          const std::uint64_t seen = first;
          maybe_yield(random);
          if (seen != second) ++torn;
          mutex.unlock_shared();
        }
      }
    });
    EXPECT_EQ(torn.load(), 0u);
    EXPECT_EQ(first, writes.load());
    EXPECT_TRUE(mutex.try_lock()) << "it is still locked";
    mutex.unlock();
  });
}

// Producers notify once an item. Consumers with short deadlines come and go; those without must get the rest.
// A notification that an expired consumer took along would leave one of them waiting for ever.
TEST_P(TimedTest, NoNotificationIsTakenAlong) {
  for_seeds([](unsigned seed) {
    constexpr std::uint32_t kPatient = 4, kImpatient = 4, kProducers = 4, kItems = 20;
    Mutex mutex;
    ConditionVariable condition;
    std::uint32_t items = 0, taken = 0;
    bool closed = false;
    std::atomic<std::uint32_t> producing{kProducers};
    random_threads(kPatient + kImpatient + kProducers, seed, [&](std::uint32_t t, std::minstd_rand& random) {
      if (t < kProducers) {
        for (std::uint32_t i = 0; i < kItems; ++i) {
          mutex.lock();
          ++items;
          mutex.unlock();
          condition.notify_one();
          maybe_yield(random);
        }
        if (--producing != 0) return;
        mutex.lock();  // the last one waits until all are taken
        while (taken != kProducers * kItems) {
          mutex.unlock();
          Pool::yield();
          mutex.lock();
        }
        closed = true;
        mutex.unlock();
        condition.notify_all();
        return;
      }
      const bool patient = t < kProducers + kPatient;
      mutex.lock();
      bool notified = true;
      while (!closed) {
        if (items != 0 && notified) {  // a thread whose deadline has passed leaves it to those that wait
          --items;
          ++taken;
          mutex.unlock();
          maybe_yield(random);
          mutex.lock();
        } else if (patient) {
          condition.wait(mutex);
        } else {
          const std::uint64_t deadline = now_ns() + random() % 50'000;
          notified = condition.wait_until(mutex, deadline);
          EXPECT_TRUE(notified || now_ns() >= deadline);
        }
      }
      mutex.unlock();
    });
    EXPECT_EQ(taken, kProducers * kItems);
  });
}

}  // namespace
}  // namespace kasane::ult
