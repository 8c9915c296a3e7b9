// SPDX-License-Identifier: Apache-2.0
// kasane::team: where members are, what they are dealt, and what they see after they met. Members only
// compute, and main expects.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <kasane/team.hpp>
#include <vector>

namespace {

using kasane::member;

std::uint32_t members() { return kasane::ranks() * kasane::workers(); }

TEST(Team, HasAMemberOnEachWorkerThatStaysAtItsRank) {
  const std::uint32_t n = members();
  std::vector<std::uint32_t> index(n), at(n), here(n), moved(n);
  kasane::team([&](member& me) {
    for (int i = 0; i < 50; ++i) {
      if (kasane::rank() != me.rank()) ++moved[me.index()];
      i % 2 == 0 ? me.wait() : me.wait_here();
    }
    ++index[me.index()];
    at[me.index()] = me.rank();
    here[me.index()] = me.rank_index();
  });
  for (std::uint32_t i = 0; i < n; ++i) {
    EXPECT_EQ(index[i], 1u);
    EXPECT_EQ(at[i], i / kasane::workers());
    EXPECT_EQ(here[i], i % kasane::workers());
    EXPECT_EQ(moved[i], 0u);
  }
}

TEST(Team, WaitShowsWhatAllMembersWrote) {
  const std::uint32_t n = members();
  std::vector<std::uint64_t> values(n), wrong(n);
  kasane::team([&](member& me) {
    std::uint64_t bad = 0;
    for (std::uint64_t step = 1; step <= 40; ++step) {
      values[me.index()] = step;
      me.wait();
      for (const std::uint64_t v : values) bad += v != step;
      me.wait();
    }
    wrong[me.index()] = bad;
  });
  for (const std::uint64_t w : wrong) EXPECT_EQ(w, 0u);
}

TEST(Team, WaitHereShowsWhatTheMembersOfTheRankWrote) {
  const std::uint32_t n = members();
  // Each rank its own page, since nothing orders the ranks here.
  const auto values = kasane::make_array<std::uint64_t>(
      kasane::ranks() * 512, kasane::placement::block.in_pages(kasane::page_small));
  std::vector<std::uint64_t> wrong(n);
  kasane::team([&, all = values.get()](member& me) {
    std::uint64_t* const mine = all + me.rank() * 512;
    std::uint64_t bad = 0;
    for (std::uint64_t step = 1; step <= 1000; ++step) {
      mine[me.rank_index()] = step;
      me.wait_here();
      for (std::uint32_t i = 0; i < me.rank_size(); ++i) bad += mine[i] != step;
      me.wait_here();
    }
    wrong[me.index()] = bad;
  });
  for (const std::uint64_t w : wrong) EXPECT_EQ(w, 0u);
}

TEST(Team, DealsEachElementOnceWithinTheRank) {
  constexpr std::size_t kEach = 1000;
  const auto counts = kasane::make_array<std::uint32_t>(kasane::ranks() * kEach);
  std::vector<std::uint32_t> strangers(members());
  kasane::team([&, all = counts.get()](member& me) {
    const std::size_t begin = me.rank() * kEach;
    if (me.rank_index() == 0)
      for (std::size_t i = 0; i < kEach; ++i) all[begin + i] = 0;
    me.wait();
    // Without a wait between: a member may be some deals behind the others.
    for (std::size_t deal = 0; deal < 60; ++deal) {
      me.deal(begin, begin + kEach - deal, 1 + deal % 7, [&](std::size_t first, std::size_t last) {
        if (kasane::rank() != me.rank()) ++strangers[me.index()];
        for (; first < last; ++first) std::atomic_ref<std::uint32_t>(all[first]).fetch_add(1);
      });
    }
    me.deal(begin, begin, 5, [&](std::size_t, std::size_t) { ++strangers[me.index()]; });
  });
  for (std::size_t i = 0; i < kasane::ranks() * kEach; ++i)
    ASSERT_EQ(counts[i], kEach - i % kEach >= 60 ? 60 : kEach - i % kEach) << i;
  for (const std::uint32_t s : strangers) EXPECT_EQ(s, 0u);
}

TEST(Team, PartsOfARankCoverIt) {
  std::vector<std::array<std::size_t, 2>> parts(members());
  kasane::team([&](member& me) {
    const auto [first, last] = me.part_here(10 * me.rank(), 10 * me.rank() + 10, 4);
    parts[me.index()] = {first, last};
  });
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    const std::uint32_t rank = i / kasane::workers();
    EXPECT_EQ(parts[i][0], i % kasane::workers() == 0 ? 10 * rank : parts[i - 1][1]);
    if ((i + 1) % kasane::workers() == 0) {
      EXPECT_EQ(parts[i][1], 10 * rank + 10);
    }
  }
}

TEST(Team, RunsOnAThreadToo) {
  std::vector<std::uint32_t> seen(members());
  kasane::run([&] { kasane::team([&](member& me) { seen[me.index()] = 1; }); });
  for (const std::uint32_t s : seen) EXPECT_EQ(s, 1u);
}

TEST(Team, OfOneNeedsNoOthers) {
  int calls = 0;
  kasane::team_of_one([&](member& me) {
    me.wait();
    me.wait_here();
    me.deal(3, 10, 2, [&](std::size_t first, std::size_t last) { calls += static_cast<int>(last - first); });
  });
  EXPECT_EQ(calls, 7);
}

}  // namespace
