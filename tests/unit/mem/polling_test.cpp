// SPDX-License-Identifier: Apache-2.0
// When a waiting thread polls the disk, and when it sleeps. Times are made up.
#include "mem/polling.h"

#include <gtest/gtest.h>

namespace kasane::mem {
namespace {

constexpr std::uint64_t kMicro = 1000, kMilli = 1'000'000;

class PollingTest : public ::testing::Test {
 protected:
  /// Reads of a given length, one after another, polled each µs while that is allowed; the time of each.
  std::uint64_t read(std::uint64_t takes) {
    Polling::Wait wait(polling, now);
    const std::uint64_t began = now;
    while (wait.keeps_polling(now) && now < began + takes) now += kMicro;
    const std::uint64_t looked = now - began;
    now = began + takes;
    wait.ended(now);
    return looked;
  }
  void learn(std::uint64_t takes) {
    for (int i = 0; i < 64; ++i) read(takes);
  }

  Polling polling{2};
  std::uint64_t now = 1000 * kMilli;
};

TEST_F(PollingTest, ShortReadsAreLookedForToTheirEnd) {
  learn(50 * kMicro);
  EXPECT_NEAR(static_cast<double>(polling.usual_ns()), 50.0 * kMicro, 1.0 * kMicro);
  EXPECT_EQ(read(50 * kMicro), 50 * kMicro);
  EXPECT_EQ(read(90 * kMicro), 90 * kMicro);
}

TEST_F(PollingTest, WhatTakesLongerThanUsualIsSleptFor) {
  learn(50 * kMicro);
  const std::uint64_t looked = read(5 * kMilli);
  EXPECT_GE(looked, 100 * kMicro);
  EXPECT_LE(looked, 130 * kMicro);
}

TEST_F(PollingTest, AHiccupIsForgiven) {
  learn(30 * kMicro);
  read(20 * kMilli);
  EXPECT_EQ(read(30 * kMicro), 30 * kMicro);
}

TEST_F(PollingTest, ASlowDiskIsNotLookedFor) {
  learn(8 * kMilli);
  EXPECT_EQ(read(8 * kMilli), 0u);
}

TEST_F(PollingTest, ADiskThatBecomesFastIs) {
  learn(8 * kMilli);
  learn(40 * kMicro);
  EXPECT_EQ(read(40 * kMicro), 40 * kMicro);
}

TEST_F(PollingTest, WhoLosesItsCoreSleepsTenTimesAsLong) {
  learn(50 * kMicro);
  {
    Polling::Wait wait(polling, now);
    EXPECT_TRUE(wait.keeps_polling(now));
    now += 3 * kMilli;  // another thread had the core
    EXPECT_FALSE(wait.keeps_polling(now));
    wait.ended(now);
  }
  const std::uint64_t again = now + 30 * kMilli;
  while (now + 50 * kMicro < again) ASSERT_EQ(read(50 * kMicro), 0u);
  now = again;
  EXPECT_EQ(read(50 * kMicro), 50 * kMicro);
}

TEST_F(PollingTest, InterruptsAreNoLoss) {
  learn(50 * kMicro);
  Polling::Wait wait(polling, now);
  EXPECT_TRUE(wait.keeps_polling(now));
  EXPECT_TRUE(wait.keeps_polling(now + 60 * kMicro));
}

TEST_F(PollingTest, NoMoreLookThanThereAreCores) {
  learn(50 * kMicro);
  Polling::Wait first(polling, now);
  EXPECT_TRUE(first.keeps_polling(now));
  Polling::Wait second(polling, now);
  EXPECT_TRUE(first.keeps_polling(now + kMicro));
  EXPECT_TRUE(second.keeps_polling(now + kMicro));
  {
    Polling::Wait third(polling, now);
    EXPECT_FALSE(third.keeps_polling(now + 2 * kMicro));
    EXPECT_FALSE(first.keeps_polling(now + 2 * kMicro));
  }
  EXPECT_TRUE(second.keeps_polling(now + 3 * kMicro));
}

TEST(Polling, WithoutACoreOfItsOwnARankSleeps) {
  Polling polling(0);
  Polling::Wait wait(polling, kMilli);
  EXPECT_FALSE(wait.keeps_polling(kMilli));
}

}  // namespace
}  // namespace kasane::mem
