// SPDX-License-Identifier: Apache-2.0
// The budget under every interleaving of small programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "mem/budget.h"
#include "support/interleave.h"

namespace kasane::mem {
namespace {

using test::explore;
using test::InterleavedAtomics;
using test::Reduction;
using test::Schedule;

using Host = BasicHostBudget<InterleavedAtomics>;
using TestRank = BasicBudget<InterleavedAtomics>;

struct TwoRanks {
  explicit TwoRanks(std::uint64_t blocks)
      : host(new(memory.data()) Host(blocks, 2)), a(*host, 0, 1), b(*host, 1, 1) {}
  alignas(64) std::array<std::byte, Host::bytes(2)> memory{};
  Host* host;
  TestRank a, b;

  [[nodiscard]] std::uint64_t used() const { return a.used(BudgetUse::owned) + b.used(BudgetUse::owned); }
  /// Every block is counted once.
  [[nodiscard]] bool adds_up() {
    return a.used(BudgetUse::owned) + a.credit() == a.held() &&
           b.used(BudgetUse::owned) + b.credit() == b.held() &&
           a.held() + b.held() + host->free.load(std::memory_order_relaxed) == host->total;
  }
};

// Three threads of two ranks want the last two blocks: two threads get one each.
TEST(BudgetInterleave, NoBlockIsChargedTwice) {
  const std::uint64_t runs = explore(Reduction::commuting, [](Schedule& s) {
    TwoRanks t(2);
    std::array<Charge, 3> answers{};
    s.thread([&] { answers[0] = t.a.charge(BudgetUse::owned, 1); });
    s.thread([&] { answers[1] = t.a.charge(BudgetUse::owned, 1); });
    s.thread([&] { answers[2] = t.b.charge(BudgetUse::owned, 1); });
    s.run();
    EXPECT_LE(t.used(), 2u);
    EXPECT_EQ(t.used(), answers.size() - static_cast<std::uint64_t>(
                                             std::count(answers.begin(), answers.end(), Charge::none)));
    EXPECT_TRUE(t.adds_up());
  });
  EXPECT_GT(runs, 100u);
}

// One rank has everything and gives it up, more than it may keep, while the other rank asks: either the asker
// has it, or the giver was told to ring.
TEST(BudgetInterleave, NoAskIsMissed) {
  explore(Reduction::commuting, [](Schedule& s) {
    TwoRanks t(4);
    if (t.a.charge(BudgetUse::owned, 4) == Charge::none) FAIL();
    bool had = false, ring = false;
    Ask answer{};
    s.thread([&] {
      had = t.b.charge(BudgetUse::owned, 1) != Charge::none;
      if (!had) answer = t.b.ask(1, 0);
    });
    s.thread([&] { ring = t.a.discharge(BudgetUse::owned, 4); });
    s.run();
    if (!had) {
      ASSERT_NE(answer, Ask::none);
      // Either a block was given after the ask, and the giver rings; or the asker found it; or its own ring
      // makes the giver look.
      EXPECT_TRUE(answer == Ask::free || ring || t.a.trim()) << "an ask that no rank sees";
      EXPECT_NE(t.b.charge(BudgetUse::owned, 1), Charge::none);
    }
    EXPECT_TRUE(t.adds_up());
  });
}

}  // namespace
}  // namespace kasane::mem
