// SPDX-License-Identifier: Apache-2.0
// Every byte has one page, every page its bytes, with all page sizes; a byte outside the space has none.
#include "mem/pages.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace kasane::mem {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(Pages, OfSeveralSegmentsAreNumberedInARow) {
  const std::array segments{Pages::Segment{0, kPageBytes}, Pages::Segment{2 * kMiB, 4096},
                            Pages::Segment{4 * kMiB, 2 * kMiB}};
  const Pages pages = Pages::create(8 * kMiB, segments).value();
  EXPECT_EQ(pages.count(), 32u + 512u + 2u);
  EXPECT_EQ(pages.page_of(0), PageId{0});
  EXPECT_EQ(pages.page_of(2 * kMiB - 1), PageId{31});
  EXPECT_EQ(pages.page_of(2 * kMiB), PageId{32});
  EXPECT_EQ(pages.page_of(2 * kMiB + 4096), PageId{33});
  EXPECT_EQ(pages.page_of(4 * kMiB - 1), PageId{543});
  EXPECT_EQ(pages.page_of(4 * kMiB), PageId{544});
  EXPECT_EQ(pages.page_of(8 * kMiB - 1), PageId{545});
  EXPECT_EQ(pages.bytes_of(PageId{31}), kPageBytes);
  EXPECT_EQ(pages.bytes_of(PageId{32}), 4096u);
  EXPECT_EQ(pages.bytes_of(PageId{545}), 2 * kMiB);
  EXPECT_EQ(pages.page_bytes_at(3 * kMiB + 5), 4096u);
  EXPECT_EQ(pages.offset_of(PageId{545}), 6 * kMiB);
}

class EveryPageSize : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, EveryPageSize,
                         testing::Values(4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576,
                                         2097152));

// A segment of this size between two of 64 KiB: at each of its pages, first and last byte, blocks,
// neighbours.
TEST_P(EveryPageSize, ItsPagesHaveTheirBytesAndNoOthers) {
  const std::uint64_t size = GetParam(), begin = 4 * kMiB, end = 12 * kMiB;
  const std::array segments{Pages::Segment{0, kPageBytes}, Pages::Segment{begin, size},
                            Pages::Segment{end, kPageBytes}};
  const Pages pages = Pages::create(16 * kMiB, segments).value();
  ASSERT_EQ(pages.count(), begin / kPageBytes + (end - begin) / size + 4 * kMiB / kPageBytes);
  std::uint64_t next = 0;
  for (std::uint64_t p = 0; p < pages.count(); ++p) {
    const PageId page{p};
    ASSERT_EQ(pages.offset_of(page), next);
    const std::uint64_t bytes = next >= begin && next < end ? size : kPageBytes;
    ASSERT_EQ(pages.bytes_of(page), bytes);
    ASSERT_EQ(pages.end_of(page), next + bytes);
    ASSERT_EQ(pages.page_of(next), page);
    ASSERT_EQ(pages.page_of(next + bytes - 1), page);
    ASSERT_EQ(pages.page_of(next + bytes / 2), page);
    const BlockRange blocks = pages.blocks_of(page);
    ASSERT_EQ(raw(blocks.first), next / kBlockBytes);
    ASSERT_EQ(blocks.count, bytes / kBlockBytes);
    ASSERT_EQ(pages.page_of(BlockId{raw(blocks.first) + blocks.count - 1}), page);
    next += bytes;
  }
  EXPECT_EQ(next, 16 * kMiB);
}

TEST_P(EveryPageSize, ARangeHasThePagesThatItTouches) {
  const std::uint64_t size = GetParam();
  const Pages pages = Pages::uniform(16 * kMiB, size).value();
  const auto numbers = [&](std::uint64_t offset, std::uint64_t bytes) {
    std::vector<std::uint64_t> found;
    for (const PageId page : pages.in(offset, bytes)) found.push_back(raw(page));
    return found;
  };
  using Numbers = std::vector<std::uint64_t>;
  EXPECT_EQ(numbers(size, 0), Numbers{});
  EXPECT_EQ(numbers(size, 1), Numbers{1});
  EXPECT_EQ(numbers(size, size), Numbers{1});
  EXPECT_EQ(numbers(size - 1, 2), (Numbers{0, 1}));
  EXPECT_EQ(numbers(size + 1, 2 * size), (Numbers{1, 2, 3}));
  EXPECT_EQ(pages.in(0, 16 * kMiB).size(), pages.count());
  EXPECT_TRUE(pages.whole(size, 2 * size));
  EXPECT_TRUE(pages.whole(16 * kMiB - size, size));
  EXPECT_TRUE(pages.whole(size + 1, 0));
  EXPECT_FALSE(pages.whole(size + 1, size - 1));
  EXPECT_FALSE(pages.whole(size, size - 1));
  EXPECT_FALSE(pages.whole(size, size + 1));
}

TEST_P(EveryPageSize, BeyondTheSpaceIsNoPage) {
  const Pages pages = Pages::uniform(16 * kMiB, GetParam()).value();
  EXPECT_TRUE(pages.contains(pages.page_of(16 * kMiB - 1)));
  for (const std::uint64_t wild :
       {16 * kMiB, 16 * kMiB + 1, std::uint64_t{1} << 40, ~std::uint64_t{0} - 4096, ~std::uint64_t{0}}) {
    EXPECT_FALSE(pages.contains(pages.page_of(wild))) << wild;
  }
}

TEST(Pages, SegmentsThatCannotBeAreRefused) {
  const auto refused = [](std::vector<Pages::Segment> segments, std::uint64_t bytes = 8 * kMiB) {
    const auto made = Pages::create(bytes, segments);
    return !made && made.error().code == Errc::invalid_argument;
  };
  EXPECT_FALSE(refused({{0, 4096}, {4096, 8192 / 2}}));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({{4096, 4096}})) << "the space begins at 0";
  EXPECT_TRUE(refused({{0, 2048}}));
  EXPECT_TRUE(refused({{0, 3 * 4096}}));
  EXPECT_TRUE(refused({{0, 4 * kMiB}}));
  EXPECT_TRUE(refused({{0, kPageBytes}, {4096, 4096}})) << "ends in the middle of a page";
  EXPECT_TRUE(refused({{0, 4096}, {4096, kPageBytes}})) << "begins in the middle of a page";
  EXPECT_TRUE(refused({{0, 4096}, {0, 4096}})) << "empty";
  EXPECT_TRUE(refused({{0, 4096}, {16 * kMiB, 4096}})) << "beyond the space";
  EXPECT_TRUE(refused({{0, 4096}}, 4096 + 1));
  EXPECT_TRUE(refused({{0, 4096}}, 0));
  EXPECT_TRUE(refused(std::vector<Pages::Segment>(Pages::kMostSegments + 1, Pages::Segment{0, 4096})));
}

}  // namespace
}  // namespace kasane::mem
