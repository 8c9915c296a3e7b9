// SPDX-License-Identifier: Apache-2.0
// Whatever the size of the space and the number of ranks: its parts do not meet, and each begins and ends at
// pages of its own size.
#include "runtime/rank/segments.h"

#include <gtest/gtest.h>

namespace kasane::runtime {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

TEST(Segments, DoNotMeetAndConsistOfWholePages) {
  for (const std::uint64_t space :
       {64 * kMiB, 64 * kMiB + 64 * kKiB, 100 * kMiB + 64 * kKiB, 3 * kGiB + 192 * kKiB, 1024 * kGiB}) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 7u, 64u}) {
      SCOPED_TRACE(std::to_string(space) + " bytes, " + std::to_string(ranks) + " ranks");
      const auto divided = Segments::divide(space, ranks, 64 * kKiB, 0, 8 * kMiB);
      ASSERT_TRUE(divided.has_value()) << divided.error().message;
      const Segments& s = *divided;
      const mem::Pages pages = s.pages(space).value();
      const auto& [usual, small, large] = s.heaps;
      EXPECT_EQ(usual.page_bytes, 64 * kKiB);
      EXPECT_EQ(small.page_bytes, 4 * kKiB);
      EXPECT_EQ(large.page_bytes, 2 * kMiB);
      const std::uint64_t stacks = ranks * s.stacks_per_rank * s.stack_bytes;
      EXPECT_LE(s.main_offset + s.main_bytes, s.all_stacks_offset()) << "the first thread's stack";
      EXPECT_GE(s.first_stack_bytes, s.stack_bytes);
      EXPECT_EQ(s.stack_offset(StackId{0}), s.all_stacks_offset());
      EXPECT_EQ(s.stack_end(StackId{0}), s.stack_offset(StackId{1}));
      EXPECT_EQ(raw(s.stack_at(s.all_stacks_offset())), 0u);
      EXPECT_EQ(raw(s.stack_at(s.stack_end(StackId{0}) - 1)), 0u);
      EXPECT_EQ(raw(s.stack_at(s.stack_end(StackId{0}))), 1u);
      EXPECT_TRUE(s.in_stacks(s.all_stacks_offset(), ranks));
      EXPECT_FALSE(s.in_stacks(s.all_stacks_offset() - 1, ranks));
      EXPECT_EQ(s.in_stacks(s.stacks_offset + ranks * s.stacks_per_rank * s.stack_bytes, ranks), false);
      EXPECT_LE(s.stacks_offset + stacks, small.offset);
      EXPECT_LE(small.offset + small.bytes, large.offset);
      EXPECT_LE(large.offset + large.bytes, usual.offset);
      EXPECT_LE(usual.offset + usual.bytes, space);
      EXPECT_TRUE(pages.whole(s.main_offset, s.main_bytes));
      EXPECT_TRUE(pages.whole(s.stacks_offset, stacks));
      EXPECT_TRUE(pages.whole(s.all_stacks_offset(), s.all_stacks_bytes(ranks)));
      for (const Segments::Heap& heap : s.heaps) {
        EXPECT_EQ(pages.page_bytes_at(heap.offset), heap.page_bytes);
        EXPECT_TRUE(pages.whole(heap.offset, heap.bytes / ranks)) << "a rank's share";
        EXPECT_EQ(heap.bytes % ranks, 0u);
        if (heap.bytes == 0) continue;  // more ranks than pages: such a heap gives nothing
        EXPECT_EQ(pages.page_bytes_at(heap.offset + heap.bytes - 1), heap.page_bytes);
      }
      EXPECT_GE(usual.bytes, space / 2 - ranks * 64 * kKiB - 2 * kMiB);
    }
  }
}

TEST(Segments, PoolsOfNumaMemoryLieBehindTheHeaps) {
  for (const std::uint64_t space : {64 * kMiB + 64 * kKiB, 100 * kMiB + 64 * kKiB, 3 * kGiB, 1024 * kGiB}) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 7u, 64u}) {
      for (const std::uint32_t count : {6u, 7u, 12u}) {
        SCOPED_TRACE(std::to_string(space) + " bytes, " + std::to_string(ranks) + " ranks, " +
                     std::to_string(count) + " pools");
        const Segments s = Segments::divide(space, ranks, 64 * kKiB, 0, 8 * kMiB, count).value();
        const Segments::Heap& usual = s.heaps[0];
        const Segments::Pools& pools = s.pools;
        if (pools.count == 0) {  // less than a page of each at each rank
          EXPECT_LT(space / 4 / count, (ranks + 1) * 64 * kKiB + 2 * kMiB);
          EXPECT_FALSE(pools.contains(usual.offset));
          continue;
        }
        EXPECT_EQ(pools.count, count);
        EXPECT_LE(usual.offset + usual.bytes, pools.offset);
        EXPECT_LE(pools.end(), space);
        EXPECT_EQ(s.heaps_end(), pools.end());
        EXPECT_EQ(pools.bytes % (ranks * 64 * kKiB), 0u) << "shares of whole pages";
        EXPECT_TRUE(s.pages(space).value().whole(pools.offset, pools.bytes / ranks));
        EXPECT_EQ(s.pages(space).value().page_bytes_at(pools.end() - 1), 64 * kKiB);
        EXPECT_TRUE(pools.contains(pools.offset) && pools.contains(pools.end() - 1));
        EXPECT_FALSE(pools.contains(pools.offset - 1) || pools.contains(pools.end()));
        EXPECT_GE(usual.bytes, space / 4 - ranks * 64 * kKiB - 4 * kMiB) << "and the usual heap has room";
      }
    }
  }
}

}  // namespace
}  // namespace kasane::runtime
