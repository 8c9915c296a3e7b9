// SPDX-License-Identifier: Apache-2.0
// kasane/sync.hpp on several ranks: threads of all ranks use one object at random; what it guards are plain
// variables in global memory, whose values an oracle knows. As in api_test.cpp threads only compute, and main
// expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "multi/api/everywhere.h"
#include "support/counts.h"

namespace {

using kasane::test::everywhere, kasane::test::for_seeds, kasane::test::kThreads, kasane::test::linger;

// ---- synchronized_value -----------------------------------------------------------------------------------

struct Account {
  std::uint64_t cents = 0, changes = 0;
  std::uint64_t pad[30] = {};  // it lies across blocks here and there
  std::uint64_t check = 0;     ///< cents ^ changes

  void change(std::int64_t by) {
    cents += static_cast<std::uint64_t>(by);
    ++changes;
    check = cents ^ changes;
  }
  [[nodiscard]] bool whole() const { return check == (cents ^ changes); }
};

TEST(SynchronizedValue, WhatIsTakenFromOneIsInAnother) {
  for_seeds([](unsigned seed) {
    constexpr std::size_t kAccounts = 5;
    constexpr std::uint64_t kCents = 1000;
    struct Data {
      kasane::synchronized_value<Account> accounts[kAccounts];
    };
    const auto data = std::make_unique<Data>();
    for (auto& account : data->accounts) kasane::apply([](Account& a) { a.change(kCents); }, account);
    std::vector<std::uint64_t> moved(kThreads, 0);
    int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 30; ++i) {
        const std::size_t from = random() % kAccounts,
                          to = (from + 1 + random() % (kAccounts - 1)) % kAccounts;
        bad += kasane::apply(
            [&](Account& a, Account& b) {
              const int broken = a.whole() && b.whole() ? 0 : 1;
              const auto some = static_cast<std::int64_t>(random() % 7);
              a.change(-some);
              linger(random);
              b.change(some);
              return broken;
            },
            data->accounts[from], data->accounts[to]);
        ++moved[t];
      }
      return bad;
    });
    std::uint64_t cents = 0, changes = 0, expected = kAccounts;
    for (auto& account : data->accounts) {
      const Account a = kasane::apply([](Account& now) { return now; }, account);
      wrong += a.whole() ? 0 : 1;
      cents += a.cents;
      changes += a.changes;
    }
    for (const std::uint64_t n : moved) expected += 2 * n;
    return wrong + (cents == kAccounts * kCents && changes == expected ? 0 : 1);
  });
}

TEST(SynchronizedValue, WhatAFunctionThatThrowsHasChangedStays) {
  const int wrong = kasane::run([] {
    const auto value = std::make_unique<kasane::synchronized_value<int>>(1);
    int bad = 1;
    try {
      kasane::apply([](int& v) { v = 2, throw std::runtime_error("no"); }, *value);
    } catch (const std::runtime_error&) {
      bad = 0;
    }
    return bad + (kasane::apply([](int& v) { return v; }, *value) == 2 ? 0 : 1);  // and it is not locked
  });
  EXPECT_EQ(wrong, 0);
}

// What the counter crossings counts: each join, lock, arrival and steal that crosses ranks counts once.
TEST(Crossings, AreCountedOnceEach) {
  struct History {
    kasane::mutex mutex;
    std::uint32_t locked_last = ~0u;  // the rank
    std::uint64_t crossings = 0;
  };
  struct Result {
    std::uint64_t counted, expected;
  };
  const Result result = kasane::run([] {
    const auto history = std::make_unique<History>();
    std::vector<kasane::unique_array<std::uint64_t>> places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
      places.push_back(kasane::make_array<std::uint64_t>(8192, kasane::placement::on(r)));
    const kasane::test::Counts before;
    for (int i = 0; i < 40; ++i) {
      const std::uint32_t target = static_cast<std::uint32_t>(i) % kasane::ranks();
      std::uint32_t ended = 0;
      if (kasane::rank() != target) ++history->crossings;  // it arrives there
      kasane::thread thread(kasane::near{places[target].get()}, [&ended, &h = *history] {
        const std::lock_guard lock(h.mutex);
        if (h.locked_last != ~0u && h.locked_last != kasane::rank()) ++h.crossings;
        h.locked_last = ended = kasane::rank();
      });
      thread.join();
      if (kasane::rank() != ended) ++history->crossings;
    }
    const kasane::test::Counts after;
    return Result{after["crossings"] - before["crossings"],
                  history->crossings + (after["steals_remote"] - before["steals_remote"])};
  });
  EXPECT_EQ(result.counted, result.expected);
  EXPECT_EQ(result.counted != 0, kasane::ranks() > 1);
}

// A thread on each rank takes its turn, and has changes of its own between turns that nobody has asked for:
// by a mutex they are sent each time, by the value alone they stay where they are.
TEST(SynchronizedValue, NothingElseIsExchanged) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  static constexpr std::size_t kPages = 4, kPageWords = 65536 / 8;
  static constexpr int kTurns = 20;
  struct Seen {
    std::uint64_t crossings = 0, wrong = 0;
  };
  // take_turn(rank): was it its turn? Then it is the next one's.
  const auto turns = [](const auto& take_turn) {
    const std::size_t ranks = kasane::ranks();
    auto* const words = static_cast<std::uint64_t*>(
        kasane::allocate(kPages * ranks * 65536, 65536, kasane::placement::cyclic));
    const auto word = [=](std::size_t rank, std::size_t page) -> std::uint64_t& {
      return words[(page * ranks + (rank + 1) % ranks) * kPageWords + rank];
    };  // in a page of another rank
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t p = 0; p < kPages; ++p) word(r, p) = 0;
    const kasane::test::Counts before;
    std::vector<kasane::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back(kasane::near{words + r * kPageWords}, [=] {
        for (int done = 0; done < kTurns; kasane::this_thread::yield()) {
          if (!take_turn(r)) continue;
          ++done;
          for (std::size_t p = 0; p < kPages; ++p) word(r, p) = word(r, p) + 1;
        }
      });
    }
    for (kasane::thread& t : threads) t.join();
    Seen seen{.crossings = kasane::counter("crossings") - before["crossings"]};
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t p = 0; p < kPages; ++p) seen.wrong += word(r, p) != kTurns ? 1 : 0;
    kasane::deallocate(words);
    return seen;
  };
  const Seen by_value = kasane::run([&] {
    const auto next = std::make_unique<kasane::synchronized_value<std::size_t>>(0);
    return turns([&next = *next](std::size_t r) {
      return kasane::apply([r](std::size_t& n) { return n == r && (n = (r + 1) % kasane::ranks(), true); },
                           next);
    });
  });
  const Seen by_mutex = kasane::run([&] {
    struct Guarded {
      kasane::mutex mutex;
      std::size_t next = 0;
    };
    const auto guarded = std::make_unique<Guarded>();
    return turns([&g = *guarded](std::size_t r) {
      const std::lock_guard lock(g.mutex);
      return g.next == r && (g.next = (r + 1) % kasane::ranks(), true);
    });
  });
  std::printf("%llu edges between ranks by the value, %llu by the mutex\n",
              static_cast<unsigned long long>(by_value.crossings),
              static_cast<unsigned long long>(by_mutex.crossings));
  EXPECT_EQ(by_value.wrong, 0u);
  EXPECT_EQ(by_mutex.wrong, 0u);
  EXPECT_GE(by_mutex.crossings, std::uint64_t{kTurns});
  EXPECT_LT(by_value.crossings,
            by_mutex.crossings / 2);  // threads that come and go, and are stolen now and then
}

// Ranks in turn take all mutexes of an array, and change what each guards. One release of a rank does for all
// mutexes that it has had: one edge in many asks for one.
TEST(Mutexes, OfManyThatARankHadOneIsAskedFor) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank asks nobody";
  static constexpr std::size_t kMutexes = 200;
  static constexpr int kTurns = 10;
  struct Seen {
    std::uint64_t crossings = 0, asked = 0, wrong = 0;
  };
  const Seen seen = kasane::run([] {
    const std::size_t ranks = kasane::ranks();
    struct Guarded {
      kasane::mutex mutex[kMutexes];
      std::uint64_t times[kMutexes] = {}, by_rank[kMutexes] = {};
    };
    const auto guarded = std::make_unique<Guarded>();
    const auto next = std::make_unique<kasane::synchronized_value<std::size_t>>(0);
    std::vector<kasane::unique_array<std::uint64_t>> places;
    for (std::uint32_t r = 0; r < ranks; ++r)
      places.push_back(kasane::make_array<std::uint64_t>(8192, kasane::placement::on(r)));
    const auto is_turn_of = [&next = *next](std::size_t r) {
      return kasane::apply([r](const std::size_t& n) { return n == r; }, next);
    };
    const kasane::test::Counts before;
    std::vector<kasane::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back(kasane::near{places[r].get()}, [&, r] {
        for (int done = 0; done < kTurns; ++done) {
          while (!is_turn_of(r)) kasane::this_thread::yield();
          for (std::size_t i = 0; i < kMutexes; ++i) {
            const std::lock_guard lock(guarded->mutex[i]);
            ++guarded->times[i];
            guarded->by_rank[i] += r;
          }
          kasane::apply([ranks](std::size_t& n) { n = (n + 1) % ranks; }, *next);
        }
      });
    }
    for (kasane::thread& t : threads) t.join();
    const kasane::test::Counts after;
    Seen result{after["crossings"] - before["crossings"], after["releases_asked"] - before["releases_asked"]};
    for (std::size_t i = 0; i < kMutexes; ++i) {
      result.wrong += guarded->times[i] != kTurns * ranks;
      result.wrong += guarded->by_rank[i] != kTurns * ranks * (ranks - 1) / 2;
    }
    return result;
  });
  std::printf("%llu edges between ranks, %llu asked for a release\n",
              static_cast<unsigned long long>(seen.crossings), static_cast<unsigned long long>(seen.asked));
  EXPECT_EQ(seen.wrong, 0u);
  EXPECT_LE(seen.asked, seen.crossings / 10 + 20) << "threads that are stolen ask, too";
}

// To memory it is as if a relaxed holder had never been there: a thread that locks afterwards sees
// what the holders before it did that order memory. Three threads, on as many ranks, take turns by an atomic
// that orders nothing.
TEST(Mutex, ARelaxedHolderOrdersNothingAndHidesNothing) {
  const int wrong = kasane::run([] {
    struct Data {
      kasane::mutex mutex;
      kasane::atomic<std::uint64_t> turn{0};
      char apart[8192] = {};
      std::uint64_t written = 0;
    };
    constexpr std::uint64_t kRounds = 20;
    const auto data = std::make_unique<Data>();
    std::vector<int> bad(3, 0);
    std::vector<kasane::thread> threads;
    void* places[3] = {};
    for (std::uint32_t t = 0; t < 3; ++t) {
      places[t] = kasane::allocate(1, 16, kasane::placement::on(std::min(t, kasane::ranks() - 1)));
      threads.emplace_back(kasane::near{places[t]}, [&data = *data, &bad, t] {
        for (std::uint64_t i = 0; i < kRounds; ++i) {
          while (data.turn.load(std::memory_order_relaxed) != 3 * i + t) kasane::this_thread::yield();
          if (t == 1) {
            kasane_mutex_lock_relaxed(data.mutex.native_handle());
            kasane_mutex_unlock_relaxed(data.mutex.native_handle());
          } else {
            const std::lock_guard lock(data.mutex);
            if (t == 0) data.written = i + 1;
            bad[t] += data.written == i + 1 ? 0 : 1;
          }
          data.turn.store(3 * i + t + 1, std::memory_order_relaxed);
        }
      });
    }
    for (kasane::thread& t : threads) t.join();
    for (void* const place : places) kasane::deallocate(place);
    return bad[0] + bad[2];
  });
  EXPECT_EQ(wrong, 0);
}

// ---- shared_mutex -----------------------------------------------------------------------------------------

TEST(SharedMutex, ReadersSeeWholeValuesOfWriters) {
  for_seeds([](unsigned seed) {
    struct Data {
      kasane::shared_mutex mutex;
      std::uint64_t first = 0;
      char apart[8192] = {};
      std::uint64_t second = 0;  // on another page of the operating system
      std::uint64_t reads[kThreads] = {};
    };
    const auto data = std::make_unique<Data>();
    std::vector<std::uint64_t> written(kThreads, 0);
    int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      std::uint64_t before = 0, reads = 0;
      for (int i = 0; i < 25; ++i) {
        if (random() % 3 == 0) {
          const std::unique_lock lock(data->mutex);
          bad += data->reads[t] == reads ? 0 : 1;
          data->first = data->first + 1;
          linger(random);
          data->second = data->second + 1;
          ++written[t];
        } else {
          std::shared_lock lock(data->mutex, std::defer_lock);
          if (random() % 4 != 0)
            lock.lock();
          else if (!lock.try_lock())
            continue;
          const std::uint64_t seen = data->first;
          linger(random);
          bad += seen == data->second && seen >= before ? 0 : 1;
          before = seen;
          data->reads[t] = ++reads;  // each reader its own: the next writer must see it
        }
      }
      return bad;
    });
    std::uint64_t sum = 0;
    for (const std::uint64_t w : written) sum += w;
    const std::unique_lock lock(data->mutex);
    return wrong + (data->first == sum && data->second == sum ? 0 : 1);
  });
}

// What readers wrote is the next writer's to see, whichever ranks they were on. The oracle is a direct word,
// which fences nothing.
TEST(SharedMutex, WritersSeeWhatReadersDid) {
  for_seeds([](unsigned seed) {
    struct Data {
      kasane::shared_mutex mutex;
      std::uint64_t mine[kThreads] = {};
      char apart[8192] = {};
      kasane::atomic<std::uint64_t> done[kThreads];
    };
    const auto data = std::make_unique<Data>();
    const auto all_seen = [&data] {
      const std::unique_lock lock(data->mutex);
      int bad = 0;
      for (std::uint32_t t = 0; t < kThreads; ++t)
        bad += data->mine[t] == data->done[t].load(std::memory_order_relaxed) ? 0 : 1;
      return bad;
    };
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (std::uint64_t i = 1; i <= 20; ++i) {
        data->mutex.lock_shared();
        data->mine[t] = i;
        linger(random);
        data->done[t].store(i, std::memory_order_relaxed);
        data->mutex.unlock_shared();
        linger(random);
        if (random() % 4 == 0) bad += all_seen();
      }
      return bad;
    });
    return wrong + all_seen();
  });
}

TEST(Semaphore, GuardsAndHandsOn) {
  for_seeds([](unsigned seed) {
    kasane::counting_semaphore guard(1), full(0), empty(4);
    std::uint64_t counter = 0, put = 0, taken = 0, slots[4] = {};
    int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 20; ++i) {
        if (random() % 4 != 0)
          guard.acquire();
        else
          while (!guard.try_acquire()) kasane::this_thread::yield();
        const std::uint64_t seen = counter;
        linger(random);
        counter = seen + 1;
        guard.release();
        // A bounded buffer: even threads put, odd ones take.
        if (t % 2 == 0) {
          empty.acquire();
          guard.acquire();
          slots[put++ % 4] = 7;
          guard.release();
          full.release();
        } else {
          full.acquire();
          guard.acquire();
          const std::uint64_t got = slots[taken % 4];
          slots[taken++ % 4] = 0;
          guard.release();
          empty.release();
          bad += got == 7 ? 0 : 1;
        }
      }
      return bad;
    });
    return wrong + (counter == kThreads * 20 && put == taken && put == kThreads * 10 ? 0 : 1);
  });
}

TEST(Latch, PassesWhenAllHaveComeAndMayBeDestroyedThen) {
  for_seeds([](unsigned seed) {
    int wrong = 0;
    for (int round = 0; round < 10; ++round) {
      std::vector<std::uint64_t> done(kThreads, 0);
      auto latch = std::make_unique<kasane::latch>(kThreads);
      std::vector<kasane::thread> threads;
      for (std::uint32_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&done, l = latch.get(), seed, t] {
          std::minstd_rand random(seed * 31u + t + 1u);
          linger(random);
          done[t] = t + 1;
          l->count_down();
        });
      }
      latch->wait();
      for (std::uint32_t t = 0; t < kThreads; ++t) wrong += done[t] == t + 1 ? 0 : 1;
      latch.reset();  // though the threads that counted may not have returned yet
      for (auto& t : threads) t.join();
    }
    return wrong;
  });
}

// More than it was made for is refused, with the object's address and what to do, and has not happened.
TEST(Latch, AndSemaphoreSayThatTheyAreOverused) {
  EXPECT_EQ(kasane::run([] {
              kasane::latch latch(2);
              kasane::counting_semaphore semaphore(1);
              const auto refused = [](const char* advice, auto&& f) {
                try {
                  f();
                } catch (const kasane::error& e) {
                  const std::string_view text = e.what();
                  return e.code() == EINVAL && text.find("at 0x") != text.npos &&
                                 text.find(advice) != text.npos
                             ? 0
                             : 1;
                }
                return 1;
              };
              int wrong = refused("as many as count down", [&] { latch.count_down(3); });
              wrong += refused("only what was acquired", [&] { semaphore.release(KASANE_SEM_MAX); });
              latch.count_down(2);
              wrong += latch.try_wait() && semaphore.try_acquire() && !semaphore.try_acquire() ? 0 : 1;
              return wrong;
            }),
            0);
}

TEST(Once, IsDoneByOneAndSeenByAll) {
  for_seeds([](unsigned seed) {
    kasane::once_flag flag;
    std::uint64_t runs = 0, failures = 0, value = 0;
    int wrong = everywhere(seed, [&](std::uint32_t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 5; ++i) {
        linger(random);
        try {
          kasane::call_once(
              flag,
              [&](std::uint64_t v) {
                linger(random);
                if (failures++ < 2) throw std::runtime_error("once more");
                ++runs;
                value = v;
              },
              42u);
          bad += value == 42 && runs == 1 ? 0 : 1;
        } catch (const std::runtime_error&) {
        }
      }
      return bad;
    });
    return wrong + (runs == 1 && failures == 3 ? 0 : 1);
  });
}

TEST(Atomic, CountsPublishesAndCompares) {
  for_seeds([](unsigned seed) {
    struct Data {
      kasane::atomic<std::uint64_t> counter{5};
      kasane::atomic<std::int32_t> most{-1};
      kasane::atomic<std::uint32_t> turn;
      char apart[8192] = {};
      std::uint64_t guarded = 0;  // by turn
    };
    const auto data = std::make_unique<Data>();
    int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      for (int i = 0; i < 20; ++i) {
        data->counter.fetch_add(t, std::memory_order_relaxed);
        ++data->counter;
        data->counter.fetch_sub(1);
        std::int32_t seen = data->most.load(std::memory_order_relaxed);
        const auto mine = static_cast<std::int32_t>(random() % 1000);
        while (seen < mine && !data->most.compare_exchange_strong(seen, mine)) {
        }
        if (data->most.load() < mine) return 1;
      }
      // Threads in turn: the plain variable is ordered by the atomic alone.
      while (data->turn.load(std::memory_order_acquire) != t) kasane::this_thread::yield();
      const int bad = data->guarded == t ? 0 : 1;
      data->guarded = t + 1;
      data->turn.store(t + 1, std::memory_order_release);
      return bad;
    });
    const std::uint64_t expected = 5 + 20 * (kThreads * (kThreads - 1) / 2);
    wrong +=
        data->counter.load() == expected && data->counter.exchange(1) == expected && data->counter.load() == 1
            ? 0
            : 1;
    data->turn.store(0xF0);
    wrong += data->turn.fetch_or(0x0F) == 0xF0 && data->turn.fetch_and(0x3C) == 0xFF &&
                     data->turn.fetch_xor(0xFF) == 0x3C && data->turn.load() == 0xC3
                 ? 0
                 : 1;
    return wrong;
  });
}

TEST(Future, BringsValuesAndExceptionsOfOtherRanks) {
  for_seeds([](unsigned seed) {
    int wrong = 0;
    std::minstd_rand plan(seed);
    std::vector<kasane::future<std::string>> futures;
    std::vector<kasane::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      kasane::promise<std::string> promise;
      futures.push_back(promise.get_future());
      threads.emplace_back(
          [t, seed](kasane::promise<std::string> p) {
            std::minstd_rand random(seed * 37u + t + 1u);
            linger(random);
            if (t % 4 == 0)
              p.set_exception(std::make_exception_ptr(std::out_of_range(std::string(100, 'x'))));
            else if (t % 4 != 1)
              p.set_value(1000, static_cast<char>('a' + t));
          },
          std::move(promise));
    }
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      if (plan() % 8 == 0) continue;  // nobody asks for this one
      if (plan() % 2 == 0)
        while (!futures[t].ready()) kasane::this_thread::yield();
      try {
        const std::string got = futures[t].get();
        wrong += t % 4 > 1 && got == std::string(1000, static_cast<char>('a' + t)) ? 0 : 1;
      } catch (const std::out_of_range& e) {
        wrong += t % 4 == 0 && std::string(e.what()).size() == 100 ? 0 : 1;
      } catch (const kasane::error& e) {
        wrong += t % 4 == 1 && e.code() == ECANCELED ? 0 : 1;
      }
      wrong += futures[t].valid() ? 1 : 0;
    }
    for (auto& t : threads) t.join();
    return wrong;
  });
}

TEST(Future, OfNothingAndMisuse) {
  EXPECT_EQ(kasane::run([] {
              kasane::promise<void> promise;
              auto future = promise.get_future();
              int wrong = future.ready() ? 1 : 0;
              kasane::thread([&promise] { promise.set_value(); }).join();
              future.get();
              const auto refused = [](auto&& f) {
                try {
                  f();
                } catch (const kasane::error& e) {
                  return e.code() == EINVAL ? 0 : 1;
                }
                return 1;
              };
              return wrong + refused([&] { future.get(); }) + refused([&] { promise.set_value(); }) +
                     refused([&] { (void)promise.get_future(); }) +
                     refused([] { kasane::counting_semaphore s(KASANE_SEM_MAX + 1); });
            }),
            0);
}

}  // namespace
