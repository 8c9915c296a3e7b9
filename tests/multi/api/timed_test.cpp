// SPDX-License-Identifier: Apache-2.0
// Waits with a deadline and waits of atomics on several ranks, under random schedules. What is guarded are
// plain variables in global memory; what is counted must be all there in the end; a wake-up that is lost is a
// hang. Of time only this is expected: nobody gives up before the deadline.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <kasane/kasane.hpp>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <vector>

#include "multi/api/everywhere.h"

namespace {

using namespace std::chrono_literals;
using kasane::test::everywhere, kasane::test::for_seeds, kasane::test::kThreads, kasane::test::linger;

/// Up to 200 µs, now and then none.
std::chrono::nanoseconds some_time(std::minstd_rand& random) {
  return random() % 5 == 0 ? 0ns : std::chrono::nanoseconds(random() % 200'000);
}

TEST(Deadlines, NobodyGivesUpBefore) {
  EXPECT_EQ(
      kasane::run([] {
        int wrong = 0;
        kasane::counting_semaphore semaphore(0);
        kasane::timed_mutex held;
        kasane::mutex mutex;
        kasane::condition_variable condition;
        kasane::promise<int> promise;
        const auto future = promise.get_future();
        const std::unique_lock lock(held);
        for (const auto wait : {0us, 1us, 300us, 20'000us}) {
          const auto gives_up = [&](auto&& call) {
            const auto from = kasane::clock::now();
            wrong += call() ? 1 : 0;
            wrong += kasane::clock::now() >= from + wait ? 0 : 1;
          };
          gives_up([&] { return semaphore.try_acquire_for(wait); });
          gives_up([&] { return semaphore.try_acquire_until(kasane::clock::now() + wait); });
          gives_up([&] { return semaphore.try_acquire_until(std::chrono::system_clock::now() + wait); });
          gives_up([&] { return held.try_lock_for(wait); });
          gives_up([&] { return future.wait_for(wait) == std::future_status::ready; });
          std::unique_lock guard(mutex);
          gives_up([&] { return condition.wait_for(guard, wait) == std::cv_status::no_timeout; });
          gives_up([&] { return condition.wait_for(guard, wait, [] { return false; }); });
          gives_up(
              [&] { return condition.wait_until(guard, kasane::clock::now() + wait, [] { return false; }); });
          wrong += guard.owns_lock() ? 0 : 1;
        }
        wrong += semaphore.try_acquire_for(-1h) ? 1 : 0;
        semaphore.release(3);
        wrong += semaphore.try_acquire_for(-1h) && semaphore.try_acquire_until(kasane::clock::time_point())
                     ? 0
                     : 1;
        wrong += semaphore.try_acquire_for(std::chrono::hours::max()) ? 0 : 1;
        promise.set_value(7);
        wrong += future.wait_for(0s) == std::future_status::ready && future.ready() ? 0 : 1;
        return wrong;
      }),
      0);
}

// What a deadline means where the hosts' monotonic clocks differ (tests/multi/cluster shifts one by a day):
// set on one rank, waited for on another.
TEST(Clock, IsOneOnAllRanks) {
  EXPECT_EQ(kasane::run([] {
              int wrong = 0;
              const auto here = kasane::make_array<int>(1, kasane::placement::on(kasane::rank()));
              for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
                const auto there = kasane::make_array<char>(
                    kasane::page_default,
                    kasane::placement::on(r));  // a small object's page may have been drawn elsewhere
                kasane::counting_semaphore never(0);
                const auto before = kasane::clock::now();
                const auto deadline = before + 30ms;
                kasane::this_thread::move_near(there.get());
                const auto seen = kasane::clock::now();
                // With several workers it waits in a deque for a moment, from which another rank may steal
                // it.
                wrong += kasane::rank() == r || kasane::workers() > 1 ? 0 : 1;
                wrong += never.try_acquire_until(deadline) ? 1 : 0;
                wrong += kasane::clock::now() >= deadline ? 0 : 1;
                kasane::this_thread::move_near(here.get());
                // As near as the hosts' times of day are to each other.
                wrong += before - 1s <= seen && seen <= kasane::clock::now() + 1s ? 0 : 1;
              }
              return wrong;
            }),
            0);
}

TEST(Deadlines, OfAMutex) {
  for_seeds([](unsigned seed) {
    kasane::timed_mutex mutex;
    std::uint64_t counter = 0;
    std::vector<std::uint64_t> added(kThreads, 0);
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 20; ++i) {
        const auto wait = some_time(random);
        const auto from = kasane::clock::now();
        if (random() % 4 == 0)
          mutex.lock();
        else if (!mutex.try_lock_for(wait)) {
          bad += kasane::clock::now() >= from + wait ? 0 : 1;
          continue;
        }
        const std::uint64_t seen = counter;
        linger(random);
        counter = seen + 1;
        ++added[t];
        mutex.unlock();
      }
      return bad;
    });
    std::uint64_t sum = 0;
    for (const std::uint64_t n : added) sum += n;
    return wrong + (counter == sum && mutex.try_lock() ? (mutex.unlock(), 0) : 1);
  });
}

TEST(Deadlines, OfReadersAndWriters) {
  for_seeds([](unsigned seed) {
    struct Data {
      kasane::shared_timed_mutex mutex;
      std::uint64_t first = 0;
      char apart[8192] = {};
      std::uint64_t second = 0;  // on another page of the operating system
    };
    const auto data = std::make_unique<Data>();
    const int wrong = everywhere(seed, [&](std::uint32_t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 20; ++i) {
        if (random() % 3 == 0) {
          const std::unique_lock lock(data->mutex, some_time(random));
          if (!lock) continue;
          data->first = data->first + 1;
          linger(random);
          data->second = data->second + 1;
        } else {
          const std::shared_lock lock(data->mutex, kasane::clock::now() + some_time(random));
          if (!lock) continue;
          const std::uint64_t seen = data->first;
          linger(random);
          bad += seen == data->second ? 0 : 1;
        }
      }
      return bad;
    });
    const std::unique_lock lock(data->mutex, std::try_to_lock);
    return wrong + (lock && data->first == data->second ? 0 : 1);
  });
}

TEST(Deadlines, OfASemaphore) {
  for_seeds([](unsigned seed) {
    constexpr std::uint32_t kPermits = 3;
    kasane::counting_semaphore semaphore(kPermits);
    kasane::atomic<std::uint32_t> inside;
    const int wrong = everywhere(seed, [&](std::uint32_t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 20; ++i) {
        if (!semaphore.try_acquire_for(some_time(random))) continue;
        bad += inside.fetch_add(1, std::memory_order_relaxed) < kPermits ? 0 : 1;
        linger(random);
        inside.fetch_sub(1, std::memory_order_relaxed);
        semaphore.release();
      }
      return bad;
    });
    for (std::uint32_t i = 0; i < kPermits; ++i)
      if (!semaphore.try_acquire()) return wrong + 1;  // a permit is lost
    return wrong + (semaphore.try_acquire() ? 1 : 0);
  });
}

// A bounded buffer. Half of the threads wait with deadlines, and look after other things when those have
// passed; what the others wait for must still come.
TEST(Deadlines, OfACondition) {
  for_seeds([](unsigned seed) {
    constexpr std::uint64_t kEach = 20, kRoom = 3;
    struct Data {
      kasane::mutex mutex;
      kasane::condition_variable not_full, not_empty;
      std::uint64_t put = 0, taken = 0, sum = 0, slots[kRoom] = {};
    };
    const auto data = std::make_unique<Data>();
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      const bool puts = t % 2 == 0, patient = t % 4 < 2;
      kasane::condition_variable& mine = puts ? data->not_full : data->not_empty;
      const auto may = [&] { return puts ? data->put - data->taken < kRoom : data->put != data->taken; };
      for (std::uint64_t i = 0; i < kEach; ++i) {
        std::unique_lock lock(data->mutex);
        if (patient)
          mine.wait(lock, may);
        else
          while (!mine.wait_for(lock, some_time(random), may)) {
            lock.unlock();
            linger(random);
            lock.lock();
          }
        if (puts)
          data->slots[data->put++ % kRoom] = i + 1;
        else
          data->sum += data->slots[data->taken++ % kRoom];
        lock.unlock();
        (puts ? data->not_empty : data->not_full).notify_one();
        linger(random);
      }
      return 0;
    });
    return wrong + (data->put == kThreads / 2 * kEach && data->taken == data->put &&
                            data->sum == kThreads / 2 * (kEach * (kEach + 1) / 2)
                        ? 0
                        : 1);
  });
}

TEST(Deadlines, OfAFuture) {
  for_seeds([](unsigned seed) {
    return everywhere(seed, [](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (std::uint64_t i = 0; i < 8; ++i) {
        kasane::promise<std::uint64_t> promise;
        auto future = promise.get_future();
        kasane::thread other(
            [i, t](kasane::promise<std::uint64_t> p) {
              kasane::this_thread::yield();
              p.set_value(i * 100 + t);
            },
            std::move(promise));
        while (future.wait_for(some_time(random)) != std::future_status::ready) linger(random);
        bad += future.wait_until(kasane::clock::now()) == std::future_status::ready &&
                       future.get() == i * 100 + t
                   ? 0
                   : 1;
        other.join();
      }
      return bad;
    });
  });
}

// ---- atomics ----------------------------------------------------------------------------------------------

// A ring: each thread waits for the word of the one before. A plain value goes along, ordered by the words
// alone.
TEST(AtomicWait, EveryChangeIsSeen) {
  for_seeds([](unsigned seed) {
    constexpr std::uint64_t kRounds = 12;
    struct Data {
      kasane::atomic<std::uint64_t> words[kThreads];
      char apart[8192] = {};
      std::uint64_t passed = 0;
    };
    const auto data = std::make_unique<Data>();
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      auto& mine = data->words[t];
      const auto& before = data->words[(t + kThreads - 1) % kThreads];
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        if (t != 0 || round != 0) before.wait(t == 0 ? round - 1 : round, std::memory_order_acquire);
        bad += data->passed == round * kThreads + t ? 0 : 1;
        data->passed = data->passed + 1;
        linger(random);
        mine.store(round + 1, std::memory_order_release);
        if (random() % 2 == 0)
          mine.notify_one();
        else
          mine.notify_all();
      }
      return bad;
    });
    return wrong + (data->passed == kRounds * kThreads ? 0 : 1);
  });
}

// A semaphore made of an atomic: as many notify_one as tokens.
TEST(AtomicWait, NotifyOneWakesEnough) {
  for_seeds([](unsigned seed) {
    std::uint32_t* const tokens = new std::uint32_t(0);
    const kasane::atomic_ref word(*tokens);
    word.store(0, std::memory_order_release);
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      for (int i = 0; i < 20; ++i) {
        linger(random);
        if (t % 2 == 0) {
          word.fetch_add(1);
          word.notify_one();
          continue;
        }
        for (std::uint32_t seen = word.load();;) {
          if (seen != 0 && word.compare_exchange_strong(seen, seen - 1)) break;
          if (seen == 0) word.wait(0);
          seen = word.load();
        }
      }
      return 0;
    });
    const bool none_left = word.load() == 0;
    delete tokens;
    return wrong + (none_left ? 0 : 1);
  });
}

TEST(AtomicWait, NotifyAllWakesAllAndMisuseIsRefused) {
  EXPECT_EQ(kasane::run([] {
              kasane::atomic<std::int32_t> gate(-1);
              kasane::atomic<std::uint32_t> through;
              std::vector<kasane::thread> threads;
              for (std::uint32_t t = 0; t < kThreads; ++t) {
                threads.emplace_back([&] {
                  gate.wait(-1);
                  through.fetch_add(1, std::memory_order_relaxed);
                });
              }
              int wrong = through.load() == 0 ? 0 : 1;
              gate.store(5);
              gate.notify_all();
              for (auto& t : threads) t.join();
              wrong += through.load() == kThreads ? 0 : 1;
              const std::unique_ptr<std::uint64_t, void (*)(void*)> mine(
                  static_cast<std::uint64_t*>(std::calloc(1, sizeof(std::uint64_t))), [](void*) {});
              std::uint64_t& outside = *mine;
              wrong += kasane_atomic_wait(8, &outside, 0) == EINVAL &&
                               kasane_atomic_notify_one(&outside) == EINVAL &&
                               kasane_atomic_wait(2, &gate, 0) == EINVAL
                           ? 0
                           : 1;
              return wrong;
            }),
            0);
  EXPECT_EQ(kasane_atomic_notify_all(nullptr), EPERM) << "not on a thread";
  EXPECT_GT(kasane_clock_ns(), 0u);
}

}  // namespace
