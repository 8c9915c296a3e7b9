// SPDX-License-Identifier: Apache-2.0
// What a program of threads may rely on inside one rank, with 1, 2 and 4 workers.
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <system_error>

#include "ult/locals.h"
#include "ult/runtime_section.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

class PoolTest : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, PoolTest, ::testing::Values(1u, 2u, 4u));

TEST_P(PoolTest, ForkAndJoinGiveTheSequentialAnswer) {
  TestPool pool(GetParam());
  unsigned answer = 0;
  pool.run([&] { answer = fib(22); });
  EXPECT_EQ(answer, plain_fib(22));
  EXPECT_EQ(pool.total(&Counters::threads), pool.total(&Counters::forks) + 1);
}

TEST_P(PoolTest, TheChildRunsBeforeTheParentGoesOn) {
  if (GetParam() > 1) GTEST_SKIP() << "another worker may take the parent before the child's first line";
  TestPool pool(1);
  std::string order;
  pool.run([&] {
    order += 'a';
    const ThreadId child = fork([&] { order += 'b'; });
    order += 'c';
    Pool::join(child);
  });
  EXPECT_EQ(order, "abc");
}

TEST_P(PoolTest, AHundredThousandThreadsInARowReuseTheirSlots) {
  TestPool pool(GetParam(), /*slots=*/64);
  std::uint64_t sum = 0;
  pool.run([&] {
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      std::uint64_t mine = 0;
      Pool::join(fork([&mine, i] { mine = i; }));
      sum += mine;
    }
  });
  EXPECT_EQ(sum, 100'000ull * 99'999 / 2);
}

unsigned nest(unsigned depth) {
  if (depth == 0) return 0;
  unsigned below = 0;
  Pool::join(fork([&below, depth] { below = nest(depth - 1); }));
  return below + 1;
}

TEST_P(PoolTest, TenThousandThreadsNest) {
  if (kThreadSanitized) GTEST_SKIP() << "more stacks at a time than it has fibers";
  TestPool pool(GetParam(), /*slots=*/10'100);
  unsigned depth = 0;
  pool.run([&] { depth = nest(10'000); });
  EXPECT_EQ(depth, 10'000u);
}

TEST_P(PoolTest, ForksGoOnWhenTheDequeIsFull) {
  if (kThreadSanitized) GTEST_SKIP() << "more stacks at a time than it has fibers";
  // More nested parents than a deque holds (2^14): the rest waits in the overflow list, and both ends unwind
  // in order.
  TestPool pool(GetParam(), /*slots=*/18'500);
  unsigned depth = 0;
  pool.run([&] { depth = nest(17'000); });
  EXPECT_EQ(depth, 17'000u);
}

TEST_P(PoolTest, AThreadInTheOverflowMaySuspend) {
  if (kThreadSanitized) GTEST_SKIP() << "more stacks at a time than it has fibers";
  TestPool pool(GetParam(), /*slots=*/18'500);
  static std::atomic<unsigned> leaves;
  leaves = 0;
  struct Deep {
    static void go(unsigned depth) {
      if (depth == 0) {
        for (int i = 0; i < 10; ++i)
          Pool::join(fork([] {
            Pool::yield();
            leaves.fetch_add(1);
          }));
        return;
      }
      const ThreadId child = fork([depth] { go(depth - 1); });
      if (depth % 1000 == 0) Pool::yield();
      Pool::join(child);
    }
  };
  pool.run([] { Deep::go(17'000); });
  EXPECT_EQ(leaves.load(), 10u);
}

// The end of a thread that returns to its parent meets a record that is not "running": it may free the slot
// only when the pop has said where to go on.
TEST_P(PoolTest, AThreadThatDetachedItselfReturnsToItsParent) {
  TestPool pool(GetParam(), /*slots=*/64);
  unsigned ran = 0;
  pool.run([&] {
    for (unsigned i = 0; i < 10'000; ++i) {
      std::atomic<bool> done{false};
      fork([&] {
        Pool::detach(Pool::id());
        ++ran;
        done = true;
      });
      yield_until([&] { return done.load(); });
    }
  });
  EXPECT_EQ(ran, 10'000u);
}

// The same with a third thread that waits for it, while its parent's continuation is in the deque.
TEST(Pool, AThreadWhoseEndAThirdWaitsForReturnsToItsParent) {
  TestPool pool(2);
  pool.run([] {
    for (unsigned i = 0; i < 300; ++i) {
      std::atomic<std::uint64_t> name{0};
      std::atomic<bool> waits{false}, ended{false}, back{false}, seen{false};
      // this worker's; the worker that has stolen the continuation below runs the rest
      const ThreadId other = fork([&] {
        const ThreadId joiner = fork([&] {
          while (name.load() == 0) relax();
          Pool::join({name.load()});
          seen = ended.load();
        });
        waits = true;  // the joiner has left this worker, so it is suspended, or the thread has ended
        while (!back.load()) relax();  // and no worker steals the parent of the thread meanwhile
        Pool::join(joiner);
      });
      fork([&] {
        name = Pool::id().value;
        while (!waits.load()) relax();
        ended = true;
      });
      back = true;
      Pool::join(other);
      EXPECT_TRUE(seen.load());
    }
  });
}

TEST_P(PoolTest, NoSlotLeftIsAClearErrorAndNotTheEnd) {
  TestPool pool(GetParam(), /*slots=*/32);
  std::string message;
  unsigned after = 0;
  pool.run([&] {
    std::atomic<bool> go{false};
    std::vector<ThreadId> blocked;
    try {
      for (;;) blocked.push_back(fork([&] { yield_until([&] { return go.load(); }); }));
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    go = true;
    for (const ThreadId id : blocked) Pool::join(id);
    after = fib(5);
  });
  EXPECT_EQ(message,
            "rank 0 has no call stack left for another thread: all 32 are in use by threads that have not "
            "ended; fork less deeply, or give each rank more "
            "(kasane run --slots, or KASANE_SLOTS)");
  EXPECT_EQ(after, 5u);
}

// A thread that has ended keeps its control block only.
TEST_P(PoolTest, EndedThreadsWaitForTheirJoinWithoutAStack) {
  constexpr std::uint32_t kStacks = 32, kThreads = 1000;
  TestPool pool(GetParam(), /*slots=*/2000, kStacks);
  unsigned ended = 0, joined = 0;
  pool.run([&] {
    std::atomic<unsigned> count{0};
    std::vector<ThreadId> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.push_back(fork([&count, i] {
        if (i % 3 == 0) Pool::yield();  // ends on the worker's own stack then
        count.fetch_add(1);
      }));
      if (i % 3 == 0) Pool::yield();
    }
    while (count.load() < kThreads) Pool::yield();
    ended = count.load();
    for (const ThreadId id : threads) {
      Pool::join(id);
      ++joined;
    }
  });
  EXPECT_EQ(ended, kThreads);
  EXPECT_EQ(joined, kThreads);
}

TEST_P(PoolTest, TooManyThreadsThatNobodyJoinedIsAClearError) {
  TestPool pool(GetParam(), /*slots=*/64, /*stacks=*/32);
  std::string message;
  pool.run([&] {
    std::vector<ThreadId> threads;
    try {
      for (;;) threads.push_back(fork([] {}));
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    for (const ThreadId id : threads) Pool::join(id);
    for (int i = 0; i < 100; ++i) Pool::join(fork([] {}));
  });
  EXPECT_NE(message.find("join threads sooner"), std::string::npos) << message;
}

void bisect(unsigned first, unsigned last, std::atomic<unsigned>& done) {
  if (last - first == 1) {
    done.fetch_add(1);
    return;
  }
  const unsigned middle = first + (last - first) / 2;
  const ThreadId left = fork([first, middle, &done] { bisect(first, middle, done); });
  bisect(middle, last, done);
  Pool::join(left);
}

// What a thief takes from a loop that is bisected is half of what is left, so there is no need to steal
// several continuations at once.
TEST_P(PoolTest, AFlatLoopTakesFewSteals) {
  constexpr unsigned kPieces = 1u << 17;
  TestPool pool(GetParam());
  std::atomic<unsigned> done{0};
  pool.run([&] { bisect(0, kPieces, done); });
  EXPECT_EQ(done.load(), kPieces);
  EXPECT_LT(pool.total(&Counters::steals_local), kPieces / 64);
}

TEST_P(PoolTest, AnyThreadMayJoinAnother) {
  TestPool pool(GetParam());
  int value = 0, seen = 0;
  pool.run([&] {
    std::atomic<bool> go{false};
    const ThreadId slow = fork([&] {
      yield_until([&] { return go.load(); });
      value = 42;
    });
    const ThreadId joiner = fork([&] {
      Pool::join(slow);
      seen = value;
    });
    go = true;
    Pool::join(joiner);
  });
  EXPECT_EQ(seen, 42);
}

TEST_P(PoolTest, DetachedThreadsRunAndFreeTheirSlots) {
  TestPool pool(GetParam(), /*slots=*/64);
  std::atomic<unsigned> done{0};
  pool.run([&] {
    for (unsigned i = 0; i < 2000; ++i) {
      const ThreadId id = fork([&, i] {
        if (i % 3 == 0) Pool::yield();
        done.fetch_add(1);
      });
      Pool::detach(id);
      if (i % 16 == 0) yield_until([&] { return done.load() + 16 > i; });
    }
    yield_until([&] { return done.load() == 2000; });
  });
  EXPECT_EQ(done.load(), 2000u);
}

TEST_P(PoolTest, MisuseOfAnIdIsRefused) {
  TestPool pool(GetParam());
  pool.run([] {
    const ThreadId joined = fork([] {});
    Pool::join(joined);
    EXPECT_THROW(Pool::join(joined), std::system_error);
    EXPECT_THROW(Pool::detach(joined), std::system_error);
    EXPECT_THROW(Pool::join(ThreadId{}), std::system_error);
    EXPECT_THROW(Pool::join(Pool::id()), std::system_error);

    std::atomic<bool> go{false};
    const ThreadId detached = fork([&] { yield_until([&] { return go.load(); }); });
    Pool::detach(detached);
    EXPECT_THROW(Pool::join(detached), std::system_error);
    go = true;
    yield_until([&] {
      try {
        Pool::detach(detached);
      } catch (const std::system_error& e) {
        return std::string(e.what()).find("has ended") != std::string::npos;
      }
      return false;
    });
  });
}

TEST_P(PoolTest, ASecondJoinerIsRefused) {
  TestPool pool(GetParam());
  pool.run([] {
    std::atomic<bool> go{false};
    std::atomic<int> refused{0}, joined{0};
    const ThreadId target = fork([&] { yield_until([&] { return go.load(); }); });
    const auto join_it = [&] {
      try {
        Pool::join(target);
        joined.fetch_add(1);
      } catch (const std::system_error&) {
        refused.fetch_add(1);
        go = true;
      }
    };
    const ThreadId a = fork(join_it);
    const ThreadId b = fork(join_it);
    Pool::join(a);
    Pool::join(b);
    EXPECT_EQ(refused.load(), 1);
    EXPECT_EQ(joined.load(), 1);
  });
}

TEST_P(PoolTest, YieldLetsEveryReadyThreadRun) {
  TestPool pool(GetParam());
  constexpr unsigned kThreads = 8, kRounds = 200;
  // No thread gets more than one round ahead of the slowest: only possible if yield serves all of them.
  pool.run([&] {
    std::array<std::atomic<unsigned>, kThreads> round{};
    std::vector<ThreadId> ids;
    for (unsigned t = 0; t < kThreads; ++t)
      ids.push_back(fork([&, t] {
        for (unsigned r = 0; r < kRounds; ++r) {
          round[t] = r;
          const bool ok = yield_until([&] {
            for (const auto& other : round)
              if (other.load() < r) return false;
            return true;
          });
          if (!ok) return;
        }
        round[t] = kRounds;
      }));
    for (const ThreadId id : ids) Pool::join(id);
    for (const auto& r : round) EXPECT_EQ(r.load(), kRounds);
  });
}

constexpr std::uint32_t kToken = raw(kNoSlot) - 1;

// Two threads that wake each other through suspend and make_ready.
TEST_P(PoolTest, SuspendAndMakeReadyPingPong) {
  TestPool pool(GetParam());
  constexpr unsigned kRounds = 5000;
  struct Box {
    std::atomic<std::uint32_t> waiting{raw(kNoSlot)};
  };
  struct Table {
    Pool* pool;
    Box box[2];
    // A token or a waiter: the second to come takes the first away.
    void give(int to) {
      const std::uint32_t found = box[to].waiting.exchange(kToken);
      if (found == raw(kNoSlot)) return;
      ASSERT_NE(found, kToken);
      box[to].waiting = raw(kNoSlot);
      pool->make_ready(SlotId{found}, Rank{0});
    }
    void take(int me) {
      struct Context {
        Table* table;
        int me;
      } context{this, me};
      Pool::suspend(
          [](void* p, SlotId self) {
            const auto [table, index] = *static_cast<Context*>(p);
            const std::uint32_t found = table->box[index].waiting.exchange(raw(self));
            if (found == raw(kNoSlot)) return;
            table->box[index].waiting = raw(kNoSlot);
            table->pool->make_ready(self, Rank{0});
          },
          &context);
    }
  };
  unsigned count = 0;
  pool.run([&] {
    Table table{&*pool, {}};
    const ThreadId other = fork([&] {
      for (unsigned i = 0; i < kRounds; ++i) {
        table.take(1);
        ++count;
        table.give(0);
      }
    });
    for (unsigned i = 0; i < kRounds; ++i) {
      table.give(1);
      table.take(0);
      ++count;
    }
    Pool::join(other);
  });
  EXPECT_EQ(count, 2 * kRounds);
  EXPECT_GE(pool.total(&Counters::suspends), 2 * kRounds);
}

TEST_P(PoolTest, ArgumentsKeepTheirAlignmentAndBytes) {
  TestPool pool(GetParam());
  pool.run([] {
    for (const std::size_t alignment : {1u, 8u, 16u, 64u, 4096u})
      for (const std::size_t size : {0u, 1u, 100u, 10'000u}) {
        const auto thread = Pool::allocate(alignment, size);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(thread.argument) % alignment, 0u);
        std::memset(thread.argument, 0x5A, size);
        Pool::abandon(thread);
      }
    struct alignas(64) Big {
      std::array<unsigned, 2000> numbers;
    };
    Big big;
    std::iota(big.numbers.begin(), big.numbers.end(), 0u);
    bool same = false;
    Pool::join(fork([big, &same] {
      same = reinterpret_cast<std::uintptr_t>(&big) % 64 == 0;
      for (unsigned i = 0; i < 2000; ++i) same = same && big.numbers[i] == i;
    }));
    EXPECT_TRUE(same);
    EXPECT_THROW(static_cast<void>(Pool::allocate(16, 40'000)), std::length_error);
  });
}

TEST_P(PoolTest, IdsNameOneThreadEach) {
  TestPool pool(GetParam(), /*slots=*/8);
  std::set<std::uint64_t> ids;
  pool.run([&] {
    for (int i = 0; i < 1000; ++i) {
      ThreadId inside;
      const ThreadId id = fork([&] { inside = Pool::id(); });
      Pool::join(id);
      EXPECT_EQ(id, inside);
      EXPECT_NE(id.value, 0u);
      EXPECT_TRUE(ids.insert(id.value).second);
    }
  });
  EXPECT_EQ(Pool::id().value, 0u);
}

TEST_P(PoolTest, SeveralRootsInARow) {
  TestPool pool(GetParam(), /*slots=*/64);
  for (unsigned i = 0; i < 200; ++i) {
    unsigned answer = 0;
    pool.run([&] { answer = fib(8); });
    ASSERT_EQ(answer, 21u);
  }
}

TEST_P(PoolTest, WhatARootLeavesBehindDoesNotDisturbTheNext) {
  TestPool pool(GetParam(), /*slots=*/64);
  struct Left {
    Pool* pool;
    std::array<std::atomic<std::uint32_t>, 3> suspended;
    std::atomic<unsigned> done{0};
  };
  for (unsigned i = 0; i < 20; ++i) {
    Left left{&*pool, {}, {}};
    for (auto& s : left.suspended) s = raw(kNoSlot);
    pool.run([&] {
      for (auto& s : left.suspended)
        Pool::detach(fork([&] {
          Pool::suspend(
              [](void* p, SlotId self) { static_cast<std::atomic<std::uint32_t>*>(p)->store(raw(self)); },
              &s);
          left.done.fetch_add(1);
        }));
      for (auto& s : left.suspended) yield_until([&] { return s.load() != raw(kNoSlot); });
      // Ready in the order root, others: the root runs first and ends, with the others in worker 0's deque.
      Pool::suspend(
          [](void* p, SlotId self) {
            auto& l = *static_cast<Left*>(p);
            l.pool->make_ready(self, Rank{0});
            for (auto& s : l.suspended) l.pool->make_ready(SlotId{s.load()}, Rank{0});
          },
          &left);
    });
    if (GetParam() == 1) {
      EXPECT_EQ(left.done.load(), 0u);
    }
    bool ran = false;
    pool.run([&] { ran = true; });  // never switched out, with a deque that is not empty
    EXPECT_TRUE(ran);
    pool.run([&] { yield_until([&] { return left.done.load() == 3; }); });
  }
}

TEST_P(PoolTest, LocalsBelongToTheirThread) {
  TestPool pool(GetParam());
  static std::atomic<std::uintptr_t> destroyed;
  destroyed = 0;
  pool.run([] {
    const std::uint32_t key =
        Locals::create_key([](void* p) { destroyed.fetch_add(reinterpret_cast<std::uintptr_t>(p)); });
    const std::uint32_t plain = Locals::create_key(nullptr);
    Locals::set(key, reinterpret_cast<void*>(1000));
    std::vector<ThreadId> ids;
    for (std::uintptr_t i = 1; i <= 10; ++i)
      ids.push_back(fork([=] {
        EXPECT_EQ(Locals::get(key), nullptr);
        Locals::set(key, reinterpret_cast<void*>(i));
        Pool::yield();
        EXPECT_EQ(Locals::get(key), reinterpret_cast<void*>(i));
        EXPECT_EQ(Locals::get(plain), nullptr);
      }));
    for (const ThreadId id : ids) Pool::join(id);
    EXPECT_EQ(destroyed.load(), 55u);
    EXPECT_EQ(Locals::get(key), reinterpret_cast<void*>(1000));
    Locals::create_key(nullptr);
    Locals::create_key(nullptr);
    EXPECT_THROW(Locals::create_key(nullptr), std::system_error);
  });
  EXPECT_EQ(destroyed.load(), 1055u);
}

TEST_P(PoolTest, UserCodeIsToldFromTheRuntime) {
  TestPool pool(GetParam());
  EXPECT_FALSE(Pool::in_user_code());
  pool.run([] {
    EXPECT_TRUE(Pool::in_user_code());
    {
      RuntimeSection outer;
      EXPECT_FALSE(Pool::in_user_code());
      Pool::yield();
      EXPECT_FALSE(Pool::in_user_code());
    }
    EXPECT_TRUE(Pool::in_user_code());
    // A section travels with its thread, and is not the others'.
    std::atomic<bool> go{false};
    const ThreadId child = fork([&] {
      RuntimeSection section;
      yield_until([&] { return go.load(); });
      EXPECT_FALSE(Pool::in_user_code());
    });
    EXPECT_TRUE(Pool::in_user_code());
    go = true;
    Pool::join(child);
    EXPECT_TRUE(Pool::in_user_code());
  });
}

TEST(PoolCreate, WrongNumbersAreRefused) {
  Config config;
  EXPECT_FALSE(Pool::create(config).has_value());
  config.workers = 0;
  EXPECT_FALSE(Pool::create(config).has_value());
  config.workers = 1;
  config.stack_bytes = 1000;
  EXPECT_FALSE(Pool::create(config).has_value());
}

TEST(PoolCreate, TwoPoolsLiveInOneProcess) {
  TestPool a(2), b(1);
  unsigned from_a = 0, from_b = 0;
  std::thread other([&] { b.run([&] { from_b = fib(15); }); });
  a.run([&] { from_a = fib(15); });
  other.join();
  EXPECT_EQ(from_a, plain_fib(15));
  EXPECT_EQ(from_b, plain_fib(15));
}

}  // namespace
}  // namespace kasane::ult
