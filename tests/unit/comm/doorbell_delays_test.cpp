// SPDX-License-Identifier: Apache-2.0
// Which ranks are asked without ringing their doorbell at once.
#include "comm/shm/doorbell_delays.h"

#include <gtest/gtest.h>

namespace kasane::comm::shm {
namespace {

constexpr Rank kBusy{1}, kForks{2};

/// How many requests in a row ring at once before one is delayed.
int rung(DoorbellDelays& delays, Rank to) {
  int n = 0;
  while (!delays.may_delay(to)) ++n;
  return n;
}

TEST(DoorbellDelays, AreTriedFirst) {
  DoorbellDelays delays(3);
  EXPECT_EQ(rung(delays, kBusy), 0);
  EXPECT_EQ(rung(delays, kBusy), 0);
}

TEST(DoorbellDelays, AreTriedLessOftenTheMoreOftenTheyExpired) {
  DoorbellDelays delays(3);
  for (const int expected : {1, 2, 4, 8, 16, 32, 32}) {
    delays.expired(kBusy);
    EXPECT_EQ(rung(delays, kBusy), expected);
  }
  EXPECT_EQ(rung(delays, kForks), 0);  // each rank is known by itself
}

TEST(DoorbellDelays, OneAnswerInTimeRestoresThem) {
  DoorbellDelays delays(3);
  for (int i = 0; i < 5; ++i) delays.expired(kBusy);
  EXPECT_EQ(rung(delays, kBusy), 16);
  delays.answered_in_time(kBusy);
  EXPECT_EQ(rung(delays, kBusy), 0);
  delays.expired(kBusy);
  EXPECT_EQ(rung(delays, kBusy), 1);
}

}  // namespace
}  // namespace kasane::comm::shm
