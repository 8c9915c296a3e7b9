// SPDX-License-Identifier: Apache-2.0
// Which blocks stay writable over releases, and for how long.
#include "dsm/rewritten.h"

#include <gtest/gtest.h>

#include <memory>

namespace {

using kasane::BlockId;
using kasane::dsm::Rewritten;

std::unique_ptr<Rewritten> after(std::uint8_t releases) { return std::make_unique<Rewritten>(releases); }

bool released(Rewritten& r, std::uint64_t block, bool differs) {
  return r.stays_open(BlockId{block}, [differs] { return differs; });
}

TEST(Rewritten, ABlockThatIsChangedThreeTimesStaysOpen) {
  const auto r = after(3);
  for (int i = 0; i < 5; ++i) {
    r->begin_release();
    EXPECT_EQ(released(*r, 7, true), i >= 2) << i;
  }
}

TEST(Rewritten, ChangesFarApartDoNotCount) {
  const auto r = after(3);
  for (int i = 0; i < 60; ++i) {
    r->begin_release();
    if (i % 5 == 0) {
      EXPECT_FALSE(released(*r, 7, true)) << i;
    }
  }
}

TEST(Rewritten, TwoLooksOfOneReleaseAreOneChange) {
  const auto r = after(3);
  r->begin_release();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(released(*r, 7, true)) << i;
}

TEST(Rewritten, WhatStaysUnchangedIsClosed) {
  const auto r = after(1);
  r->begin_release();
  EXPECT_TRUE(released(*r, 7, true));
  int open = 0;
  for (int i = 0; i < 10; ++i) {
    r->begin_release();
    if (!released(*r, 7, false)) break;
    ++open;
  }
  EXPECT_EQ(open, 1);
  r->begin_release();
  EXPECT_TRUE(released(*r, 7, true)) << "it may open again";
}

TEST(Rewritten, AnAcquireThatFindsItUnchangedLeavesItOpen) {
  const auto r = after(2);
  r->begin_release();
  EXPECT_FALSE(released(*r, 7, true));
  EXPECT_FALSE(r->stays_open(BlockId{7}));
  r->begin_release();
  EXPECT_TRUE(released(*r, 7, true));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(r->stays_open(BlockId{7}));
}

TEST(Rewritten, BlocksDoNotCountForEachOther) {
  const auto r = after(2);
  for (std::uint64_t b = 0; b < 100'000; ++b) {
    r->begin_release();
    EXPECT_FALSE(released(*r, b, true)) << b;
  }
}

}  // namespace
