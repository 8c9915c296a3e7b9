// SPDX-License-Identifier: Apache-2.0
// mem/arming.h: every armed page is retired once before it is examined; pages that are examined late are
// retired in batches.
#include "mem/arming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/random.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kPages = 10'000;

struct Retired {
  std::vector<std::vector<PageId>> calls;
  Arming arming{std::move(PageSet::create(kPages).value()), [this](std::span<const PageId> pages) {
                  EXPECT_TRUE(std::is_sorted(pages.begin(), pages.end()));
                  if (!pages.empty()) calls.emplace_back(pages.begin(), pages.end());
                }};
};

TEST(Arming, RetiresPagesThatAreExaminedSoonAtTheEndOfATurn) {
  Retired retired;
  for (const std::uint64_t page : {7, 3, 5, 3}) retired.arming.arm(PageId{page}, 10);
  EXPECT_TRUE(retired.calls.empty());
  retired.arming.end_turn();
  ASSERT_EQ(retired.calls.size(), 1);
  EXPECT_EQ(retired.calls[0], (std::vector{PageId{3}, PageId{5}, PageId{7}}));
}

TEST(Arming, WaitsForAQuarterOfWhatIsExaminedBefore) {
  Retired retired;
  std::uint64_t armed = 0;
  const auto arm_and_end_turn = [&] {
    retired.arming.arm(PageId{kPages - 1 - armed++}, 4000);
    retired.arming.end_turn();
  };
  while (armed != 999) arm_and_end_turn();
  EXPECT_TRUE(retired.calls.empty());
  while (armed != 1999) arm_and_end_turn();  // the first thousand go in eight turns
  ASSERT_EQ(retired.calls.size(), 8);
  std::vector<PageId> all;
  for (const auto& call : retired.calls) {
    EXPECT_EQ(call.size(), 125);
    all.insert(all.end(), call.begin(), call.end());
  }
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.front(), PageId{kPages - 1000});
  EXPECT_EQ(all.back(), PageId{kPages - 1});
}

TEST(Arming, RetiresAllThatWaitBeforeOneIsExamined) {
  Retired retired;
  retired.arming.arm(PageId{1}, 4000);
  retired.arming.arm(PageId{2}, 4000);
  retired.arming.before_look(PageId{3});
  EXPECT_TRUE(retired.calls.empty());
  retired.arming.before_look(PageId{2});
  ASSERT_EQ(retired.calls.size(), 1);
  EXPECT_EQ(retired.calls[0], (std::vector{PageId{1}, PageId{2}}));
  retired.arming.before_look(PageId{2});
  EXPECT_EQ(retired.calls.size(), 1);
}

// In any order: when a page is examined it has been retired as often as it was armed, but for arms while it
// waited.
TEST(Arming, HasRetiredEveryPageThatIsExamined) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    std::set<PageId> waits;
    Arming arming(std::move(PageSet::create(kPages).value()), [&](std::span<const PageId> pages) {
      for (const PageId page : pages) EXPECT_EQ(waits.erase(page), 1) << "retired, but not armed";
    });
    for (int step = 0; step != 20'000 && !HasFailure(); ++step) {
      const PageId page{random.below(random.one_in(3) ? kPages : 64)};
      if (random.one_in(50)) {
        arming.end_turn();
      } else if (random.one_in(8)) {
        arming.before_look(page);
        EXPECT_FALSE(waits.contains(page)) << "page " << raw(page) << ", seed " << seed;
      } else {
        waits.insert(page);
        arming.arm(page, static_cast<std::uint32_t>(random.below(3000)));
      }
    }
  }
}

}  // namespace
}  // namespace kasane::mem
