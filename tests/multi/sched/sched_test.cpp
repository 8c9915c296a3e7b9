// SPDX-License-Identifier: Apache-2.0
// Threads over 2 and 4 processes: programs against oracles, and the edges of docs/design/sched.md counted one
// by one.
//
// Data that threads share lies on their stacks or in the arena, never in the heap or on an OS thread's stack;
// so the roots capture nothing of rank 0's by reference but the arena's objects.
//
// A program computes how many crossings its own history asks for (a join whose thread ended on another rank,
// a lock whose last holder unlocked on another rank) and the doubles must have seen exactly as many: neither
// a fence too few nor one too many.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/clock.h"
#include "multi/sched/cluster.h"
#include "ult/sync/barrier.h"
#include "ult/sync/condition_variable.h"
#include "ult/sync/mutex.h"
#include "unit/ult/harness.h"

namespace kasane::sched::test {
namespace {

using ult::Barrier;
using ult::ConditionVariable;
using ult::fork;
using ult::Mutex;
using ult::Pool;
using ult::ThreadId;

struct Shape {
  std::uint32_t ranks, workers;
};

class SchedTest : public ::testing::TestWithParam<Shape> {
 protected:
  std::uint32_t ranks() const { return GetParam().ranks; }
  std::uint32_t workers() const { return GetParam().workers; }
};
INSTANTIATE_TEST_SUITE_P(Shapes, SchedTest,
                         ::testing::Values(Shape{2, 1}, Shape{2, 2}, Shape{4, 1}, Shape{4, 2}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.ranks) + "ranks" +
                                  std::to_string(shape.param.workers) + "workers";
                         });

/// The rank that runs the caller now. Not inlined: a thread may move between two calls.
[[gnu::noinline]] std::uint32_t here() { return raw(Pool::current()->config().rank); }

/// Keeps a core busy, so that others have the time to steal.
void work_for(std::uint64_t ns) {
  const std::uint64_t end = now_ns() + ns;
  while (now_ns() < end) relax();
}

/// The crossings that the program's own history asks for. In shared memory.
struct Expected {
  std::atomic<std::uint64_t> crossings{0}, barrier_passes{0};
  std::atomic<std::uint64_t> failures{0};  ///< the program's own checks
};

/// Joins and notes the edge: ended is where the thread says that it ended.
void join(ThreadId thread, const std::uint32_t& ended, Expected& expected) {
  Pool::join(thread);
  if (ended != here()) ++expected.crossings;
}

/// Invites another worker to steal the caller: its child keeps this one busy until that has happened, or for
/// limit_ns.
void hop(Expected& expected, std::uint64_t limit_ns) {
  std::atomic<bool> moved{false};
  std::uint32_t ended = 0;
  const ThreadId child = fork([&] {
    const std::uint64_t end = now_ns() + limit_ns;
    while (!moved && now_ns() < end) relax();
    ended = here();
  });
  moved = true;
  join(child, ended, expected);
}

/// Returns on another rank than it was called on.
void go_elsewhere(Expected& expected) {
  const std::uint32_t start = here();
  while (here() == start) hop(expected, 10'000'000);
}

/// The last line of every root: rank 0, which waits for it, crosses if it ends elsewhere.
void end_of_root(Expected& expected) {
  if (here() != 0) ++expected.crossings;
}

void expect_edges(const Shared& shared, const Expected& expected) {
  EXPECT_EQ(expected.failures.load(), 0u);
  const std::uint64_t steals = shared.sum(&Counters::steals_remote);
  EXPECT_EQ(shared.sum(&Tally::cross), expected.crossings.load()) << "joins and locks";
  EXPECT_EQ(shared.sum(&Tally::ask_release), steals) << "one release a steal";
  EXPECT_EQ(shared.sum(&Tally::adopt), steals) << "one stack a steal";
  EXPECT_EQ(shared.sum(&Tally::rank_stores), steals)
      << "a slot's rank is stored once a steal: another rank's slot costs a round trip each";
  EXPECT_EQ(shared.sum(&Tally::release), expected.barrier_passes.load()) << "one release an arrival";
  EXPECT_EQ(shared.sum(&Tally::acquire), steals + expected.barrier_passes.load())
      << "one acquire a steal and a passage";
}

template <class T>
T& in_arena(Shared& shared, std::size_t offset = 0) {
  return *new (shared.arena + offset) T;
}

// ---- one edge at a time ----

// The parent is stolen while its child runs, writes to the child's variable on its own stack from there, and
// joins it.
TEST(SchedEdges, AStealIsReleaseAdoptAcquireAndTheJoinCrossesOnce) {
  Cluster cluster(2, 1);
  auto& expected = in_arena<Expected>(*cluster.shared);
  cluster.run([&](auto run) {
    run([&] {
      std::atomic<bool> stolen{false};
      std::uint32_t ended = 99;
      int x = 1;
      const ThreadId child = fork([&] {
        while (!stolen) relax();  // rank 0's only worker stays here, so the parent can go on only elsewhere
        x = 42;
        ended = here();
      });
      if (here() != 1) ++expected.failures;
      stolen = true;
      join(child, ended, expected);
      if (x != 42 || ended != 0) ++expected.failures;
    });
  });
  EXPECT_EQ(cluster.shared->tally[1].adopt.load(), 1u);
  // The join at rank 1 of a thread that ended at rank 0; the root's own end is seen by rank 0 from rank 1.
  EXPECT_EQ(cluster.shared->tally[1].cross.load(), 1u);
  EXPECT_EQ(cluster.shared->tally[0].cross.load(), 1u);
  ++expected.crossings;  // the root's
  expect_edges(*cluster.shared, expected);
}

// A mutex that stays on one rank costs no fence; each change of rank costs one.
TEST(SchedEdges, AMutexCrossesWhenItsLastHolderWasElsewhere) {
  Cluster cluster(2, 1);
  auto& expected = in_arena<Expected>(*cluster.shared);
  cluster.run([&](auto run) {
    run([&] {
      Mutex mutex;
      std::atomic<int> turn{0};
      std::uint32_t ended = 99;
      const ThreadId child = fork([&] {
        for (int i = 0; i < 5; ++i) {  // rank 0 alone, then in turns with rank 1
          mutex.lock();
          mutex.unlock();
        }
        turn = 1;
        for (int i = 0; i < 10; ++i) {
          while (turn != 2) relax();
          mutex.lock();
          mutex.unlock();
          turn = 1;
        }
        ended = here();
      });
      if (here() != 1) ++expected.failures;
      for (int i = 0; i < 10; ++i) {
        while (turn != 1) relax();
        mutex.lock();
        mutex.unlock();
        turn = 2;
      }
      while (turn != 1) relax();
      join(child, ended, expected);
    });
  });
  expected.crossings += 20 + 1;  // ten times there and back; the root
  EXPECT_EQ(cluster.shared->tally[0].cross.load(), 10u + 1u);
  EXPECT_EQ(cluster.shared->tally[1].cross.load(), 10u + 1u);
  expect_edges(*cluster.shared, expected);
}

// ---- programs ----

std::uint64_t fib(unsigned n, Expected& expected) {
  if (n < 2) return n;
  std::uint64_t a = 0;
  std::uint32_t ended = 0;
  const ThreadId child = fork([&a, &ended, &expected, n] {
    a = fib(n - 1, expected);
    ended = here();
  });
  const std::uint64_t b = fib(n - 2, expected);
  if (n == 8) work_for(5'000);
  join(child, ended, expected);
  return a + b;
}

TEST_P(SchedTest, Fib) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  cluster.run([&](auto run) {
    for (int i = 0; i < 10; ++i) {
      run([&] {
        go_elsewhere(expected);
        if (fib(18, expected) != 2584) ++expected.failures;
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u) << "nothing moved: the test shows nothing";
}

unsigned queens(unsigned n, unsigned row, unsigned columns, unsigned left, unsigned right,
                Expected& expected) {
  if (row == n) return 1;
  std::array<unsigned, 10> found{};
  std::array<std::uint32_t, 10> ended{};
  std::array<ThreadId, 10> threads{};
  const unsigned free_columns = ~(columns | left | right) & ((1u << n) - 1);
  for (unsigned c = 0; c < n; ++c) {
    const unsigned bit = 1u << c;
    if ((free_columns & bit) == 0) continue;
    threads[c] = fork([&, c, bit] {
      found[c] = queens(n, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1, expected);
      ended[c] = here();
    });
  }
  unsigned sum = 0;
  for (unsigned c = 0; c < n; ++c) {
    if ((free_columns & (1u << c)) == 0) continue;
    join(threads[c], ended[c], expected);
    sum += found[c];
  }
  return sum;
}

TEST_P(SchedTest, Queens) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  cluster.run([&](auto run) {
    for (int i = 0; i < 10; ++i) {
      run([&] {
        go_elsewhere(expected);
        if (queens(8, 0, 0, 0, 0, expected) != 92) ++expected.failures;
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u);
}

/// A plain value under a mutex, with the rank of the last unlock: the history that says which locks must
/// cross.
struct Guarded {
  explicit Guarded(Expected& e) : expected(e) {}
  void lock() {
    mutex.lock();
    check();
  }
  void unlock() {
    last = here();
    mutex.unlock();
  }
  void wait(ConditionVariable& condition) {
    last = here();
    condition.wait(mutex);
    check();
  }
  void check() {
    if (last != kNever && last != here()) ++expected.crossings;
    if (holders.fetch_add(1) != 0) ++expected.failures;
    holders.fetch_sub(1);
  }
  static constexpr std::uint32_t kNever = 99;
  Expected& expected;
  Mutex mutex;
  std::uint32_t last = kNever;
  std::atomic<int> holders{0};
  std::uint64_t value = 0;
};

TEST_P(SchedTest, MutexAcrossRanks) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  constexpr std::uint32_t kThreads = 24, kRounds = 40;
  cluster.run([&](auto run) {
    for (int i = 0; i < 20; ++i) {
      run([&] {
        Guarded guarded(expected);
        go_elsewhere(expected);  // the mutex stays where it was made
        std::array<ThreadId, kThreads> threads;
        std::array<std::uint32_t, kThreads> ended{};
        for (std::uint32_t t = 0; t < kThreads; ++t) {
          threads[t] = fork([&, t] {
            std::minstd_rand random(t + 1);
            for (std::uint32_t r = 0; r < kRounds; ++r) {
              guarded.lock();
              const std::uint64_t seen = guarded.value;
              if (random() % 8 == 0) Pool::yield();
              if (random() % 32 == 0) hop(expected, 20'000);  // held over a move
              guarded.value = seen + 1;
              guarded.unlock();
              work_for(random() % 1000);
            }
            ended[t] = here();
          });
        }
        for (std::uint32_t t = 0; t < kThreads; ++t) join(threads[t], ended[t], expected);
        if (guarded.value != kThreads * kRounds) ++expected.failures;
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u);
}

TEST_P(SchedTest, ConditionVariableAcrossRanks) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  constexpr std::uint32_t kPairs = 6, kItems = 60, kMost = 4;
  cluster.run([&](auto run) {
    for (int i = 0; i < 20; ++i) {
      run([&] {
        Guarded guarded(expected);  // value: items in the queue
        ConditionVariable not_full, not_empty;
        go_elsewhere(expected);
        std::array<ThreadId, 2 * kPairs> threads;
        std::array<std::uint32_t, 2 * kPairs> ended{};
        for (std::uint32_t t = 0; t < 2 * kPairs; ++t) {
          threads[t] = fork([&, t] {
            const bool produces = t % 2 == 0;
            std::minstd_rand random(t + 1);
            for (std::uint32_t r = 0; r < kItems; ++r) {
              guarded.lock();
              while (guarded.value == (produces ? kMost : 0u)) guarded.wait(produces ? not_full : not_empty);
              guarded.value += produces ? 1u : ~std::uint64_t{0};
              guarded.unlock();
              (produces ? not_empty : not_full).notify_one();
              work_for(random() % 1000);
              if (random() % 16 == 0) hop(expected, 20'000);
            }
            ended[t] = here();
          });
        }
        for (std::uint32_t t = 0; t < 2 * kPairs; ++t) join(threads[t], ended[t], expected);
        if (guarded.value != 0) ++expected.failures;
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u);
}

TEST_P(SchedTest, BarrierAcrossRanks) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  constexpr std::uint32_t kThreads = 9, kPhases = 25;
  cluster.run([&](auto run) {
    for (int i = 0; i < 20; ++i) {
      run([&] {
        Barrier barrier(kThreads);
        go_elsewhere(expected);
        std::array<std::uint32_t, kThreads> phase{};
        std::array<ThreadId, kThreads> threads;
        std::array<std::uint32_t, kThreads> ended{};
        for (std::uint32_t t = 0; t < kThreads; ++t) {
          threads[t] = fork([&, t] {
            std::minstd_rand random(t + 1);
            for (std::uint32_t p = 1; p <= kPhases; ++p) {
              if (random() % 4 == 0) hop(expected, 20'000);
              phase[t] = p;
              static_cast<void>(barrier.arrive_and_wait());
              for (std::uint32_t seen : phase)
                if (seen != p) ++expected.failures;
              static_cast<void>(barrier.arrive_and_wait());
              expected.barrier_passes += 2;
            }
            ended[t] = here();
          });
        }
        for (std::uint32_t t = 0; t < kThreads; ++t) join(threads[t], ended[t], expected);
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u);
}

// ---- random fork–join programs ----

struct World {
  Expected& expected;
  Guarded& total;
  std::atomic<std::uint64_t>& detached;
};

std::uint64_t mix(std::uint64_t x) { return (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u + 0x9E3779B97F4A7C15u; }

/// What tree(seed, depth) returns, computed by one thread.
std::uint64_t oracle(std::uint64_t seed, unsigned depth, std::uint64_t& nodes) {
  ++nodes;
  if (depth == 0) return mix(seed);
  std::uint64_t sum = seed;
  const unsigned children = static_cast<unsigned>(mix(seed) >> 60) % 4;
  for (unsigned c = 0; c < children; ++c) sum = mix(sum + oracle(mix(seed + c), depth - 1, nodes));
  return sum;
}

std::uint64_t tree(std::uint64_t seed, unsigned depth, World& world) {
  std::minstd_rand random(static_cast<unsigned>(seed));  // timing only: the result does not depend on it
  if (random() % 4 == 0) {
    world.total.lock();
    const std::uint64_t before = world.total.value;
    if (random() % 4 == 0) Pool::yield();
    world.total.value = before + 1;
    world.total.unlock();
  } else {
    ++world.detached;  // stands for the same unit
  }
  if (depth == 0) {
    random() % 16 == 0 ? hop(world.expected, 20'000) : work_for(random() % 1000);
    return mix(seed);
  }
  const unsigned children = static_cast<unsigned>(mix(seed) >> 60) % 4;
  std::array<std::uint64_t, 4> results{};
  std::array<std::uint32_t, 4> ended{};
  std::array<ThreadId, 4> threads{};
  for (unsigned c = 0; c < children; ++c) {
    threads[c] = fork([&, c] {
      results[c] = tree(mix(seed + c), depth - 1, world);
      ended[c] = here();
    });
    if (random() % 8 == 0) Pool::yield();
  }
  // In any order, some by a child that exists only for that: it may be on yet another rank.
  for (unsigned k = 0; k < children; ++k) {
    const unsigned c = (k + static_cast<unsigned>(seed % children)) % children;
    if (random() % 4 != 0) {
      join(threads[c], ended[c], world.expected);
      continue;
    }
    std::uint32_t joiner_ended = 0;
    const ThreadId joiner = fork([&, c] {
      join(threads[c], ended[c], world.expected);
      joiner_ended = here();
    });
    join(joiner, joiner_ended, world.expected);
  }
  std::uint64_t sum = seed;
  for (unsigned c = 0; c < children; ++c) sum = mix(sum + results[c]);
  return sum;
}

TEST_P(SchedTest, RandomForkJoinAgreesWithTheOracle) {
  Cluster cluster(ranks(), workers());
  auto& expected = in_arena<Expected>(*cluster.shared);
  auto& failed_seed = in_arena<std::atomic<std::uint64_t>>(*cluster.shared, 4096);
  cluster.run([&](auto run) {
    for (std::uint64_t seed = 1; seed <= 800 && failed_seed == 0; ++seed) {
      run([&expected, &failed_seed, seed] {
        Guarded total(expected);
        std::atomic<std::uint64_t> detached{0};
        World world{expected, total, detached};
        if (seed % 16 == 0) go_elsewhere(expected);
        std::uint64_t nodes = 0;
        const std::uint64_t wanted = oracle(mix(seed), 5, nodes);
        if (tree(mix(seed), 5, world) != wanted || total.value + detached != nodes) failed_seed = seed;
        end_of_root(expected);
      });
    }
  });
  EXPECT_EQ(failed_seed.load(), 0u) << "replay with this seed";
  expect_edges(*cluster.shared, expected);
  EXPECT_GT(cluster.shared->sum(&Counters::steals_remote), 0u);
}

// Work comes in bursts with pauses in which every other rank falls asleep: each burst must wake them again. A
// lost wake-up is a hang here, because the child spins until its parent has moved; one worker a rank, so it
// can only move to another rank.
void bursts(std::uint32_t ranks) {
  Cluster cluster(ranks, 1);
  auto& expected = in_arena<Expected>(*cluster.shared);
  cluster.run([&](auto run) {
    for (int i = 0; i < 300; ++i) {
      run([&expected, i] {
        work_for(static_cast<std::uint64_t>(i % 7) * 20'000);  // from none to well beyond the spin
        std::atomic<bool> moved{false};
        std::uint32_t ended = 0;
        const ThreadId child = fork([&] {
          while (!moved) relax();
          ended = here();
        });
        moved = true;
        join(child, ended, expected);
        end_of_root(expected);
      });
    }
  });
  expect_edges(*cluster.shared, expected);
  EXPECT_GE(cluster.shared->sum(&Counters::steals_remote), 300u);
}
TEST(SchedWakeUps, TwoRanksAreWokenForEveryBurst) { bursts(2); }
TEST(SchedWakeUps, FourRanksAreWokenForEveryBurst) { bursts(4); }

}  // namespace
}  // namespace kasane::sched::test
