// SPDX-License-Identifier: Apache-2.0
// Which pages came, in which order, and whether just now.
#include "mem/arrivals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace kasane::mem {
namespace {

std::vector<std::uint64_t> taken(Arrivals& arrivals, std::uint64_t most = ~std::uint64_t{0}) {
  std::vector<std::uint64_t> pages;
  arrivals.take([&](PageId page) { pages.push_back(raw(page)); }, most);
  return pages;
}

void let_time_pass() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

TEST(Arrivals, ComeInTheOrderOfTheirTimes) {
  auto arrivals = Arrivals::create(1000);
  ASSERT_TRUE(arrivals);
  for (const std::uint64_t page : {700, 5, 320}) {  // the order of a sweep downwards, or of none
    arrivals->note(PageId{page});
    let_time_pass();
  }
  arrivals->note(PageId{700});  // came once more, so last
  EXPECT_EQ(taken(*arrivals), (std::vector<std::uint64_t>{5, 320, 700}));
  EXPECT_TRUE(taken(*arrivals).empty());
}

TEST(Arrivals, AreTakenAsManyAsAreWanted) {
  auto arrivals = Arrivals::create(1000);
  ASSERT_TRUE(arrivals);
  for (std::uint64_t page = 0; page < 10; ++page) arrivals->note(PageId{page});
  EXPECT_EQ(taken(*arrivals, 4).size(), 4u);
  EXPECT_EQ(taken(*arrivals).size(), 6u);
}

TEST(Arrivals, ArePastAfterAWhile) {
  auto arrivals = Arrivals::create(10);
  ASSERT_TRUE(arrivals);
  bool seen = false;
  // The thread may lose its core between the two
  for (int attempt = 0; attempt < 1000 && !seen; ++attempt) {
    arrivals->note(PageId{3});
    seen = arrivals->just_came(PageId{3});
    static_cast<void>(taken(*arrivals));
  }
  EXPECT_TRUE(seen);
  let_time_pass();
  EXPECT_FALSE(arrivals->just_came(PageId{3}));
  arrivals->note(PageId{3});  // a further part of it
  EXPECT_EQ(taken(*arrivals), std::vector<std::uint64_t>{3});
}

// The pager takes no more pages than it has room for in its lines, so a page may leave and come back while it
// is noted.
TEST(Arrivals, APageThatComesBackIsYoungAgain) {
  auto arrivals = Arrivals::create(10);
  ASSERT_TRUE(arrivals);
  bool seen = false;
  for (int attempt = 0; attempt < 100 && !seen; ++attempt) {  // as above
    arrivals->note(PageId{3});
    let_time_pass();
    arrivals->note(PageId{3});
    seen = arrivals->just_came(PageId{3});
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(taken(*arrivals), std::vector<std::uint64_t>{3});
}

}  // namespace
}  // namespace kasane::mem
