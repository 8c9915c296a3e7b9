// SPDX-License-Identifier: Apache-2.0
// The order in which a worker asks the others of its rank: alone, and as a pool's thieves show it.
#include "ult/steal_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "base/random.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

using Numbered = StealOrder<std::uint32_t>;

Numbered victims_of(std::uint32_t own, std::uint32_t workers, std::span<const std::uint32_t> nodes) {
  std::vector<std::uint32_t> all(workers);
  std::iota(all.begin(), all.end(), 0u);
  return {own, all, nodes};
}

std::vector<std::uint32_t> whole_round(const Numbered& victims, Random& random) {
  std::vector<std::uint32_t> asked;
  EXPECT_EQ(victims.round([&](std::uint32_t n) { return static_cast<std::uint32_t>(random.below(n)); },
                          [&](std::uint32_t worker) {
                            asked.push_back(worker);
                            return kNoSlot;
                          }),
            kNoSlot);
  return asked;
}

/// Keeps the worker busy meanwhile; fails the test after a time that only a hang takes.
template <class Condition>
void spin_until(Condition condition) {
  const std::uint64_t deadline = now_ns() + 60'000'000'000u;
  while (!condition()) {
    if (now_ns() > deadline) return ADD_FAILURE() << "hangs", void();
    std::this_thread::yield();
  }
}

TEST(StealOrder, EveryOtherWorkerOnceThoseOfTheNodeFirst) {
  const std::vector<std::uint32_t> nodes{0, 1, 0, 7, 1, 0};
  Random random(3);
  for (std::uint32_t own = 0; own < nodes.size(); ++own) {
    const Numbered victims = victims_of(own, 6, nodes);
    for (int round = 0; round < 100; ++round) {
      const auto asked = whole_round(victims, random);
      EXPECT_EQ(asked.size(), 5u);
      EXPECT_EQ(std::set(asked.begin(), asked.end()).size(), 5u);
      bool near = true;
      for (const std::uint32_t worker : asked) {
        EXPECT_NE(worker, own);
        if (nodes[worker] != nodes[own]) near = false;
        EXPECT_EQ(nodes[worker] == nodes[own], near) << "worker " << worker << " too late";
      }
    }
  }
}

TEST(StealOrder, EachIsFirstAsOftenWithinTheNode) {
  const std::vector<std::uint32_t> nodes{0, 1, 0, 1, 0};
  Random random(5);
  constexpr unsigned kRounds = 3000;
  for (const std::span<const std::uint32_t> table : {std::span<const std::uint32_t>(), std::span(nodes)}) {
    const Numbered victims = victims_of(0, 5, table);
    std::map<std::uint32_t, unsigned> first;
    for (unsigned round = 0; round < kRounds; ++round) ++first[whole_round(victims, random).front()];
    EXPECT_EQ(first.size(), table.empty() ? 4u : 2u);
    for (const auto& [worker, times] : first) EXPECT_GT(times, kRounds / first.size() * 4 / 5) << worker;
  }
}

TEST(StealOrder, ARoundEndsWithTheFirstThatHasWork) {
  const Numbered victims = victims_of(2, 4, {});
  unsigned asked = 0;
  const SlotId slot = victims.round([](std::uint32_t) { return 1u; },
                                    [&](std::uint32_t worker) {
                                      ++asked;
                                      return worker == 3 ? SlotId{9} : kNoSlot;
                                    });
  EXPECT_EQ(slot, SlotId{9});
  EXPECT_EQ(asked, 2u) << "1, then 3";
  EXPECT_EQ(
      victims_of(0, 1, {}).round([](std::uint32_t) { return 0u; }, [](std::uint32_t) { return SlotId{1}; }),
      kNoSlot)
      << "a worker alone";
}

// Three workers, each with a thread. Those of one worker on either node leave a continuation to be stolen;
// the third worker has nothing else to do, and so takes that of its node.
TEST(StealOrder, AThiefTakesWorkOfItsNodeFirst) {
  constexpr std::uint32_t kVictimNear = 0, kVictimFar = 1, kThief = 2;
  TestPool pool(3, /*slots=*/256, std::vector<std::uint32_t>{0, 1, 0});
  for (int round = 0; round < 30; ++round) {
    std::atomic<unsigned> begun{0}, offered{0};
    std::atomic<std::uint32_t> first{3};
    const auto act = [&] {
      ++begun;
      spin_until([&] { return begun == 3; });  // on three workers, since each is kept busy
      const std::uint32_t worker = Pool::worker();
      if (worker == kThief) {
        spin_until([&] { return offered == 2; });
        return;  // its worker looks for work
      }
      const ThreadId child = fork([&] {
        ++offered;
        spin_until([&] { return first != 3; });  // the victims do not look for work themselves
      });
      std::uint32_t none = 3;
      if (Pool::worker() == kThief) first.compare_exchange_strong(none, worker);
      Pool::join(child);
    };
    pool.run([&] {
      const ThreadId a = fork(act);
      const ThreadId b = fork(act);
      act();
      Pool::join(a);
      Pool::join(b);
    });
    ASSERT_EQ(first, kVictimNear) << "round " << round << ", not " << kVictimFar;
  }
}

TEST(StealOrder, WorkOfOtherNodesIsTakenWhereTheOwnHasNone) {
  TestPool pool(2, /*slots=*/4096, std::vector<std::uint32_t>{0, 1});
  unsigned answer = 0;
  pool.run([&] {
    answer = fib(18);
    std::atomic<bool> elsewhere{false};
    const std::uint32_t here = Pool::worker();
    const ThreadId child = fork([&] { spin_until([&] { return elsewhere.load(); }); });
    elsewhere = Pool::worker() != here;  // the child goes on only if this was stolen
    Pool::join(child);
  });
  EXPECT_EQ(answer, plain_fib(18));
  EXPECT_GT(pool.total(&Counters::steals_local), 0u);
}

TEST(StealOrder, ATableOfAnotherLengthIsRefused) {
  const Pages region(threads_region_bytes(2, 64)), stacks(64 * 64 * 1024);
  std::vector<Counters> counters(2);
  Config config;
  config.workers = 2;
  config.slots_per_rank = config.stacks_per_rank = 64;
  config.stacks = stacks.data();
  config.region = region.data();
  config.counters = counters.data();
  config.worker_nodes = {0, 0, 1};
  EXPECT_FALSE(Pool::create(config).has_value());
  config.worker_nodes = {0, 1};
  EXPECT_TRUE(Pool::create(config).has_value());
}

}  // namespace
}  // namespace kasane::ult
