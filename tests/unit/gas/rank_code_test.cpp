// SPDX-License-Identifier: Apache-2.0
#include "gas/rank_code.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace kasane::gas {
namespace {

std::set<std::uint32_t> named(const RankCode& code, std::uint64_t word) {
  std::set<std::uint32_t> ranks;
  code.for_each(word, [&](Rank r) { EXPECT_TRUE(ranks.insert(raw(r)).second) << raw(r); });
  return ranks;
}

struct Sizes {
  std::uint32_t bits, ranks;
};
class Codes : public testing::TestWithParam<Sizes> {
 protected:
  std::uint32_t ranks = GetParam().ranks;
  RankCode code{GetParam().bits, ranks};
};

// A word names all that were added, in its own bits, and for_each and names say the same.
TEST_P(Codes, NamesAllThatWereAdded) {
  std::mt19937 random(ranks);
  for (int round = 0; round < 200; ++round) {
    std::uint64_t word = 0;
    std::vector<Rank> added;
    for (std::uint32_t i = random() % 6; i-- > 0;) {
      added.push_back(Rank{static_cast<std::uint32_t>(random() % ranks)});
      word |= code.of(added.back());
    }
    EXPECT_EQ(GetParam().bits < 64 ? word >> GetParam().bits : 0u, 0u);
    // what lies above the bits, as a stamp does, does not matter
    const std::uint64_t above = GetParam().bits < 64 ? ~std::uint64_t{0} << GetParam().bits : 0;
    const std::set<std::uint32_t> all = named(code, word | above);
    for (const Rank r : added) {
      EXPECT_TRUE(all.contains(raw(r)));
      EXPECT_TRUE(code.names(word, r));
    }
    for (const std::uint32_t r : all) EXPECT_TRUE(r < ranks && code.names(word, Rank{r}));
    EXPECT_TRUE(!code.exact() || all.size() <= added.size());
    // who leaves takes out nobody else
    for (const Rank leaver : added) {
      const std::uint64_t left = code.without(word, leaver);
      for (const Rank r : added) EXPECT_TRUE(r == leaver || code.names(left, r));
    }
  }
  EXPECT_TRUE(named(code, 0).empty());
}

TEST_P(Codes, OneRankIsNamedAlone) {
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint64_t word = code.of(Rank{r});
    const std::set<std::uint32_t> all = named(code, word);
    EXPECT_TRUE(all.contains(r));
    if (code.shared()) {
      EXPECT_EQ(code.without(word, Rank{r}), word);
    } else {
      EXPECT_EQ(all.size(), 1u);
      EXPECT_EQ(code.without(word, Rank{r}), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Codes,
                         testing::Values(Sizes{64, 1}, Sizes{64, 64}, Sizes{64, 65}, Sizes{64, 256},
                                         Sizes{64, 1000}, Sizes{64, 1024}, Sizes{64, 1025}, Sizes{64, 50000},
                                         Sizes{48, 48}, Sizes{48, 49}, Sizes{48, 576}, Sizes{48, 577},
                                         Sizes{48, 1024}, Sizes{4, 3}, Sizes{4, 5}, Sizes{2, 3}),
                         [](const auto& sizes) {
                           return std::to_string(sizes.param.ranks) + "RanksIn" +
                                  std::to_string(sizes.param.bits);
                         });

// What a job of many ranks counts on: the neighbours of a rank are few.
TEST(RankCode, NamesNeighboursAlone) {
  for (const std::uint32_t ranks : {256u, 1024u}) {
    const RankCode readers(64, ranks);
    std::uint32_t others = 0;
    for (std::uint32_t r = 1; r + 1 < ranks; ++r)
      others += named(readers, readers.of(Rank{r - 1}) | readers.of(Rank{r + 1})).size() > 2;
    EXPECT_LT(others, ranks / 10);
    EXPECT_FALSE(readers.shared());
  }
}

}  // namespace
}  // namespace kasane::gas
