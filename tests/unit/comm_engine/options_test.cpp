// SPDX-License-Identifier: Apache-2.0
// What an engine's options come to.
#include <gtest/gtest.h>

#include "comm/engine/core.h"

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

}  // namespace
}  // namespace kasane::comm
