// SPDX-License-Identifier: Apache-2.0
// The order in which a thief asks the other ranks.
#include "sched/victims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"

namespace kasane::sched {
namespace {

constexpr auto kNear = Distance::numa_node, kHost = Distance::host, kFar = Distance::elsewhere;

static_assert(distance(true, 1, 1) == kNear);
static_assert(distance(true, 0, 1) == kHost);
static_assert(distance(true, std::nullopt, std::nullopt) == kHost,
              "workers that may run on any node are near nobody");
static_assert(distance(true, 1, std::nullopt) == kHost);
static_assert(distance(false, 1, 1) == kFar, "node 1 of another host");

struct Asked {
  Rank rank;
  Distance distance;
  friend bool operator==(const Asked&, const Asked&) = default;
};

std::vector<Asked> whole_round(Victims& victims, Random& random) {
  std::vector<Asked> asked;
  EXPECT_FALSE(victims.round([&](std::uint32_t n) { return static_cast<std::uint32_t>(random.below(n)); },
                             [&](Rank rank, Distance distance) {
                               asked.push_back({rank, distance});
                               return false;
                             }));
  return asked;
}

TEST(Victims, EveryOtherRankOnceTheNearestFirst) {
  const std::vector<Distance> from_3{kFar, kHost, kNear, kNear, kFar, kNear, kHost, kFar};
  Victims victims(from_3, Rank{3});
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const auto asked = whole_round(victims, random);
    std::set<Rank> ranks;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(asked[i].distance, from_3[raw(asked[i].rank)]);
      EXPECT_TRUE(i == 0 || asked[i - 1].distance <= asked[i].distance)
          << "rank " << raw(asked[i].rank) << " too late";
      ranks.insert(asked[i].rank);
    }
    EXPECT_EQ(asked.size(), 7u);
    EXPECT_EQ(ranks.size(), 7u);
    EXPECT_FALSE(ranks.contains(Rank{3}));
  }
}

TEST(Victims, OfManyAtADistanceEachKnowsSomeAndIsKnown) {
  for (const std::uint32_t ranks : {64u, 65u, 130u, 256u, 1024u}) {
    std::vector<int> known(ranks);
    Random random(3);
    for (std::uint32_t own = 0; own < ranks; ++own) {
      Victims victims(std::vector<Distance>(ranks, kHost), Rank{own});
      const auto asked = whole_round(victims, random);
      EXPECT_LE(asked.size(), 75u);
      for (const Asked& a : asked) ++known[raw(a.rank)];
      EXPECT_TRUE(std::ranges::count(asked, Rank{(own + 1) % ranks}, &Asked::rank)) << "all are connected";
    }
    EXPECT_EQ(std::ranges::count(known, known[0]), ranks) << "each is asked by as many";
  }
}

// Who rings a rank has work, and is one that it has told that it is idle.
TEST(Victims, ThoseThatAreToldComeFirst) {
  for (const Distance distance : {kHost, kFar}) {
    constexpr std::uint32_t kRanks = 256, kOwn = 250;
    Victims victims(std::vector<Distance>(kRanks, distance), Rank{kOwn});
    Random random(5);
    for (int round = 0; round < 100; ++round) {
      const auto asked = whole_round(victims, random);
      std::set<Rank> first, told, all;
      for (std::uint32_t b = 0; b < IdleBits(kRanks).count(); ++b)
        told.insert(IdleBits(kRanks).at(Rank{kOwn}, b));
      for (std::size_t i = 0; i < asked.size(); ++i) {
        if (i < told.size()) first.insert(asked[i].rank);
        all.insert(asked[i].rank);
      }
      EXPECT_EQ(first, told);
      EXPECT_EQ(all.size(), asked.size()) << "none twice";
      if (distance == kFar) {
        EXPECT_EQ(asked.size(), 16u);
      }
    }
  }
}

TEST(Victims, WithinOneDistanceAtRandom) {
  Victims victims(std::vector<Distance>(5, kHost), Rank{0});
  Random random(11);
  std::map<Rank, int> first;
  for (int round = 0; round < 4000; ++round) ++first[whole_round(victims, random).front().rank];
  ASSERT_EQ(first.size(), 4u);
  for (const auto& [rank, times] : first) EXPECT_NEAR(times, 1000, 200) << "rank " << raw(rank);
}

TEST(Victims, ARoundEndsWhereSomethingWasFound) {
  Victims victims(std::vector<Distance>{kNear, kHost, kNear, kFar}, Rank{0});
  int asked = 0;
  EXPECT_TRUE(victims.round([](std::uint32_t) { return 0u; },
                            [&](Rank, Distance distance) { return ++asked, distance == kHost; }));
  EXPECT_EQ(asked, 2);
}

TEST(Victims, AFewOfThoseElsewhere) {
  std::vector<Distance> from_0(300, kFar);
  for (std::size_t r = 0; r < 40; ++r) from_0[r] = kHost;
  Victims victims(from_0, Rank{0});
  Random random(5);
  std::set<Rank> ranks;
  for (int round = 0; round < 2000; ++round) {
    const auto asked = whole_round(victims, random);
    // those that are told count, wherever they are
    ASSERT_LE(asked.size(), 39 + Victims::kMostElsewhere);
    ASSERT_GE(asked.size(), 39 + Victims::kMostElsewhere - IdleBits(300).count());
    for (const Asked& a : asked) ranks.insert(a.rank);
  }
  EXPECT_EQ(ranks.size(), 299u);
}

TEST(Victims, NobodyButOneself) {
  Victims victims(std::vector<Distance>{kNear}, Rank{0});
  EXPECT_TRUE(victims.empty());
}

}  // namespace
}  // namespace kasane::sched
