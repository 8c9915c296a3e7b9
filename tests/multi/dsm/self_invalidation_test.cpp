// SPDX-License-Identifier: Apache-2.0
// Copies that their ranks give up by prediction: who changes the page afterwards has nobody to tell; what is used stays; what comes back tells whether it was right.
#include <gtest/gtest.h>

#include <array>

#include "multi/dsm/on_ranks.h"

namespace kasane {
namespace {

using test::on_ranks;
using test::RankMemory;

class SelfInvalidation : public test::OnRanksAndPages {
 protected:
  void SetUp() override {
    if (std::get<0>(GetParam()) == 1 || !RankMemory::classification_under_test()) GTEST_SKIP() << "nobody is told of anything";
  }
};
KASANE_ON_RANKS_AND_PAGES(SelfInvalidation);

constexpr dsm::Predictor::Config kDecay{dsm::Prediction::decay, 1}, kLastTouch{dsm::Prediction::last_touch, 0};

/// As a barrier of the runtime, but that the readers are at it first, so that counts do not hang on who was quicker.
void fence(RankMemory& m) {
  if (raw(m.rank()) != 0) m.coherence->release_all(m.context());
  m.collectives.barrier();
  if (raw(m.rank()) == 0) m.coherence->release_all(m.context());
  m.collectives.barrier();
  m.coherence->acquire_told(m.context());
}

// Of two pages one is read once, the other in every epoch.
TEST_P(SelfInvalidation, ADecayedCopyGetsNoNoticeAndAUsedOneStays) {
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        const auto ranks = m.transport->ranks();
        const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(2 * m.page_bytes) : 0);
        auto *fading = m.at<std::uint64_t>(data), *used = m.at<std::uint64_t>(data + m.page_bytes);
        const auto& counters = m.context().counters;
        const bool reads = raw(m.rank()) != 0;
        const auto epochs = [&](std::uint64_t n, std::uint64_t expected) {   // of acquires that are told nothing
          for (std::uint64_t epoch = 0; reads && epoch < n; ++epoch) {
            ASSERT_EQ(*used, expected);
            m.coherence->acquire_told(m.context());
          }
        };
        if (!reads) *fading = *used = 1;
        m.collectives.barrier();
        if (reads) {
          ASSERT_EQ(*fading, 1u);
        }
        epochs(50, 1);
        if (reads) {
          EXPECT_EQ(counters.copies_given_up.load(), 1u);
          EXPECT_EQ(counters.blocks_fetched.load(), 2u) << "what is used in every epoch is never given up";
          EXPECT_EQ(counters.pages_heard.load(), 0u);
        }
        m.collectives.barrier();
        if (!reads) {
          *fading = *used = 2;
          m.coherence->release_all(m.context());
          EXPECT_EQ(counters.readers_told.load(), ranks - 1) << "of the page that is used, by all others; of the other by nobody";
        }
        m.collectives.barrier();
        if (reads) m.cross(Rank{0});
        m.collectives.barrier();   // nobody has the owner look from here on
        if (reads) {
          EXPECT_EQ(counters.pages_heard.load(), 1u);
          EXPECT_EQ(counters.blocks_dropped.load(), 2u) << "one given up, one told of";
          ASSERT_EQ(*fading, 2u);
          EXPECT_EQ(counters.notices_spared.load(), 1u);
          EXPECT_EQ(counters.given_up_too_early.load(), 0u);
        }
        epochs(50, 2);
        if (reads) {
          EXPECT_EQ(counters.copies_given_up.load(), 2u);
          ASSERT_EQ(*fading, 2u);
          EXPECT_EQ(counters.given_up_too_early.load(), 1u) << "nobody has changed it";
          EXPECT_EQ(counters.notices_spared.load(), 1u);
        }
        m.collectives.barrier();
      },
      0, kDecay);
}

// A copy that dozes wakes with what it had, by a load, a store, and a view; what was changed here since is sent, and nothing is fetched.
TEST_P(SelfInvalidation, WhatDozesWakesAsItWas) {
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        const std::uint64_t bytes = 3 * m.page_bytes;
        const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(bytes) : 0);
        std::array<std::uint64_t*, 3> word;
        for (std::uint64_t i = 0; i < word.size(); ++i) word[i] = m.at<std::uint64_t>(data + i * m.page_bytes);
        const auto& counters = m.context().counters;
        if (raw(m.rank()) == 0) {
          for (std::uint64_t i = 0; i < word.size(); ++i) word[i][0] = word[i][1] = i + 1;
        }
        m.collectives.barrier();
        if (raw(m.rank()) == 1) {
          for (std::uint64_t i = 0; i < word.size(); ++i) ASSERT_EQ(*word[i], i + 1);
          for (int age = 0; age < 2; ++age) m.coherence->acquire_told(m.context());
          const std::uint64_t fetched = counters.blocks_fetched.load();
          for (std::uint64_t i = 0; i < word.size(); ++i) ASSERT_TRUE(m.coherence->state(mem::block_of(data + i * m.page_bytes)).dozing);
          ASSERT_EQ(word[0][1], 1u);
          word[1][0] = 20;
          ASSERT_FALSE(m.coherence->pin(m.context(), data + 2 * m.page_bytes, 16, dsm::Use::read_write));
          word[2][0] = 30;
          m.coherence->unpin(m.context(), data + 2 * m.page_bytes, 16);
          ASSERT_EQ(word[1][1], 2u);
          ASSERT_EQ(word[2][1], 3u);
          EXPECT_EQ(counters.blocks_fetched.load(), fetched);
          m.coherence->release_all(m.context());
        }
        m.collectives.barrier();
        if (raw(m.rank()) == 0) {
          m.cross(Rank{1});
          EXPECT_EQ(word[1][0], 20u);
          EXPECT_EQ(word[2][0], 30u);
        }
        m.collectives.barrier();
      },
      0, kDecay);
}

// Written by one rank and read by the others in turn: when the readers have seen that, nobody need be told any more.
TEST_P(SelfInvalidation, ALastTouchIsForeseen) {
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        constexpr std::uint64_t kRounds = 30, kLearning = 6;
        const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(m.page_bytes) : 0);
        auto* word = m.at<std::uint64_t>(data);
        const auto& counters = m.context().counters;
        std::uint64_t told = 0;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          if (round == kLearning) told = counters.readers_told.load();
          if (raw(m.rank()) == 0) *word = round;
          fence(m);
          if (raw(m.rank()) != 0) {
            ASSERT_EQ(*word, round);
          }
          fence(m);
        }
        if (raw(m.rank()) == 0) {
          EXPECT_GT(told, 0u);
          EXPECT_EQ(counters.readers_told.load(), told);
        } else {
          EXPECT_GE(counters.notices_spared.load(), kRounds - kLearning - 1);
          EXPECT_EQ(counters.given_up_too_early.load(), 0u);
        }
        m.collectives.barrier();
      },
      0, kLastTouch);
}

// What has changed after each look, and then does not any more, is given up once too early, and stays from then on.
TEST_P(SelfInvalidation, WhoWasWrongLeavesItsCopy) {
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(m.page_bytes) : 0);
        auto* word = m.at<std::uint64_t>(data);
        const auto& counters = m.context().counters;
        for (std::uint64_t round = 0; round < 10; ++round) {   // lives of one epoch
          if (raw(m.rank()) == 0) *word = round;
          fence(m);
          ASSERT_EQ(*word, round);
          fence(m);
        }
        for (int epoch = 0; epoch < 20; ++epoch) {   // one that does not end
          ASSERT_EQ(*word, 9u);
          fence(m);
        }
        if (raw(m.rank()) != 0) {
          const std::uint64_t fetched = counters.blocks_fetched.load();
          EXPECT_EQ(counters.given_up_too_early.load(), 1u) << "then it was not sure any more";
          ASSERT_EQ(*word, 9u);
          EXPECT_EQ(counters.blocks_fetched.load(), fetched);
        }
        m.collectives.barrier();
      },
      0, kLastTouch);
}

}  // namespace
}  // namespace kasane
