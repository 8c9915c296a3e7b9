// SPDX-License-Identifier: Apache-2.0
// The words of --check races, byte by byte against what they say.
#include "dsm/race_check.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace kasane::dsm;

std::uint8_t byte(std::uint64_t word, unsigned k) { return static_cast<std::uint8_t>(word >> (8 * k)); }

TEST(RaceCheck, WordsGoByBytes) {
  std::mt19937_64 random(1);
  // Few values a byte, so that bytes are often equal by chance.
  const auto word = [&] { return random() & random() & 0x8101018101018101; };
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t before = word(), mine = word(), theirs = word();
    for (unsigned k = 0; k < 8; ++k) {
      const bool we = byte(before, k) != byte(mine, k), they = byte(before, k) != byte(theirs, k);
      EXPECT_EQ(byte(differing_bytes(before, mine), k), we ? 0xFF : 0);
      EXPECT_EQ(byte(merged(before, mine, theirs), k), byte(we ? mine : theirs, k));
      EXPECT_EQ(byte(raced_bytes(before, mine, theirs), k), we && they ? 0xFF : 0);
    }
  }
}

TEST(RaceCheck, EveryBitOfAByteCounts) {
  for (unsigned bit = 0; bit < 64; ++bit)
    EXPECT_EQ(differing_bytes(0, std::uint64_t{1} << bit), std::uint64_t{0xFF} << (bit / 8 * 8));
}

}  // namespace
