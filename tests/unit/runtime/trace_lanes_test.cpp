// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/trace_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace kasane::runtime {
namespace {

TEST(TraceLanes, WhatFollowsOrIsNestedSharesALane) {
  TraceLanes lanes;
  EXPECT_EQ(lanes.place(0, 100), 0u);
  EXPECT_EQ(lanes.place(0, 50), 0u);  // within the first
  EXPECT_EQ(lanes.place(50, 100), 0u);
  EXPECT_EQ(lanes.place(60, 70), 0u);
  EXPECT_EQ(lanes.place(100, 200), 0u);
}

TEST(TraceLanes, WhatOverlapsGetsLanesOfItsOwn) {
  TraceLanes lanes;
  EXPECT_EQ(lanes.place(0, 100), 0u);
  EXPECT_EQ(lanes.place(10, 110), 1u);
  EXPECT_EQ(lanes.place(20, 120), 2u);
  EXPECT_EQ(lanes.place(30, 90), 0u);    // within the first
  EXPECT_EQ(lanes.place(100, 105), 0u);  // the first is over
  EXPECT_EQ(lanes.place(106, 130), 0u);
}

TEST(TraceLanes, NoTwoOfALaneOverlap) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t begin = random() % 100;
      all.emplace_back(begin, begin + random() % 40);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    TraceLanes lanes;
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> placed(all.size());
    for (const auto& [begin, end] : all) {
      auto& lane = placed[lanes.place(begin, end)];
      for (const auto& [from, to] : lane)
        EXPECT_TRUE(to <= begin || end <= to) << from << '-' << to << ' ' << begin << '-' << end;
      lane.emplace_back(begin, end);
    }
  }
}

}  // namespace
}  // namespace kasane::runtime
