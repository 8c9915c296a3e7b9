// SPDX-License-Identifier: Apache-2.0
// Whom an idle rank tells, and whom a bit names.
#include "sched/idle_bits.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace kasane::sched {
namespace {

TEST(IdleBits, EachNamesOneRank) {
  for (std::uint32_t ranks = 1; ranks <= 1100; ranks = ranks < 200 ? ranks + 1 : ranks * 3 / 2) {
    const IdleBits bits(ranks);
    ASSERT_LE(bits.count(), ult::kIdleRankBits);
    std::set<std::pair<Rank, std::uint32_t>> taken;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      std::set<Rank> told;
      for (std::uint32_t b = 0; b < bits.count(); ++b) {
        const Rank at = bits.at(Rank{r}, b);
        EXPECT_NE(at, Rank{r}) << ranks;
        EXPECT_EQ(bits.who(at, b), Rank{r}) << ranks;
        EXPECT_TRUE(taken.emplace(at, b).second) << ranks;
        told.insert(at);
      }
      EXPECT_EQ(told.size(), bits.count()) << ranks;
    }
    if (ranks <= 64) {
      EXPECT_EQ(bits.count(), ranks - 1);
    }
  }
  EXPECT_EQ(IdleBits(65).count(), 7u);
  EXPECT_EQ(IdleBits(1024).count(), 10u);
}

}  // namespace
}  // namespace kasane::sched
