// SPDX-License-Identifier: Apache-2.0
// Whom a patient request is worth.
#include "comm/shm/patience.h"

#include <gtest/gtest.h>

namespace kasane::comm::shm {
namespace {

constexpr Rank kBusy{1}, kForks{2};

/// How many requests in a row ring at once before one is patient.
int rung(Patience& patience, Rank to) {
  int n = 0;
  while (!patience.pays(to)) ++n;
  return n;
}

TEST(Patience, IsTriedFirst) {
  Patience patience(3);
  EXPECT_EQ(rung(patience, kBusy), 0);
  EXPECT_EQ(rung(patience, kBusy), 0);
}

TEST(Patience, IsTriedMoreSeldomTheMoreOftenItWasInVain) {
  Patience patience(3);
  for (const int expected : {1, 2, 4, 8, 16, 32, 32}) {
    patience.in_vain(kBusy);
    EXPECT_EQ(rung(patience, kBusy), expected);
  }
  EXPECT_EQ(rung(patience, kForks), 0);   // each rank is known by itself
}

TEST(Patience, OneAnswerInTimeRestoresIt) {
  Patience patience(3);
  for (int i = 0; i < 5; ++i) patience.in_vain(kBusy);
  EXPECT_EQ(rung(patience, kBusy), 16);
  patience.answered_in_time(kBusy);
  EXPECT_EQ(rung(patience, kBusy), 0);
  patience.in_vain(kBusy);
  EXPECT_EQ(rung(patience, kBusy), 1);
}

}  // namespace
}  // namespace kasane::comm::shm
