// SPDX-License-Identifier: Apache-2.0
#include "mem/fingerprints.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <vector>

namespace kasane::mem {
namespace {

using Bytes = std::array<std::byte, kBlockBytes>;

constexpr std::uint64_t kSpaceBlocks = std::uint64_t{1} << 28;

Bytes bytes_of(std::uint64_t seed) {
  Bytes bytes;
  std::mt19937_64 random(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(FingerprintsTest, KnowsWhatWasNotedAndNothingElse) {
  Fingerprints prints = Fingerprints::create(1024, kSpaceBlocks).value();
  Bytes bytes = bytes_of(1);
  EXPECT_FALSE(prints.matches(BlockId{7}, bytes.data()));
  (void)prints.note(BlockId{7}, bytes.data());
  EXPECT_TRUE(prints.matches(BlockId{7}, bytes.data()));
  EXPECT_FALSE(prints.matches(BlockId{8}, bytes.data()));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1000}, kBlockBytes - 1}) {  // one bit
    bytes[at] ^= std::byte{0x10};
    EXPECT_FALSE(prints.matches(BlockId{7}, bytes.data())) << "byte " << at;
    bytes[at] ^= std::byte{0x10};
  }
  EXPECT_TRUE(prints.matches(BlockId{7}, bytes.data()));
  prints.forget(BlockId{7});
  EXPECT_FALSE(prints.matches(BlockId{7}, bytes.data()));
}

TEST(FingerprintsTest, BlocksWithTheSameBytesDifferEvenInOneSlot) {
  constexpr std::uint64_t kBudget = 1024, kSlots = 4 * kBudget;
  Fingerprints prints = Fingerprints::create(kBudget, kSpaceBlocks).value();
  const Bytes zeros{};
  (void)prints.note(BlockId{3}, zeros.data());
  EXPECT_FALSE(prints.matches(BlockId{3 + kSlots}, zeros.data()));
  (void)prints.note(BlockId{3 + kSlots}, zeros.data());
  EXPECT_TRUE(prints.matches(BlockId{3 + kSlots}, zeros.data()));
  EXPECT_FALSE(prints.matches(BlockId{3}, zeros.data()));  // its slot has another block's
}

TEST(FingerprintsTest, NeighboursInFourTimesTheBudgetHaveASlotEach) {
  constexpr std::uint64_t kBudget = 512, kFirst = 12345 * 16;
  Fingerprints prints = Fingerprints::create(kBudget, kSpaceBlocks).value();
  std::vector<Bytes> kinds;
  for (std::uint64_t i = 0; i < 8; ++i) kinds.push_back(bytes_of(i));
  for (std::uint64_t i = 0; i < 4 * kBudget; ++i) (void)prints.note(BlockId{kFirst + i}, kinds[i % 8].data());
  for (std::uint64_t i = 0; i < 4 * kBudget; ++i)
    EXPECT_TRUE(prints.matches(BlockId{kFirst + i}, kinds[i % 8].data())) << i;
}

// 8 bytes a slot: each page of the table is reported once, and there are no more of them than four slots a
// block of the budget take.
TEST(FingerprintsTest, SaysWhatMemoryItTakes) {
  constexpr std::uint64_t kBudget = 4096;
  Fingerprints prints = Fingerprints::create(kBudget, kSpaceBlocks).value();
  const Bytes bytes = bytes_of(1);
  EXPECT_EQ(prints.note(BlockId{0}, bytes.data()), 1u);
  EXPECT_EQ(prints.note(BlockId{511}, bytes.data()), 0u);
  EXPECT_EQ(prints.note(BlockId{512}, bytes.data()), 1u);
  std::uint64_t taken = 2;
  for (std::uint64_t b = 0; b < kSpaceBlocks; b += 509) {  // each slot's page, many times
    if (b > 100 * 4 * kBudget) break;
    taken += prints.note(BlockId{b}, bytes.data());
  }
  EXPECT_EQ(taken, 4 * kBudget / 512);
  prints.forget(BlockId{kSpaceBlocks - 1});
}

TEST(FingerprintsTest, ASpaceSmallerThanTheBudgetIsEnough) {
  Fingerprints prints = Fingerprints::create(std::uint64_t{1} << 40, 3).value();
  const Bytes bytes = bytes_of(1);
  EXPECT_EQ(prints.note(BlockId{2}, bytes.data()), 1u);
  EXPECT_TRUE(prints.matches(BlockId{2}, bytes.data()));
}

// Against an oracle of what "the file" has: after writes, notes and forgets in any order, a match means that
// the file has these bytes.
TEST(FingerprintsTest, NeverMatchesWhatTheFileHasNot) {
  constexpr std::uint64_t kBlocks = 6000;  // more than slots
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Fingerprints prints = Fingerprints::create(1024, kSpaceBlocks).value();
    std::vector<Bytes> kinds;
    for (std::uint64_t i = 0; i < 4; ++i) kinds.push_back(bytes_of(i + 4 * seed));
    std::map<std::uint64_t, std::uint64_t> file;  // block -> kind
    std::mt19937_64 random(seed);
    std::uint64_t matched = 0;
    for (int step = 0; step < 40000; ++step) {
      const std::uint64_t b = random() % kBlocks, kind = random() % kinds.size();
      switch (random() % 4) {
        case 0:  // written
          prints.forget(BlockId{b});
          file[b] = kind;
          break;
        case 1:  // read
          if (file.contains(b)) (void)prints.note(BlockId{b}, kinds[file[b]].data());
          break;
        default:  // leaves, with those bytes
          if (!prints.matches(BlockId{b}, kinds[kind].data())) break;
          ++matched;
          ASSERT_TRUE(file.contains(b) && file[b] == kind) << "seed " << seed << ", step " << step;
      }
    }
    EXPECT_GT(matched, 100u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kasane::mem
