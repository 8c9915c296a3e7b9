// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <gtest/gtest.h>

#include <string>

#include "base/process.h"

namespace kasane {
namespace {

TEST(AssertDeath, PrintsExpressionPlaceAndHint) {
  const int pages = 3;
  EXPECT_DEATH(KASANE_CHECK(pages == 4, "four were asked for"),
               "pid [0-9]+ thread [0-9]+: check failed: pages == 4: four were asked for "
               "\\(.*assert_test.cpp:[0-9]+\\)");
}

TEST(AssertDeath, PrintsBothOperands) {
  const std::uint64_t have = 18446744073709551615u, want = 0;
  EXPECT_DEATH(KASANE_CHECK_OP(have, ==, want), "have == want, with 18446744073709551615 and 0 \\(");
}

TEST(AssertDeath, NamesRankAndThread) {
  EXPECT_DEATH(
      {
        set_process_rank(Rank{2});
        set_thread_role("worker 1");
        KASANE_CHECK(false);
      },
      "kasane: rank 2 worker 1: check failed: false");
}

TEST(AssertDeath, LongTextIsNotCut) {
  std::string hint(5000, 'x');
  hint += "END";
  EXPECT_DEATH(KASANE_CHECK(false, hint.c_str()), "xEND");
}

TEST(Assert, HoldsSilently) {
  int evaluated = 0;
  KASANE_CHECK(++evaluated == 1);
  KASANE_CHECK_OP(evaluated, ==, 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(Process, DescribesItselfWithinTheRoomGiven) {
  char text[8];
  EXPECT_EQ(describe_self(text, sizeof text), 7u);
  EXPECT_EQ(std::string(text).size(), 7u);
  EXPECT_EQ(describe_self(text, 0), 0u);
}

}  // namespace
}  // namespace kasane
