// SPDX-License-Identifier: Apache-2.0
// What a release sends over a network, which reorders, delays and tears: small changes in few messages to
// each owner, not in one a block.
#include <gtest/gtest.h>

#include <deque>

#include "support/sim_rank.h"

namespace kasane {
namespace {

using test::SimLayout;
using test::SimRank;

constexpr std::uint32_t kRanks = 3;
constexpr std::uint64_t kBlocks = 48;  ///< of each owner

class PackedRelease : public testing::TestWithParam<std::uint64_t> {};

TEST_P(PackedRelease, OneMessageToEachOwner) {
  comm::sim::World world(kRanks, GetParam());
  const mem::Pages pages = SimLayout::pages(mem::kPageBytes);
  std::deque<SimRank> ranks;
  for (std::uint32_t r = 0; r < kRanks; ++r)
    ranks.emplace_back(world, Rank{r}, kRanks, pages, SimLayout::config(false, true, 0));
  std::deque<Counters> counters(kRanks);
  std::deque<dsm::ThreadContext> contexts;
  for (std::uint32_t r = 0; r < kRanks; ++r)
    contexts.emplace_back(ranks[r].transport, ranks[r].waiter, counters[r]);

  std::uint64_t at[kRanks] = {};
  std::uint32_t allocated = 0;
  for (std::uint32_t r = 1; r < kRanks; ++r) {
    world.spawn(Rank{r}, [&, r] {
      at[r] = ranks[r]
                  .heap
                  ->allocate(contexts[r].io, gas::Heap::kShared, kBlocks * mem::kBlockBytes, mem::kBlockBytes,
                             gas::Placement::local)
                  .value();
      ++allocated;
    });
  }
  const auto place = [&](std::uint32_t owner, std::uint64_t b) {
    return at[owner] + b * mem::kBlockBytes + 8 * b + owner;
  };
  world.spawn(Rank{0}, [&] {
    ranks[0].waiter.until([&] { return allocated == kRanks - 1; });
    const char mine = 'x';
    for (std::uint64_t b = 0; b < kBlocks; ++b) {  // by turns, as they do not lie in the table
      for (std::uint32_t owner = 1; owner < kRanks; ++owner)
        ranks[0].write(contexts[0], place(owner, b), &mine, 1);
    }
    ranks[0].coherence->fences.release_all(contexts[0]);
    for (std::uint64_t b = 0; b < kBlocks; ++b) {  // arrived, when release_all() has returned
      for (std::uint32_t owner = 1; owner < kRanks; ++owner)
        EXPECT_EQ(static_cast<char>(*ranks[owner].space.a(place(owner, b))), 'x') << owner << " " << b;
    }
  });
  const auto ran = world.run();
  ASSERT_TRUE(ran.has_value());
  EXPECT_EQ(counters[0].diffs.load(), kBlocks * (kRanks - 1));
  EXPECT_EQ(counters[0].bytes_put.load(), kBlocks * (kRanks - 1));
  EXPECT_EQ(counters[0].messages_put.load(), kRanks - 1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PackedRelease, testing::Range<std::uint64_t>(1, 20));

}  // namespace
}  // namespace kasane
