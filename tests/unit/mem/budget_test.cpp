// SPDX-License-Identifier: Apache-2.0
#include "mem/budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"

namespace kasane::mem {
namespace {

/// A host of ranks, each with a budget.
struct TestHost {
  TestHost(std::uint64_t blocks, std::uint32_t ranks, std::uint64_t batch)
      : memory(static_cast<std::byte*>(std::aligned_alloc(64, HostBudget::bytes(ranks))), &std::free),
        host(new(memory.get()) HostBudget(blocks, ranks)) {
    for (std::uint32_t r = 0; r < ranks; ++r) budgets.push_back(std::make_unique<Budget>(*host, r, batch));
  }
  Budget& operator[](std::size_t r) { return *budgets[r]; }

  /// What the file's header promises. All of it holds only when no call runs.
  void expect_invariants() {
    std::uint64_t held = host->free.load();
    for (const auto& b : budgets) {
      std::uint64_t mine = b->credit();
      for (std::size_t u = 0; u < kBudgetUses; ++u) mine += b->used(static_cast<BudgetUse>(u));
      ASSERT_EQ(mine, b->held());
      held += b->held();
    }
    ASSERT_EQ(held, host->total);
  }

  std::unique_ptr<std::byte, void (*)(void*)> memory;
  HostBudget* host;
  std::vector<std::unique_ptr<Budget>> budgets;
};

/// done: the blocks are charged. evict: this rank has its share. asked: other ranks have to give some.
enum class Got : std::uint8_t { done, evict, asked };
Got charge(Budget& budget, BudgetUse use, std::uint64_t blocks) {
  for (;;) {
    const bool done = budget.charge(use, blocks) != Charge::none;
    const Ask ask = budget.ask(done ? 0 : blocks, 0);
    if (done) return Got::done;
    if (ask != Ask::free) return ask == Ask::others ? Got::asked : Got::evict;
  }
}

TEST(Budget, ARankAloneMayUseAllOfIt) {
  TestHost host(1000, 4, 16);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(charge(host[0], BudgetUse::owned, 1), Got::done) << i;
  EXPECT_EQ(charge(host[0], BudgetUse::owned, 1), Got::evict) << "four times its share";
  EXPECT_EQ(host[0].used(BudgetUse::owned), 1000u);
  host.expect_invariants();
}

TEST(Budget, WhatIsDischargedCanBeChargedAgainWithoutTheHost) {
  TestHost host(1000, 1, 16);
  ASSERT_EQ(charge(host[0], BudgetUse::cached, 20), Got::done);
  const std::uint64_t held = host[0].held();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(host[0].discharge(BudgetUse::cached, 20));
    ASSERT_EQ(charge(host[0], BudgetUse::cached, 20), Got::done);
    ASSERT_EQ(host[0].held(), held);
  }
}

TEST(Budget, MuchThatIsUnusedGoesBack) {
  TestHost host(1000, 2, 16);
  ASSERT_EQ(charge(host[0], BudgetUse::twins, 500), Got::done);
  (void)host[0].discharge(BudgetUse::twins, 500);
  EXPECT_LE(host[0].held(), 32u);
  host.expect_invariants();
}

// The first rank has all. Another one asks, and gets its share, no more: what the first one discharges goes
// to it.
TEST(Budget, AShareIsGivenBackWhenAskedFor) {
  TestHost host(1000, 2, 10);
  while (charge(host[0], BudgetUse::owned, 1) == Got::done) {
  }
  std::uint64_t got = 0;
  for (int round = 0; round < 10'000 && got < 500; ++round) {
    switch (charge(host[1], BudgetUse::owned, 1)) {
      case Got::done: ++got; break;
      case Got::evict: FAIL() << "it has not its share yet: " << got;
      case Got::asked:
        ASSERT_EQ(host[0].to_evict(0), 1u);
        EXPECT_TRUE(host[0].discharge(BudgetUse::owned, host[0].to_evict(0))) << "somebody has to be rung";
        ASSERT_NE(charge(host[0], BudgetUse::owned, 1), Got::done) << "taken away from who asks";
    }
    host.expect_invariants();
  }
  EXPECT_EQ(got, 500u);
  EXPECT_EQ(charge(host[1], BudgetUse::owned, 1), Got::evict);
  EXPECT_EQ(host[0].held(), 500u);
  EXPECT_EQ(host[0].to_evict(0), 0u);
}

TEST(Budget, CreditIsGivenWithoutEviction) {
  TestHost host(100, 2, 50);
  ASSERT_EQ(charge(host[0], BudgetUse::owned, 51), Got::done);
  ASSERT_EQ(charge(host[0], BudgetUse::owned, 1), Got::done);  // a batch, of which 48 stay
  ASSERT_EQ(charge(host[1], BudgetUse::owned, 30), Got::asked);
  EXPECT_TRUE(host[0].trim());
  EXPECT_EQ(charge(host[1], BudgetUse::owned, 30), Got::done);
  host.expect_invariants();
}

TEST(Budget, WhoGivesUpAsksNoMore) {
  TestHost host(100, 2, 1);
  ASSERT_EQ(charge(host[0], BudgetUse::owned, 100), Got::done);
  ASSERT_EQ(charge(host[1], BudgetUse::owned, 30), Got::asked);
  EXPECT_EQ(host[0].to_evict(0), 30u);
  EXPECT_EQ(host[1].ask(0, 0), Ask::none);
  EXPECT_EQ(host[0].to_evict(0), 0u);
}

TEST(Budget, HeadroomIsWhatIsMissing) {
  TestHost host(100, 1, 1);
  EXPECT_EQ(host[0].to_evict(40), 0u);
  ASSERT_EQ(charge(host[0], BudgetUse::owned, 90), Got::done);
  EXPECT_EQ(host[0].to_evict(40), 30u);
}

// Ranks that charge, discharge and ask at random, against a plain account. A rank that asks gets its blocks
// once the others give what they have to.
TEST(Budget, RandomWalkMatchesAnOracle) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const std::uint64_t total = 40 + random.below(2000);
    const auto ranks = static_cast<std::uint32_t>(1 + random.below(6));
    TestHost host(total, ranks, 1 + random.below(20));
    std::vector<std::vector<std::uint64_t>> used(ranks, std::vector<std::uint64_t>(kBudgetUses, 0));
    for (int step = 0; step < 2000; ++step) {
      const auto r = static_cast<std::uint32_t>(random.below(ranks));
      const auto u = random.below(kBudgetUses);
      const auto use = static_cast<BudgetUse>(u);
      std::uint64_t mine = 0, all = 0;
      for (const auto& account : used)
        for (const std::uint64_t n : account) all += n;
      for (const std::uint64_t n : used[r]) mine += n;
      if (random.one_in(3)) {
        const std::uint64_t n = random.below(used[r][u] + 1);
        (void)host[r].discharge(use, n);
        used[r][u] -= n;
      } else {
        const std::uint64_t n = 1 + random.below(total / ranks / 2 + 1);
        const Got answer = charge(host[r], use, n);
        if (answer == Got::done) {
          used[r][u] += n;
          ASSERT_LE(all + n, total);
        } else if (answer == Got::asked) {
          ASSERT_LE(mine + n, total / ranks) << "asked for more than its share";
          // The other ranks do what they are told; then it must succeed.
          for (std::uint32_t other = 0; other < ranks; ++other) {
            if (other == r) continue;
            (void)host[other].trim();
            std::uint64_t due = host[other].to_evict(0);
            for (std::size_t k = 0; k < kBudgetUses && due != 0; ++k) {
              const std::uint64_t give = std::min(due, used[other][k]);
              (void)host[other].discharge(static_cast<BudgetUse>(k), give);
              used[other][k] -= give, due -= give;
            }
            ASSERT_EQ(due, 0u) << "it keeps what it does not use";
          }
          ASSERT_EQ(charge(host[r], use, n), Got::done) << "seed " << seed << " step " << step;
          used[r][u] += n;
        } else {
          EXPECT_EQ(host[r].ask(0, 0), Ask::none);
        }
      }
      for (std::size_t k = 0; k < kBudgetUses; ++k)
        ASSERT_EQ(host[r].used(static_cast<BudgetUse>(k)), used[r][k]);
      host.expect_invariants();
    }
  }
}

// A rank gets what it must have, where that is within its share and what it would like beyond is not; never
// more than the share.
TEST(Budget, AnAskIsWithinTheShare) {
  TestHost host(100, 2, 1);
  ASSERT_EQ(host[0].charge(BudgetUse::owned, 100), Charge::taken);
  EXPECT_EQ(host[1].ask(10, 20), Ask::others);
  EXPECT_EQ(host[0].to_evict(0), 30u);
  EXPECT_EQ(host[1].ask(10, 60), Ask::others);
  EXPECT_EQ(host[0].to_evict(0), 10u);
  EXPECT_EQ(host[1].ask(60, 1), Ask::none);
  EXPECT_EQ(host[0].to_evict(0), 0u);
  EXPECT_EQ(host[0].ask(1, 0), Ask::none) << "it has more than its share";
  EXPECT_EQ(host.host->asking.load(), 0u);
}

// An idle rank's share is an eighth, unless it needs more to run; the other ranks share the rest equally.
TEST(Budget, AnIdleRankGivesWay) {
  TestHost host(2400, 3, 16);
  EXPECT_EQ(host[0].share(), 800u);
  for (std::size_t r : {0, 1, 2}) ASSERT_EQ(charge(host[r], BudgetUse::owned, 800), Got::done);
  EXPECT_EQ(charge(host[1], BudgetUse::owned, 10), Got::evict);
  EXPECT_TRUE(host[0].set_idle(true));
  EXPECT_FALSE(host[0].set_idle(true));
  EXPECT_EQ(host[0].share(), 100u);
  EXPECT_EQ(host[1].share(), 1150u);
  EXPECT_EQ(host[2].share(), 1150u);
  EXPECT_EQ(host[0].fair(), 800u);
  EXPECT_EQ(host[0].to_evict(0), 0u) << "no rank asks";
  EXPECT_EQ(charge(host[1], BudgetUse::owned, 10), Got::asked);
  EXPECT_EQ(host[0].to_evict(0), 10u);
  EXPECT_EQ(host[2].to_evict(0), 0u);
  EXPECT_TRUE(host[0].discharge(BudgetUse::owned, 10));
  EXPECT_EQ(charge(host[1], BudgetUse::owned, 10), Got::done);
  // It gets its own share back by asking.
  EXPECT_TRUE(host[0].set_idle(false));
  EXPECT_EQ(host[1].share(), 800u);
  EXPECT_EQ(host[0].rightful(50), 10u);
  EXPECT_EQ(charge(host[0], BudgetUse::owned, 10), Got::asked);
  EXPECT_EQ(host[1].to_evict(0), 10u);
  for (std::size_t r : {0, 1, 2}) EXPECT_TRUE(host[r].set_idle(true));
  EXPECT_EQ(host[2].share(), 100u);
  host.expect_invariants();
}

TEST(Budget, AnIdleRankKeepsWhatItNeedsToGoOn) {
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(64, HostBudget::bytes(2))), &std::free);
  auto& host = *new (memory.get()) HostBudget(1600, 2, 300);
  Budget idle(host, 0), busy(host, 1);
  ASSERT_TRUE(idle.set_idle(true));
  EXPECT_EQ(idle.share(), 300u);
  EXPECT_EQ(busy.share(), 1300u);
}

TEST(Budget, WhatIsRightfulIsMissingAndWithinTheShare) {
  TestHost host(1000, 2, 1);
  EXPECT_EQ(host[0].rightful(400), 0u) << "there is as much";
  ASSERT_EQ(charge(host[1], BudgetUse::owned, 900), Got::done);
  ASSERT_EQ(charge(host[0], BudgetUse::owned, 100), Got::done);
  EXPECT_EQ(host[0].rightful(30), 30u);
  EXPECT_EQ(host[0].rightful(700), 400u);
  EXPECT_EQ(host[1].rightful(30), 0u) << "it holds more than its share";
}

TEST(Budget, APartIsWhatThereIs) {
  TestHost host(10, 1, 4);
  EXPECT_EQ(host[0].charge_part(BudgetUse::owned, 7), 7u);
  EXPECT_EQ(host[0].charge_part(BudgetUse::owned, 7), 3u);
  EXPECT_EQ(host[0].charge_part(BudgetUse::owned, 7), 0u);
  EXPECT_EQ(host[0].used(BudgetUse::owned), 10u);
  host.expect_invariants();
}

// Two threads a rank, three ranks: what is used never exceeds the total, and at the end every block is
// accounted for.
TEST(Budget, ManyThreadsNeverExceedTheTotal) {
  constexpr std::uint64_t kTotal = 64;
  TestHost host(kTotal, 3, 4);
  std::atomic<std::uint64_t> in_use{0}, most{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      Budget& budget = host[t / 2];
      std::uint64_t mine = 0;
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t n = 1 + random.below(8);
        const bool done = random.one_in(2) && budget.charge(BudgetUse::cached, n) != Charge::none;
        if (t % 2 == 0) (void)budget.ask(done ? 0 : n, 0);  // one thread of each rank asks
        if (done) {
          const std::uint64_t now = in_use.fetch_add(n) + n;
          std::uint64_t before = most.load();
          while (before < now && !most.compare_exchange_weak(before, now)) {
          }
          mine += n;
        } else {
          const std::uint64_t give = std::min(mine, std::max(n, budget.to_evict(0)));
          in_use.fetch_sub(give);
          mine -= give;
          (void)budget.discharge(BudgetUse::cached, give);
        }
      }
      in_use.fetch_sub(mine);
      (void)budget.discharge(BudgetUse::cached, mine);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(most, kTotal);
  EXPECT_GT(most, kTotal / 2) << "hardly anything was tried";
  for (auto& b : host.budgets) EXPECT_EQ(b->ask(0, 0), Ask::none);
  host.expect_invariants();
  EXPECT_EQ(host.host->asking.load(), 0u);
}

TEST(Budget, TheDefaultLeavesRanksTheirSlack) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(default_budget(1024 * kMiB, std::nullopt, 4), 768 * kMiB);
  EXPECT_EQ(default_budget(1024 * kMiB, 2048 * kMiB, 4), 768 * kMiB);
  EXPECT_EQ(default_budget(1024 * kMiB, 512 * kMiB, 4), 384 * kMiB);
  // Three quarters would leave 8 MiB a rank
  EXPECT_EQ(default_budget(1024 * kMiB, 64 * kMiB, 2), 40 * kMiB);
  EXPECT_EQ(default_budget(1024 * kMiB, 40 * kMiB, 4), 0u);
}

TEST(Budget, SizeOfAHost) {
  EXPECT_EQ(budget_blocks(1u << 20, 2, 4096).value(), 256u);
  EXPECT_GT(budget_blocks(0, 1, 4096).value(), 256u);
  const auto small = budget_blocks(1u << 20, 4, 300 << 10);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Errc::invalid_argument);
  for (const char* word : {"1M", "4 ranks", "300K", "1200K", "--dram"})
    EXPECT_NE(small.error().message.find(word), std::string::npos) << word << ": " << small.error().message;
}

}  // namespace
}  // namespace kasane::mem
