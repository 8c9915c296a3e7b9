// SPDX-License-Identifier: Apache-2.0
// An ordinary program that links the runtime's code, but not its load-time start, is an ordinary process.
#include <gtest/gtest.h>

#include <string>

#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"

namespace kasane::runtime {
namespace {

TEST(Start, AProgramThatDoesNotLinkTheStartIsNoRank) {
  EXPECT_EQ(Runtime::current(), nullptr);
  EXPECT_EQ(process().rank, kNoRank);
}

TEST(ProcessState, TheSpaceHasTwoEnds) {
  alignas(16) static std::byte memory[64];
  set_process({.rank = Rank{0}, .ranks = 1, .space_base = memory + 16, .space_bytes = 32});
  EXPECT_FALSE(in_space(memory + 15));
  EXPECT_TRUE(in_space(memory + 16));
  EXPECT_TRUE(in_space(memory + 47));
  EXPECT_FALSE(in_space(memory + 48));
  forget_process();
  EXPECT_FALSE(in_space(memory + 16));
  EXPECT_FALSE(in_space(nullptr));
}

}  // namespace
}  // namespace kasane::runtime
