// SPDX-License-Identifier: Apache-2.0
// What an engine's options come to.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/engine/core.h"
#include "comm/engine/environment.h"

namespace kasane::comm {
namespace {

TEST(EngineOptions, OffloadingNeedsACoreForEachOfItsThreads) {
  EXPECT_FALSE(cores_to_spare({}, 64));   // nobody said how many threads are busy
  EXPECT_TRUE(cores_to_spare({.busy_threads = 3}, 4));
  EXPECT_FALSE(cores_to_spare({.busy_threads = 4}, 4));
  EXPECT_FALSE(cores_to_spare({.busy_threads = 3, .executors = 2}, 4));
  EXPECT_TRUE(cores_to_spare({.busy_threads = 2, .executors = 2}, 4));
  EXPECT_FALSE(cores_to_spare({.busy_threads = 3, .separate_completer = true}, 4));
  EXPECT_TRUE(cores_to_spare({.busy_threads = 2, .separate_completer = true}, 4));
  EXPECT_FALSE(cores_to_spare({.busy_threads = 0xFFFFFFFFu, .executors = 1}, 4));
}

// The flush counters have 16 bits. What the offloader may hold counts too.
TEST(EngineOptions, WhatCanBeUnderWayCanBeCounted) {
  EXPECT_EQ(most_counted({.operations = 16384}, false, 1000), 32768u);
  EXPECT_EQ(most_counted({.executors = 2, .ring_commands = 1024, .operations = 100}, true, 3), 200u + 2 * (1024 + 3 * 16));
  EXPECT_EQ(most_counted({.executors = 1, .ring_commands = 2, .operations = 2}, true, 1000), 4u + 2 + 64 * 16);
  EXPECT_LE(most_counted({}, true, 1u << 20), kMostCounted);   // the defaults
  EXPECT_GT(most_counted({.executors = 1, .ring_commands = 65536, .operations = 2}, true, 2), kMostCounted);
  EXPECT_GT(most_counted({.executors = 0xFFFFFFFFu, .ring_commands = 0x80000000u, .operations = 2}, true, 2), kMostCounted);
}

TEST(EngineOptions, TheEnvironmentSetsThem) {
  for (const char* name : {"KASANE_ISSUE", "KASANE_EXECUTORS", "KASANE_COMPLETER", "KASANE_BUSY_THREADS"}) ::unsetenv(name);
  auto o = engine_options_from_environment({.executors = 3});
  ASSERT_TRUE(o);
  EXPECT_EQ(o->mode, Mode::automatic);
  EXPECT_EQ(o->executors, 3u);
  ::setenv("KASANE_ISSUE", "offload", 1);
  ::setenv("KASANE_EXECUTORS", "2", 1);
  ::setenv("KASANE_COMPLETER", "1", 1);
  ::setenv("KASANE_BUSY_THREADS", "5", 1);
  o = engine_options_from_environment();
  ASSERT_TRUE(o);
  EXPECT_EQ(o->mode, Mode::offload);
  EXPECT_EQ(o->executors, 2u);
  EXPECT_TRUE(o->separate_completer);
  EXPECT_EQ(o->busy_threads, 5u);
  ::setenv("KASANE_ISSUE", "sometimes", 1);
  o = engine_options_from_environment();
  ASSERT_FALSE(o);
  EXPECT_NE(o.error().message.find("KASANE_ISSUE"), std::string::npos) << o.error().message;
  for (const char* name : {"KASANE_ISSUE", "KASANE_EXECUTORS", "KASANE_COMPLETER", "KASANE_BUSY_THREADS"}) ::unsetenv(name);
}

}  // namespace
}  // namespace kasane::comm
