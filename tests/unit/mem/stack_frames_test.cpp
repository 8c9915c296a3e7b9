// SPDX-License-Identifier: Apache-2.0
#include "mem/stack_frames.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "fixtures.h"
#include "mem/residency.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024, kOne = StackFrames::kPresumed;

/// Stacks of 64 KiB in a space: the runtime's alias touches them, as another process would.
class StackFramesTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kStacks = 600, kOffset = 3 * kPageBytes;

  std::unique_ptr<StackFrames> make(std::uint64_t bytes = kBytes) const {
    auto made = StackFrames::create(space_, {kOffset, bytes, kStacks}, 20'000'000);
    if (!made) std::abort();
    return std::move(*made);
  }
  void touch(std::uint64_t stack, std::uint64_t blocks) const {
    for (std::uint64_t b = 1; b <= blocks; ++b)
      *static_cast<volatile std::byte*>(space_.a(kOffset + (stack + 1) * kBytes - b * kBlockBytes)) =
          std::byte{1};
  }

  std::unique_ptr<Residency> make_residency(std::uint64_t low, std::unique_ptr<StackFrames> stacks,
                                            std::uint64_t budget = 1 << 20) const {
    auto made = Residency::create(space_, pages_, *new (memory_.get()) HostBudget(budget, 1), 0,
                                  {.range = {0, space_.bytes()}, .low = low, .stacks = std::move(stacks)});
    if (!made) std::abort();
    return std::move(*made);
  }

  const Space space_ = make_space(kOffset + kStacks * kBytes);
  const Pages pages_ = *Pages::uniform(space_.bytes());
  const std::unique_ptr<void, void (*)(void*)> memory_{std::aligned_alloc(64, HostBudget::bytes(1)),
                                                       &std::free};
};

TEST_F(StackFramesTest, AStackIsPresumedOnceUntilItIsMeasured) {
  const auto frames = make();
  EXPECT_EQ(frames->presumed_of_one(), kOne);
  EXPECT_EQ(frames->note(StackId{7}), kOne);
  EXPECT_EQ(frames->note(StackId{7}), 0u);
  EXPECT_EQ(frames->note(StackId{8}), kOne);
  EXPECT_EQ(frames->known(), 2u);
  EXPECT_EQ(frames->presumed(), 2 * kOne);
  touch(7, 3);
  touch(8, 16);
  touch(9, 5);  // without a note
  const auto first = frames->measure();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->charged, 2 * kOne);
  EXPECT_EQ(first->now, 3u + 16u);
  EXPECT_EQ(frames->presumed(), 0u);
  EXPECT_EQ(frames->measured(), 3u + 16u);
  touch(7, 6);  // it became deeper
  const auto second = frames->measure();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->charged, 3u + 16u);
  EXPECT_EQ(second->now, 6u + 16u);
}

TEST_F(StackFramesTest, SmallStacksArePresumedWhole) {
  constexpr std::uint64_t kSmall = 4 * kBlockBytes;
  const auto frames = make(kSmall);
  EXPECT_EQ(frames->note(StackId{0}), kSmall / kBlockBytes);
}

// More stacks than one call of mincore covers, with some between that are not known, and the last one.
TEST_F(StackFramesTest, AllThatAreKnownAreLookedAt) {
  const auto frames = make();
  std::uint64_t touched = 0;
  for (std::uint64_t s = 0; s < kStacks; ++s) {
    const std::uint64_t blocks = s % 5;
    touch(s, blocks);
    if (s % 100 == 3) continue;
    frames->note(StackId{static_cast<std::uint32_t>(s)});
    touched += blocks;
  }
  EXPECT_EQ(frames->measure()->now, touched);
}

TEST_F(StackFramesTest, WhatThisProcessHasTouchedIsFoundToo) {
  auto engine = make_engine("mprotect", space_);
  ASSERT_TRUE(engine->leave_open({block_of(kOffset), kStacks * kBytes / kBlockBytes}).has_value());
  const auto frames = make();
  frames->note(StackId{0});
  frames->note(StackId{1});
  for (std::uint64_t b = 1; b <= 4; ++b)
    *static_cast<volatile std::byte*>(space_.v(kOffset + kBytes - b * kBlockBytes)) = std::byte{1};
  touch(1, 2);
  EXPECT_EQ(frames->measure()->now, 6u);
}

TEST_F(StackFramesTest, ItIsDueWhenManyArePresumedOrLongAgo) {
  const auto frames = make();
  EXPECT_EQ(frames->ns_until_due(), 0u) << "never measured";
  std::uint32_t s = 0;
  for (; frames->presumed() + kOne < StackFrames::kManyPresumed; ++s) frames->note(StackId{s});
  EXPECT_FALSE(frames->many_presumed());
  frames->note(StackId{s++});
  EXPECT_TRUE(frames->many_presumed());
  for (; s < 320; ++s) frames->note(StackId{s});
  for (std::uint64_t k = 0; k < s; ++k) touch(k, 16);
  ASSERT_TRUE(frames->measure().has_value());
  EXPECT_FALSE(frames->many_presumed());
  for (; frames->presumed() + kOne < frames->measured() / 8; ++s) frames->note(StackId{s});
  EXPECT_FALSE(frames->many_presumed()) << "an eighth of what there is";
  frames->note(StackId{s});
  EXPECT_TRUE(frames->many_presumed());
}

// Else the time that a stack costs would grow with their number.
TEST_F(StackFramesTest, ForNewStacksOldOnesAreNotLookedAt) {
  const auto frames = make();
  for (std::uint32_t s = 0; s < 10; ++s) frames->note(StackId{s});
  for (std::uint64_t s = 0; s < 12; ++s) touch(s, 2);
  const auto first = frames->measure_new();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->charged, 10 * kOne);
  EXPECT_EQ(first->now, 20u);
  for (std::uint64_t s = 0; s < 10; ++s) touch(s, 5);  // they became deeper
  frames->note(StackId{10});
  frames->note(StackId{11});
  frames->forget(StackId{11});
  const auto second = frames->measure_new();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->charged, 2 * kOne);
  EXPECT_EQ(second->now, 2u);
  EXPECT_EQ(frames->measured(), 22u);
  EXPECT_EQ(frames->presumed(), 0u);
  const auto all = frames->measure();
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->charged, 22u);
  EXPECT_EQ(all->now, 10u * 5 + 2u);
  EXPECT_EQ(frames->measure_new()->now, 0u) << "none is new";
}

TEST_F(StackFramesTest, AThreadThatTakesAStackLooksAtNewOnesOnly) {
  const auto residency = make_residency(0, make(), 100 * kOne);
  std::uint32_t s = 0;
  for (; s < 100; ++s) {
    touch(s, 2);
    residency->use_stack(StackId{s});
  }
  const std::uint64_t before = residency->used_by_stacks();
  EXPECT_NE(before, 0u) << "what is presumed would not fit";
  for (std::uint64_t k = 0; k < 100; ++k) touch(k, 16);
  for (; s < 200; ++s) residency->use_stack(StackId{s});
  EXPECT_LE(residency->used_by_stacks(), before + 100 * kOne / 8);
  residency->measure_stacks();
  EXPECT_EQ(residency->used_by_stacks(), 100u * 16);
}

TEST_F(StackFramesTest, WhereThereIsRoomNoThreadLooks) {
  const auto residency = make_residency(0, make());
  for (std::uint32_t s = 0; s < kStacks; ++s) residency->use_stack(StackId{s});
  EXPECT_EQ(residency->used_by_stacks(), 0u);
  residency->measure_stacks();
  EXPECT_EQ(residency->used_by_stacks(), 0u) << "no thread has touched them";
}

TEST_F(StackFramesTest, WhoMakesRoomIsRungForTheFirstStackSinceItMaySleepForEver) {
  const auto made = make_residency(1, make());
  const std::uint32_t rings = made->rings();
  made->use_stack(StackId{0});
  EXPECT_NE(made->rings(), rings);
  const std::uint32_t again = made->rings();
  made->use_stack(StackId{1});
  EXPECT_EQ(made->rings(), again) << "it wakes by itself";
}

// A stack that is noted while another thread measures stays charged; none is charged twice in the end.
TEST_F(StackFramesTest, ThreadsThatUseStacksTogetherChargeWhatThereIs) {
  const auto without = make_residency(0, nullptr);
  EXPECT_FALSE(without->stacks_due()) << "they are not counted";
  EXPECT_EQ(without->used_by_stacks(), 0u);
  const auto made = make_residency(0, make());
  Residency& residency = *made;
  EXPECT_EQ(residency.room_of_a_stack(), kOne);
  EXPECT_FALSE(residency.stacks_due()) << "there is none";
  const std::uint64_t before = residency.used();

  std::atomic<std::uint32_t> next{0};
  std::vector<std::thread> users;
  for (int t = 0; t < 3; ++t) {
    users.emplace_back([&] {
      for (std::uint32_t s; (s = next.fetch_add(1)) < kStacks;) {
        touch(s, s % 7);
        residency.use_stack(StackId{s});
        residency.use_stack(StackId{s / 2});
        if (s % 50 == 0) residency.measure_stacks();
      }
    });
  }
  for (auto& user : users) user.join();
  residency.measure_stacks();
  std::uint64_t touched = 0;
  for (std::uint64_t s = 0; s < kStacks; ++s) touched += s % 7;
  EXPECT_EQ(residency.stacks(), kStacks);
  EXPECT_EQ(residency.used_by_stacks(), touched);
  EXPECT_EQ(residency.used(), before + touched);
}

}  // namespace
}  // namespace kasane::mem
