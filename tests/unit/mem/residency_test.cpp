// SPDX-License-Identifier: Apache-2.0
// The frames that count against the budget when blocks come to M: those that the kernel makes for them, each
// once.
#include "mem/residency.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "fixtures.h"

namespace kasane::mem {
namespace {

class ResidencyTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTotal = 4096, kLarge = 16;  // blocks; kLarge: of a large frame
  ResidencyTest() { make(kBlockBytes); }
  void make(std::uint64_t frame_bytes) {
    auto made = Residency::create(space_, *pages_, host_, 0,
                                  {.range = {0, space_.bytes()}, .frame_bytes = frame_bytes});
    if (made) residency_ = std::move(*made);
  }
  void SetUp() override { ASSERT_NE(residency_, nullptr); }
  [[nodiscard]] std::uint64_t owned() const {
    return residency_ == nullptr ? 0 : residency_->count({BlockId{0}, space_.blocks()});
  }

  const std::unique_ptr<void, void (*)(void*)> memory_{std::aligned_alloc(64, HostBudget::bytes(1)),
                                                       &std::free};
  HostBudget& host_ = *new (memory_.get()) HostBudget(kTotal, 1);
  const Space space_ = make_space(16 * kPageBytes);
  const Result<Pages> pages_ = Pages::uniform(space_.bytes());
  std::unique_ptr<Residency> residency_;
};

TEST_F(ResidencyTest, EachBlockCountsOnceWhereFramesAreSmall) {
  residency_->fill({BlockId{3}, 2});
  residency_->fill_staged({BlockId{4}, 2});
  EXPECT_EQ(owned(), 3u);
  EXPECT_FALSE(residency_->large_frames());
  const std::uint64_t used = residency_->used();
  residency_->empty({BlockId{0}, 16});
  EXPECT_EQ(owned(), 0u);
  EXPECT_EQ(residency_->used(), used - 3);
}

// A touch makes a large frame; a copy makes the frames of its own blocks only.
TEST_F(ResidencyTest, StagedBlocksCountAsThemselvesWhereFramesAreLarge) {
  make(kLarge * kBlockBytes);
  EXPECT_TRUE(residency_->large_frames());
  residency_->fill_staged({BlockId{2 * kLarge + 5}, 1});
  EXPECT_EQ(owned(), 1u);
  residency_->fill_staged({BlockId{2 * kLarge + 4}, 3});
  EXPECT_EQ(owned(), 3u);
  residency_->fill({BlockId{4 * kLarge + 5}, 1});
  EXPECT_EQ(owned(), 3 + kLarge);
  residency_->fill_staged({BlockId{4 * kLarge}, 2});  // counted already
  EXPECT_EQ(owned(), 3 + kLarge);
  residency_->fill({BlockId{2 * kLarge + 9}, 1});  // counts more than the kernel makes there, never less
  EXPECT_EQ(owned(), 2 * kLarge);
  const std::uint64_t used = residency_->used();
  residency_->empty({BlockId{0}, 16 * kLarge});
  EXPECT_EQ(owned(), 0u);
  EXPECT_EQ(residency_->used(), used - 2 * kLarge);
}

}  // namespace
}  // namespace kasane::mem
