// SPDX-License-Identifier: Apache-2.0
#include "mem/page_tables.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "fixtures.h"
#include "mem/residency.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kRange = PageTables::kRangeBytes, kBlocks = PageTables::kRangeBlocks,
                        kTable = PageTables::kTableBytes, kRanges = PageTables::kRegionRanges;
constexpr std::uint64_t kOfARange = 1, kOfARegion = 3;  // blocks of entries

PageTables make(std::uint64_t ranges, std::uint64_t page_bytes = kPageBytes) {
  const auto pages = Pages::uniform(ranges * kRange, page_bytes);
  if (!pages) std::abort();
  auto made = PageTables::create(ranges * kRange, *pages);
  if (!made) std::abort();
  return std::move(*made);
}

BlockRange blocks(std::uint64_t first, std::uint64_t count) { return {BlockId{first}, count}; }

/// Makes so many tables.
class Touched {
 public:
  explicit Touched(std::uint64_t tables)
      : bytes_((tables + 1) * kTable),
        memory_(static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (memory_ == MAP_FAILED) std::abort();
    for (std::uint64_t t = 0; t < tables; ++t)
      *static_cast<volatile std::byte*>(memory_ + t * kTable) = std::byte{1};
  }
  ~Touched() { ::munmap(memory_, bytes_); }

 private:
  const std::size_t bytes_;
  std::byte* const memory_;
};

TEST(PageTables, ARangeIsChargedOnceUntilItsTablesHaveGone) {
  PageTables t = make(2 * kRanges);
  const auto first = t.note(blocks(3, 1));
  EXPECT_EQ(first.tables, PageTables::kPresumed);
  EXPECT_EQ(first.entries, kOfARange + kOfARegion);
  EXPECT_EQ(t.note(blocks(0, kBlocks)).tables, 0u);
  const auto second = t.note(blocks(kBlocks - 1, 2));
  EXPECT_EQ(second.tables, PageTables::kPresumed) << "the second of two";
  EXPECT_EQ(second.entries, kOfARange) << "of the same region";
  EXPECT_EQ(t.note(blocks(kBlocks, 0)).tables, 0u);
  EXPECT_EQ(t.note(blocks(kRanges * kBlocks, 1)).entries, kOfARange + kOfARegion);
  EXPECT_EQ(t.presumed(), 3 * PageTables::kPresumed);

  std::vector<std::uint64_t> asked;
  const std::uint64_t gone = t.give_back([&](BlockRange range) {
    EXPECT_EQ(range.count, kBlocks);
    asked.push_back(raw(range.first));
    return range.first == BlockId{0};
  });
  EXPECT_EQ(gone, 1u);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{0, kBlocks, kRanges * kBlocks}));
  EXPECT_EQ(t.note(blocks(kBlocks, 1)).tables, 0u) << "it stays known";
  EXPECT_EQ(t.entries(), 2 * kOfARange + 2 * kOfARegion);
  const auto again = t.note(blocks(5, 1));
  EXPECT_EQ(again.tables, PageTables::kPresumed);
  EXPECT_EQ(again.entries, kOfARange) << "what there is for a region stays";
}

TEST(PageTables, SmallPagesHaveMoreEntries) {
  EXPECT_EQ(make(kRanges, kSmallestPageBytes).note(blocks(0, 1)).entries, kOfARange + kOfARegion + 4);
}

TEST(PageTables, AnEndThatIsNoWholeRangeStays) {
  const auto pages = Pages::uniform(kRange + kPageBytes);
  auto t = PageTables::create(kRange + kPageBytes, *pages);
  ASSERT_TRUE(t.has_value());
  EXPECT_EQ(t->note(blocks(0, kBlocks + 1)).tables, 2 * PageTables::kPresumed);
  EXPECT_EQ(t->give_back([](BlockRange) { return true; }), 1u);
  EXPECT_EQ(t->note(blocks(kBlocks, 1)).tables, 0u);
}

TEST(PageTables, WhatIsNotedWhileARangeGoesStaysKnown) {
  PageTables t = make(4);
  static_cast<void>(t.note(blocks(0, 1)));
  for (const bool went : {true, false}) {
    const std::uint64_t gone = t.give_back([&](BlockRange) {
      EXPECT_EQ(t.note(blocks(0, 1)).tables, PageTables::kPresumed);
      return went;
    });
    EXPECT_EQ(gone, 1u) << "it was charged twice";
    EXPECT_EQ(t.note(blocks(0, 1)).tables, 0u);
    EXPECT_EQ(t.entries(), kOfARange + kOfARegion);
  }
}

TEST(PageTables, ThreadsThatUseARangeTogetherCountItOnce) {
  constexpr std::uint64_t kAll = 4096;
  PageTables t = make(kAll);
  std::atomic<std::uint64_t> tables{0}, entries{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t r = 0; r < kAll; ++r) {
        const auto fresh = t.note(blocks(r * kBlocks, 1));
        tables += fresh.tables, entries += fresh.entries;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tables, kAll * PageTables::kPresumed);
  EXPECT_EQ(entries, kAll * kOfARange + kAll / kRanges * kOfARegion);
  EXPECT_EQ(t.entries(), entries);
  EXPECT_EQ(t.presumed(), tables);
}

TEST(PageTables, WhatTheKernelSaysTakesThePlaceOfWhatWasPresumed) {
  PageTables t = make(1024);
  static_cast<void>(t.measure());
  const std::uint64_t before = t.tables();
  const Touched memory(512);
  for (std::uint64_t r = 0; r < 512; ++r) static_cast<void>(t.note(blocks(r * kBlocks, 1)));
  EXPECT_EQ(t.tables(), before + 512 * PageTables::kPresumed);
  const auto [charged, now] = t.measure();
  EXPECT_EQ(charged, before + 512 * PageTables::kPresumed);
  EXPECT_EQ(t.tables(), now);
  EXPECT_EQ(t.presumed(), 0u);
  EXPECT_GE(now, before + 512) << "the tables are there";
  EXPECT_LE(now, before + 1536)
      << "and not four times as many; a sanitizer's shadow of the memory has as many again";
}

TEST(PageTables, TheirBytesAreTheKernels) {
  const std::uint64_t before = page_table_bytes();
  EXPECT_NE(before, 0u);
  std::uint64_t with = 0;
  {
    const Touched memory(256);
    with = page_table_bytes();
  }
  EXPECT_GE(with, before + 256 * kBlockBytes);
  EXPECT_LE(page_table_bytes(), with - 256 * kBlockBytes);
}

TEST(PageTables, TranslationsThatAreDroppedComeBack) {
  void* got = ::mmap(nullptr, kTable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(got, MAP_FAILED);
  auto* words = static_cast<volatile std::uint64_t*>(got);
  words[0] = 7;
  words[kTable / 8 - 1] = 8;
  drop_translations(static_cast<std::byte*>(got), kTable);
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[kTable / 8 - 1], 8u);
  ::munmap(got, kTable);
}

// Two ranks of a host; one has debt, and none of its threads waits. As long as it asks, the other gets no
// more than its share.
class RoomOfTwo : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTotal = 2048;
  void SetUp() override {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto made = Residency::create(space_[rank], pages_, host_, rank, {.range = {0, space_[rank].bytes()}});
      ASSERT_TRUE(made.has_value());
      rank_[rank] = std::move(*made);
    }
    rank_[0]->fill({BlockId{0}, kTotal - PageTables::kRangeBlocks / 4});
    // Fills everything; rank 1 finds nothing
    for (std::uint64_t b = 0; rank_[0]->short_of(1) == 0; ++b) rank_[0]->fill_twin(BlockId{b});
    const std::uint32_t rings = rank_[1]->rings();
    rank_[1]->fill_twin(BlockId{0});
    ASSERT_NE(rank_[1]->rings(), rings);
    ASSERT_TRUE(rank_[1]->balance(0)) << "others are to be rung";
    ASSERT_EQ(rank_[1]->short_of(0), 1u) << "debt";
    ASSERT_NE(rank_[0]->short_of(0), 0u) << "asked for";
  }

  const std::array<Space, 2> space_{make_space(4 * kRange), make_space(4 * kRange)};
  const Pages pages_ = *Pages::uniform(4 * kRange);
  const std::unique_ptr<void, void (*)(void*)> memory_{std::aligned_alloc(64, HostBudget::bytes(2)),
                                                       &std::free};
  HostBudget& host_ = *new (memory_.get()) HostBudget(kTotal, 2);
  std::array<std::unique_ptr<Residency>, 2> rank_;
};

TEST_F(RoomOfTwo, WhoGivesIsToldToRing) {
  while (rank_[0]->balance(0)) {
  }
  const std::uint32_t rings = rank_[0]->rings();
  rank_[0]->empty({BlockId{0}, 1024});
  EXPECT_NE(rank_[0]->rings(), rings);
  EXPECT_TRUE(rank_[0]->balance(0));
  EXPECT_FALSE(rank_[0]->balance(0)) << "once";
  EXPECT_FALSE(rank_[1]->balance(0));
  EXPECT_EQ(rank_[1]->short_of(0), 0u);
  EXPECT_TRUE(rank_[0]->admitted(1000)) << "above its share: no rank asks any more";
}

TEST_F(RoomOfTwo, AnAskEndsWithWhatWasOwed) {
  const std::uint32_t rings = rank_[1]->rings();
  rank_[1]->empty({BlockId{0}, 1});  // its twin, which was debt
  EXPECT_EQ(rank_[1]->short_of(0), 0u);
  ASSERT_NE(rank_[1]->rings(), rings);
  EXPECT_FALSE(rank_[1]->balance(0));
  EXPECT_EQ(rank_[0]->short_of(0), 0u);
  rank_[0]->empty({BlockId{0}, 1024});
  EXPECT_TRUE(rank_[0]->admitted(1000));
}

TEST_F(RoomOfTwo, AnAskEndsWithTheWaitOfWhoDidNotNeedIt) {
  rank_[1]->empty({BlockId{0}, 1});
  rank_[1]->want(2);
  EXPECT_TRUE(
      rank_[1]->balance(Need{}.next(rank_[1]->take_wanted(), rank_[1]->take_relieved(), false).blocks));
  EXPECT_EQ(rank_[0]->short_of(0), 2u);
  const std::uint32_t rings = rank_[1]->rings();
  rank_[1]->note_relieved();
  EXPECT_NE(rank_[1]->rings(), rings);
  EXPECT_TRUE(rank_[1]->take_relieved());
  EXPECT_FALSE(rank_[1]->balance(0));
  EXPECT_EQ(rank_[0]->short_of(0), 0u);
}

// The kernel has not freed them yet, and a control group counts them.
TEST(PageTables, ThoseOnTheirWayToTheKernelStayCharged) {
  constexpr std::uint64_t kTotal = 4096, kGone = 300;
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(64, HostBudget::bytes(1)),
                                                      &std::free);
  auto& host = *new (memory.get()) HostBudget(kTotal, 1);
  const Space space = make_space(4 * kRange);
  const auto pages = Pages::uniform(space.bytes());
  ASSERT_TRUE(pages.has_value());
  auto made = Residency::create(space, *pages, host, 0, {.range = {0, space.bytes()}});
  ASSERT_TRUE(made.has_value());
  Residency& residency = **made;
  EXPECT_EQ(residency.many_tables(), kTotal / 16);
  const std::uint64_t used = residency.used();
  residency.note_leaving_tables(kGone);
  residency.note_leaving_tables(kGone);
  EXPECT_EQ(residency.leaving_tables(), 2 * kGone);
  EXPECT_EQ(residency.used(), used + 2 * kGone);
  EXPECT_FALSE(residency.admitted(kTotal - 2 * kGone + 1)) << "no other use gets their room";
  EXPECT_TRUE(residency.admitted(kTotal - 2 * kGone));
  residency.see_off_tables();
  EXPECT_EQ(residency.leaving_tables(), 0u);
  EXPECT_EQ(residency.used(), used);
  EXPECT_TRUE(residency.admitted(kTotal));
  residency.note_leaving_tables(2 * kTotal);  // more than there is: debt, then paid
  EXPECT_FALSE(residency.admitted(1));
  residency.see_off_tables();
  EXPECT_EQ(residency.used(), used);
  EXPECT_TRUE(residency.admitted(kTotal));
}

}  // namespace
}  // namespace kasane::mem
