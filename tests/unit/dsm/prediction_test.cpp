// SPDX-License-Identifier: Apache-2.0
// When a copy dozes and is given up (decay), and which life is trusted to end like those before it (last touch).
#include "dsm/prediction.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "dsm/predictor.h"

namespace kasane::dsm {
namespace {

/// A page's history, and what was advised last.
struct Decaying {
  History h;
  Advice see(Seen seen) {
    const Foresight now = decay(h, seen);
    h = now.after;
    return now.advice;
  }
  /// Ages until the advice; `most` where it does not come.
  int ages_until(Advice wanted, int most) {
    for (int n = 1; n <= most; ++n) {
      if (see(Seen::fence) == wanted) return n;
    }
    return most;
  }
};

TEST(Decay, AnUnusedCopyDozesAndIsGivenUp) {
  Decaying page;
  page.see(Seen::used);
  EXPECT_EQ(page.see(Seen::fence), Advice::keep) << "it may have been used until just now";
  EXPECT_EQ(page.see(Seen::fence), Advice::doze);
  EXPECT_EQ(page.see(Seen::fence), Advice::give_up);
  EXPECT_TRUE(page.h.copy && page.h.given_up);
  page.see(Seen::dropped);
  EXPECT_TRUE(!page.h.copy && page.h.given_up) << "whether that was right is open";
  page.see(Seen::changed);
  EXPECT_EQ(page.h, History{});
}

TEST(Decay, ACopyThatIsWokenEachTimeIsNeverGivenUp) {
  Decaying page;
  page.see(Seen::used);
  int faults = 0;
  for (int age = 0; age < 1000; ++age) {
    const Advice advice = page.see(Seen::fence);
    ASSERT_NE(advice, Advice::give_up) << age;
    if (advice != Advice::doze) continue;
    page.see(Seen::used);   // the load faults, since it dozes
    ++faults;
  }
  EXPECT_EQ(page.h.patience, kMostPatience);
  EXPECT_LE(faults, 5 + 1000 / 33);
}

TEST(Decay, WhatWasGivenUpTooEarlyStaysLonger) {
  Decaying page;
  page.see(Seen::used);
  const int first = page.ages_until(Advice::give_up, 100);
  page.see(Seen::dropped);
  page.see(Seen::unchanged);
  page.see(Seen::used);
  EXPECT_GT(page.ages_until(Advice::give_up, 100), first);
}

TEST(Decay, WhatIsToldWhileItDozesGoesEarlierNextTime) {
  Decaying page;
  page.h.patience = 3;
  page.see(Seen::used);
  page.ages_until(Advice::doze, 100);
  page.see(Seen::dropped);
  EXPECT_EQ(page.h.patience, 2);
  EXPECT_FALSE(page.h.given_up);
}

/// A page whose copies are told of.
struct Living {
  History h;
  std::uint64_t acquires = 0;
  Advice see(Seen seen) {
    const Foresight now = last_touch(h, seen, acquires);
    h = now.after;
    return now.advice;
  }
  /// A life of so many faults, and one more some acquires later if `further` is not 0; then the copy goes. True: it was given up, and not before its last fault.
  bool live(int faults, int further) {
    for (int i = 0; i < faults; ++i) see(Seen::used);
    bool early = false;
    if (further != 0) {
      early = see(Seen::fence) == Advice::give_up;
      acquires += static_cast<std::uint64_t>(further);
      see(Seen::used);
    }
    EXPECT_FALSE(early);
    const bool given_up = see(Seen::fence) == Advice::give_up;
    ++acquires;
    see(Seen::dropped);
    return given_up;
  }
};

TEST(LastTouch, TheFourthLifeLikeTheOthersIsCutShort) {
  for (const auto& [faults, further] : std::vector<std::pair<int, int>>{{1, 0}, {3, 0}, {1, 2}, {4, 6}}) {
    Living page;
    for (int life = 1; life <= 3; ++life) EXPECT_FALSE(page.live(faults, further)) << faults << " " << further << " life " << life;
    EXPECT_TRUE(page.live(faults, further)) << faults << " " << further;
    page.see(Seen::changed);
    EXPECT_TRUE(page.live(faults, further)) << "it was right, so it is trusted again";
  }
}

TEST(LastTouch, AnotherTraceIsNotTrusted) {
  Living page;
  for (int life = 0; life < 3; ++life) page.live(2, 0);
  EXPECT_FALSE(page.live(3, 0));
  EXPECT_EQ(page.h.sure, 0);
}

TEST(LastTouch, LivesWithMoreThanCanBeCountedAreNotTrusted) {
  Living page;
  for (int life = 0; life < 10; ++life) EXPECT_FALSE(page.live(kMany + life, 0));
  Living longer;
  for (int life = 0; life < 10; ++life) EXPECT_FALSE(longer.live(1, kMany + life));
}

TEST(LastTouch, WhoWasWrongTwiceIsNeverTrustedAgain) {
  Living page;
  int given_up = 0;
  for (int life = 0; life < 100; ++life) {
    if (!page.live(1, 0)) continue;
    ++given_up;
    page.see(Seen::unchanged);
  }
  EXPECT_EQ(given_up, kMostWrong);
}

TEST(History, AWordHoldsIt) {
  Random random(7);
  for (int i = 0; i < 100'000; ++i) {
    const auto word = static_cast<std::uint32_t>(random());
    ASSERT_EQ(History::of(word).word(), word);
  }
  // No run of events leaves what a word can hold.
  for (const bool decays : {true, false}) {
    History h;
    for (int i = 0; i < 100'000; ++i) {
      const auto seen = static_cast<Seen>(random() % 5);
      h = decays ? decay(h, seen).after : last_touch(h, seen, random()).after;
      ASSERT_EQ(History::of(h.word()), h);
    }
  }
}

TEST(Predictor, OnlyBlocksThatWereGivenUpAreAskedFor) {
  const mem::Pages pages = mem::Pages::uniform(1 << 20).value();
  const auto predictor = Predictor::create(pages, (1 << 20) / mem::kBlockBytes, {Prediction::decay, 4}).value();
  const PageId page{3};
  const BlockId first = pages.blocks_of(page).first, second{raw(first) + 1};
  EXPECT_FALSE(predictor->due(3));
  EXPECT_TRUE(predictor->due(4));
  predictor->used(page, 0);
  for (std::uint64_t age = 0; age < 3; ++age) predictor->begin_age(4 * age), static_cast<void>(predictor->look(page, 4 * age));
  EXPECT_FALSE(predictor->in_question(page, first, 2)) << "it is here still";
  ASSERT_TRUE(predictor->dropped(page));
  predictor->gave_up(second);
  EXPECT_FALSE(predictor->in_question(page, first, 1));
  EXPECT_EQ(predictor->in_question(page, first, 16), second);
  EXPECT_TRUE(predictor->answer(page, false));
  EXPECT_FALSE(predictor->answer(page, false)) << "once";
  EXPECT_FALSE(predictor->in_question(page, first, 16));
}

}  // namespace
}  // namespace kasane::dsm
