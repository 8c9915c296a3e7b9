// SPDX-License-Identifier: Apache-2.0
// What the executor keeps: oldest first for each peer, bounded over all, and one peer's stubbornness is its
// own.
#include "comm/offload/held_commands.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/random.h"

namespace kasane::comm::offload {
namespace {

Command command_to(std::uint32_t peer, std::uint32_t number) {
  Command command{};
  command.kind = Command::Kind::prepared;
  command.record = number;
  command.remote.rank = Rank{peer};
  return command;
}

const auto kIgnore = [](Rank, std::uint32_t) {};

TEST(HeldCommands, OldestFirstForEachPeer) {
  HeldCommands held(4, 3);
  EXPECT_TRUE(held.empty());
  for (std::uint32_t i = 0; i < 4; ++i) held.hold(command_to(i % 2, i), 10 + i);
  EXPECT_TRUE(held.full());
  EXPECT_EQ(held.held(Rank{1}), 2u);
  EXPECT_EQ(held.oldest(), 10u);

  // Peer 0 takes nothing, peer 1 takes all.
  std::vector<std::uint32_t> issued;
  EXPECT_TRUE(held.retry(
      8, [&](const Command& c) { return c.remote.rank == Rank{1} && (issued.push_back(c.record), true); },
      kIgnore));
  EXPECT_EQ(issued, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(held.held(Rank{0}), 2u);
  EXPECT_EQ(held.held(Rank{1}), 0u);
  EXPECT_EQ(held.oldest(), 10u);
  EXPECT_FALSE(held.full());

  EXPECT_FALSE(held.retry(8, [](const Command&) { return false; }, kIgnore));
  EXPECT_TRUE(held.retry(1, [](const Command&) { return true; }, kIgnore)) << "one of peer 0 in this turn";
  EXPECT_EQ(held.held(Rank{0}), 1u);
  EXPECT_EQ(held.oldest(), 12u);
  EXPECT_TRUE(held.retry(1, [](const Command&) { return true; }, kIgnore));
  EXPECT_TRUE(held.empty());
}

// Random holds and retries against a queue for each peer.
TEST(HeldCommands, AgainstQueues) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    HeldCommands held(16, 5);
    std::map<std::uint32_t, std::deque<std::uint32_t>> expected;
    std::uint32_t count = 0;
    for (std::uint32_t n = 0; n < 2000; ++n) {
      if (!held.full() && random.below(2) == 0) {
        const auto peer = static_cast<std::uint32_t>(random.below(5));
        held.hold(command_to(peer, n), n);
        expected[peer].push_back(n);
        ++count;
      } else {
        held.retry(
            2,
            [&](const Command& c) {
              if (random.below(3) == 0) return false;
              auto& queue = expected[raw(c.remote.rank)];
              EXPECT_EQ(c.record, queue.front()) << "seed " << seed;
              queue.pop_front();
              --count;
              return true;
            },
            [&](Rank peer, std::uint32_t left) { EXPECT_EQ(left, expected[raw(peer)].size()); });
      }
      ASSERT_EQ(held.empty(), count == 0) << "seed " << seed;
      ASSERT_EQ(held.full(), count == 16) << "seed " << seed;
      std::uint64_t oldest = ~std::uint64_t{0};
      for (const auto& [peer, queue] : expected)
        if (!queue.empty()) oldest = std::min<std::uint64_t>(oldest, queue.front());
      ASSERT_EQ(held.oldest(), oldest) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kasane::comm::offload
