// SPDX-License-Identifier: Apache-2.0
// What an engine's options come to.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/engine/core.h"
#include "comm/engine/environment.h"

namespace kasane::comm {
namespace {

// The flush counters have 16 bits. What the offloader may hold counts too.
TEST(EngineOptions, WhatCanBeUnderWayCanBeCounted) {
  EXPECT_EQ(most_counted({.operations = 16384}, 1000), 32768u);
  EXPECT_EQ(most_counted({.mode = Mode::offload, .ring_commands = 1024, .operations = 100}, 3),
            200u + 1024 + 3 * 16);
  EXPECT_EQ(most_counted({.mode = Mode::offload, .ring_commands = 2, .operations = 2}, 1000),
            4u + 2 + 64 * 16);
  EXPECT_LE(most_counted({.mode = Mode::offload}, 1u << 20), kMostCounted);  // the defaults
  EXPECT_GT(most_counted({.mode = Mode::offload, .ring_commands = 65536, .operations = 2}, 2), kMostCounted);
  EXPECT_GT(most_counted({.mode = Mode::offload, .ring_commands = 0x80000000u, .operations = 2}, 2),
            kMostCounted);
}

TEST(EngineOptions, TheEnvironmentSetsTheMode) {
  ::unsetenv("KASANE_ISSUE");
  auto o = engine_options_from_environment({.operations = 3});
  ASSERT_TRUE(o);
  EXPECT_EQ(o->mode, Mode::direct);
  EXPECT_EQ(o->operations, 3u);
  EXPECT_EQ(engine_options_from_environment({.mode = Mode::offload})->mode, Mode::offload);
  ::setenv("KASANE_ISSUE", "offload", 1);
  o = engine_options_from_environment();
  ASSERT_TRUE(o);
  EXPECT_EQ(o->mode, Mode::offload);
  ::setenv("KASANE_ISSUE", "sometimes", 1);
  o = engine_options_from_environment();
  ASSERT_FALSE(o);
  EXPECT_NE(o.error().message.find("KASANE_ISSUE"), std::string::npos) << o.error().message;
  ::unsetenv("KASANE_ISSUE");
}

}  // namespace
}  // namespace kasane::comm
