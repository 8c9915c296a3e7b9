// SPDX-License-Identifier: Apache-2.0
// A crawl is seen: the same pages in DRAM again and again. A sweep from the disk is none.
#include "mem/turnover.h"

#include <gtest/gtest.h>

namespace kasane::mem {
namespace {

constexpr std::uint64_t kBegin = 1'000'000'000;

Turnover made() {
  auto none = PageSet::create(10'000);
  EXPECT_TRUE(none);
  return Turnover(std::move(*none));
}

void come(Turnover& turnover, std::uint64_t pages, std::uint64_t times) {
  for (std::uint64_t n = 0; n < pages * times; ++n) turnover.note(PageId{n % pages * 7});
}

TEST(Turnover, TellsOfPagesThatComeAgainAndAgain) {
  Turnover turnover = made();
  EXPECT_FALSE(turnover.look(kBegin));
  come(turnover, 72, Turnover::kOften);
  EXPECT_FALSE(turnover.look(kBegin + Turnover::kSpanNs - 1));
  const auto crawl = turnover.look(kBegin + Turnover::kSpanNs + 1);
  ASSERT_TRUE(crawl);
  EXPECT_EQ(crawl->pages, 72u);
  EXPECT_EQ(crawl->came, 72 * Turnover::kOften);
  EXPECT_EQ(crawl->ns, Turnover::kSpanNs + 1);
}

TEST(Turnover, IsSilentAboutSweepsAndWhenNothingComes) {
  Turnover turnover = made();
  EXPECT_FALSE(turnover.look(kBegin));
  come(turnover, 1000, Turnover::kOften - 1);
  EXPECT_FALSE(turnover.look(kBegin + Turnover::kSpanNs));
  EXPECT_FALSE(turnover.look(kBegin + 2 * Turnover::kSpanNs));
}

TEST(Turnover, CountsEachSpanByItself) {
  Turnover turnover = made();
  EXPECT_FALSE(turnover.look(kBegin));
  come(turnover, 10, Turnover::kOften - 1);
  EXPECT_FALSE(turnover.look(kBegin + Turnover::kSpanNs));
  come(turnover, 10, Turnover::kOften - 1);
  EXPECT_FALSE(turnover.look(kBegin + 2 * Turnover::kSpanNs));
  come(turnover, 3, Turnover::kOften);
  const auto crawl = turnover.look(kBegin + 3 * Turnover::kSpanNs);
  ASSERT_TRUE(crawl);
  EXPECT_EQ(crawl->pages, 3u);
}

}  // namespace
}  // namespace kasane::mem
