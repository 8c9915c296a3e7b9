// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_range.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "mem/space.h"

namespace kasane::mem {
namespace {

using Blocks = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  ///< first, count

template <class List>
Blocks blocks_of(const List& ranges) {
  Blocks all;
  for (const SpillRange& r : ranges) all.emplace_back(r.offset / kBlockBytes, r.bytes / kBlockBytes);
  return all;
}
SpillRange some(std::uint64_t first, std::uint64_t count = 1) {
  return {first * kBlockBytes, count * kBlockBytes};
}

TEST(SpillRanges, NeighboursAreJoinedAsTheyCome) {
  SpillRanges<4> ranges;
  EXPECT_TRUE(ranges.empty());
  for (const std::uint64_t b : {7, 8, 9, 20, 21, 40}) append(ranges, some(b));
  EXPECT_EQ(blocks_of(ranges.all()), (Blocks{{7, 3}, {20, 2}, {40, 1}}));
  append(ranges, some(41, 5));  // whole runs too
  append(ranges, some(3));      // the fourth
  EXPECT_EQ(blocks_of(ranges.all()), (Blocks{{7, 3}, {20, 2}, {40, 6}, {3, 1}}));
  append(ranges, some(4));  // full: a neighbour needs no further range
  EXPECT_EQ(blocks_of(ranges.all()).back(), (std::pair<std::uint64_t, std::uint64_t>{3, 2}));
  ranges.clear();
  append(ranges, some(5));  // after clear() there is nothing to join
  EXPECT_EQ(blocks_of(ranges.all()), (Blocks{{5, 1}}));
}

TEST(SpillRanges, OnlyTheEndOfTheLastIsJoined) {
  std::vector<SpillRange> ranges;
  append(ranges, some(10, 2));
  append(ranges, some(20));
  append(ranges, some(12));  // behind the first range: append() does not sort
  append(ranges, some(11));  // in front of the last range
  EXPECT_EQ(blocks_of(ranges), (Blocks{{10, 2}, {20, 1}, {12, 1}, {11, 1}}));
}

}  // namespace
}  // namespace kasane::mem
