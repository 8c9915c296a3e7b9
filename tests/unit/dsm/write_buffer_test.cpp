// SPDX-License-Identifier: Apache-2.0
// Which blocks go ahead of a release, and when the buffer learns that they should not have.
#include "dsm/write_buffer.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <vector>

namespace {

using kasane::BlockId;
using kasane::raw;
using kasane::dsm::WriteBuffer;

std::unique_ptr<WriteBuffer> buffer_of(std::uint64_t limit) { return std::make_unique<WriteBuffer>(limit); }

/// All that it gives away now.
std::vector<std::uint64_t> taken(WriteBuffer& buffer, std::uint64_t newest = 0) {
  std::vector<std::uint64_t> blocks;
  std::array<BlockId, 64> oldest;
  while (const std::size_t n = buffer.take(oldest, newest)) {
    for (std::size_t i = 0; i < n; ++i) blocks.push_back(raw(oldest[i]));
  }
  return blocks;
}

std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t end) {
  std::vector<std::uint64_t> blocks(end - first);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

TEST(WriteBuffer, TheOldestBeyondTheLimitGo) {
  const auto buffer = buffer_of(32);
  buffer->note({BlockId{100}, 20});
  buffer->note({BlockId{200}, 20});
  EXPECT_EQ(taken(*buffer), range(0, 0)) << "too few beyond the limit to be worth while";
  buffer->note({BlockId{300}, 10});
  EXPECT_EQ(taken(*buffer), range(100, 118));
  buffer->note({BlockId{400}, 22});
  auto expected = range(118, 120);
  for (const std::uint64_t b : range(200, 220)) expected.push_back(b);
  EXPECT_EQ(taken(*buffer), expected);
}

TEST(WriteBuffer, TheNewestStayWhateverTheLimit) {
  const auto buffer = buffer_of(16);
  buffer->note({BlockId{0}, 40});
  buffer->note({BlockId{1000}, 100});
  EXPECT_EQ(taken(*buffer, 100), range(0, 40));
}

TEST(WriteBuffer, AReleaseSendsEverything) {
  const auto buffer = buffer_of(16);
  buffer->note({BlockId{0}, 100});
  buffer->released();
  EXPECT_EQ(taken(*buffer), range(0, 0));
  buffer->note({BlockId{500}, 32});
  EXPECT_EQ(taken(*buffer), range(500, 516));
}

TEST(WriteBuffer, WhatWasSentInVainRaisesTheLimitAndReleasesLowerIt) {
  const auto buffer = buffer_of(16);
  for (std::uint64_t b = 0; b < 100; ++b) {
    buffer->sent(BlockId{b});
    EXPECT_TRUE(buffer->stored_again(BlockId{b}));
    EXPECT_FALSE(buffer->stored_again(BlockId{b})) << "once";
  }
  EXPECT_EQ(buffer->limit(), 216u);
  buffer->note({BlockId{0}, 200});
  EXPECT_EQ(taken(*buffer), range(0, 0));
  buffer->sent(BlockId{7});
  for (int i = 0; i < 200; ++i) buffer->released();
  EXPECT_FALSE(buffer->stored_again(BlockId{7})) << "a release lies between";
  EXPECT_EQ(buffer->limit(), 16u);
}

// More runs than there is room for: the oldest are forgotten, the others still go in their order.
TEST(WriteBuffer, ManySmallRuns) {
  const auto buffer = buffer_of(16);
  for (std::uint64_t b = 0; b < 5000; ++b) buffer->note({BlockId{2 * b}, 1});
  const auto blocks = taken(*buffer);
  ASSERT_FALSE(blocks.empty());
  EXPECT_EQ(blocks.back(), 2 * (5000u - 16 - 1));
  for (std::size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(blocks[i], blocks[i - 1] + 2);
}

}  // namespace
