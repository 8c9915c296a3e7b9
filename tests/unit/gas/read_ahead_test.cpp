// SPDX-License-Identifier: Apache-2.0
// Which pages are read with the one that is asked for: those of sweeps, whatever else goes on; other requests
// bring next to nothing.
#include "gas/read_ahead.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace kasane::gas {
namespace {

constexpr std::uint32_t kMost = ReadAhead::kMost;

/// Pages that are here: asks for those that are not, and takes what comes along.
class Reader {
 public:
  explicit Reader(std::uint32_t most = kMost) : most_(most) {}
  void touch(std::uint64_t page) {
    if (here_.count(page) != 0) return;
    ++asked_;
    here_.insert(page);
    take(ahead_.ask(page, most_));
  }
  /// As a thread that asks again for each page that others brought first.
  void touch_and_ask(std::uint64_t page) {
    if (here_.count(page) == 0) return touch(page);
    if (first_.count(page) != 0) take(ahead_.ask(page, most_));
  }
  void bring(std::uint64_t page) { here_.insert(page); }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  [[nodiscard]] std::uint64_t came() const { return here_.size(); }
  [[nodiscard]] const std::set<std::uint64_t>& here() const { return here_; }

 private:
  void take(const ReadAhead::Plan& plan) {
    EXPECT_LE(plan.pieces, most_);
    for (std::uint32_t i = 0; i < plan.pieces; ++i)
      here_.insert(static_cast<std::uint64_t>(plan.first + plan.stride * i));
    if (plan.pieces != 0) first_.insert(static_cast<std::uint64_t>(plan.first));
  }
  ReadAhead ahead_;
  std::uint32_t most_;
  std::set<std::uint64_t> here_, first_;
  std::uint64_t asked_ = 0;
};

/// The sweep's first pages teach; from then on windows double up to the most, or half of it where there are
/// several.
void expect_few(const Reader& reader, std::uint64_t pages, std::uint64_t sweeps) {
  EXPECT_LE(reader.asked(), pages * (sweeps > 1 ? 2 : 1) / kMost + sweeps * 10);
  EXPECT_LE(reader.came(), pages + sweeps * kMost / (sweeps > 1 ? 2 : 1));
}

TEST(ReadAhead, FollowsASweepUpwards) {
  Reader reader;
  for (std::uint64_t p = 1000; p < 3000; ++p) reader.touch(p);
  expect_few(reader, 2000, 1);
}

TEST(ReadAhead, FollowsASweepDownToPageZero) {
  Reader reader;
  for (std::uint64_t p = 2000; p-- > 0;) reader.touch(p);
  expect_few(reader, 2000, 1);
  EXPECT_LT(*reader.here().rbegin(), 2000u);
}

/// Four pieces at once, in the order that they are said to have; how many had been planned before.
std::uint64_t ask_for_four(ReadAhead& ahead, std::uint64_t first, std::set<std::uint64_t>& planned) {
  const bool down = ahead.descends(first, first + 3);
  std::uint64_t came = 0;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::uint64_t at = down ? first + 3 - i : first + i;
    came += planned.count(at);
    const ReadAhead::Plan plan = ahead.ask(at, kMost);
    for (std::uint32_t k = 0; k < plan.pieces; ++k)
      planned.insert(static_cast<std::uint64_t>(plan.first + plan.stride * k));
  }
  return came;
}

TEST(ReadAhead, FollowsSweepsWhosePiecesAreAskedForSomeAtOnce) {
  ReadAhead ahead;
  std::set<std::uint64_t> planned;
  std::uint64_t came = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {  // one down, two up
    came += ask_for_four(ahead, 5000 - 4 * i, planned);
    came += ask_for_four(ahead, 10'000 + 4 * i, planned);
    came += ask_for_four(ahead, 20'000 + 4 * i, planned);
  }
  EXPECT_GE(came, 3 * 4 * 200u - 60);
  EXPECT_LE(planned.size(), 3 * (4 * 200u + kMost) + 60);
}

TEST(ReadAhead, FollowsStridesAndBringsNothingBetween) {
  for (const std::uint64_t stride : {2, 7, 64}) {
    Reader reader;
    for (std::uint64_t i = 0; i < 1000; ++i) reader.touch(5000 + i * stride);
    expect_few(reader, 1000, 1);
    for (const std::uint64_t p : reader.here()) EXPECT_EQ((p - 5000) % stride, 0u);
  }
}

TEST(ReadAhead, FollowsSweepsOfSeveralThreadsAtOnce) {
  Reader reader;
  for (std::uint64_t i = 0; i < 500; ++i)
    for (std::uint64_t sweep = 0; sweep < 12; ++sweep)
      reader.touch(sweep * 100'000 + (sweep % 2 == 0 ? i : 1000 - i));
  expect_few(reader, 12 * 500, 12);
}

// … and is asked when it gets to the first page that was brought last: then nothing is ever missing.
TEST(ReadAhead, StaysAheadOfWhoAsksInTime) {
  for (const std::int64_t stride : {1, -1, 3}) {
    Reader reader;
    for (std::int64_t i = 0; i < 1000; ++i)
      reader.touch_and_ask(static_cast<std::uint64_t>(10'000 + stride * i));
    EXPECT_LE(reader.asked(), 4u);
    EXPECT_LE(reader.came(), 1000u + 2 * kMost);
  }
}

// A sweep over the same memory begins anew, wherever the last one got to.
TEST(ReadAhead, FollowsSweepsOverTheSameMemory) {
  for (const std::uint64_t pages : {20, 60, 100, 300}) {
    ReadAhead ahead;
    for (int sweep = 0; sweep < 3; ++sweep) {
      std::uint64_t brought = 0;
      std::set<std::uint64_t> first{0, 1};
      for (std::uint64_t p = 0; p < pages; ++p) {
        if (first.count(p) == 0) continue;
        const ReadAhead::Plan plan = ahead.ask(p, kMost);
        first.insert(static_cast<std::uint64_t>(plan.first));
        brought += plan.pieces;
      }
      EXPECT_GE(brought, pages - 2) << "sweep " << sweep << " over " << pages;
    }
  }
}

// Asking again for what was asked for, or brought, changes nothing.
TEST(ReadAhead, BringsNothingTwice) {
  ReadAhead ahead;
  static_cast<void>(ahead.ask(50, kMost));
  EXPECT_EQ(ahead.ask(50, kMost).pieces, 0u);
  EXPECT_EQ(ahead.ask(51, kMost).pieces, 1u);  // 52
  EXPECT_EQ(ahead.ask(51, kMost).pieces, 0u);
  EXPECT_EQ(ahead.ask(52, kMost).first, 53);  // and 54
  EXPECT_EQ(ahead.ask(51, kMost).pieces, 0u);
  EXPECT_EQ(ahead.ask(52, kMost).pieces, 0u);
}

TEST(ReadAhead, GoesOnWherePagesAreHereAlready) {
  Reader reader;
  for (std::uint64_t p = 0; p < 4000; p += 40)
    for (std::uint64_t i = 0; i < 10; ++i) reader.bring(p + i);
  const std::uint64_t before = reader.came();
  for (std::uint64_t p = 0; p < 4000; ++p) reader.touch(p);
  EXPECT_LE(reader.asked(), 4000 / kMost + 20);
  EXPECT_LE(reader.came(), 4000 + before + kMost);
}

TEST(ReadAhead, BringsHardlyMoreThanRandomAccessesAskFor) {
  Reader reader;
  std::uint64_t x = 1;
  for (int i = 0; i < 5000; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    reader.touch((x >> 33) % 1'000'000);
  }
  EXPECT_LE(reader.came(), reader.asked() + reader.asked() / 20);
}

TEST(ReadAhead, BeginsAtItsWidestWhereSweepsAreKnownToAscend) {
  ReadAhead ahead;
  const auto first = ahead.ask(100, kMost, ReadAhead::Known::ascends);
  EXPECT_EQ(first.pieces, kMost);
  EXPECT_EQ(first.first, 101);
  EXPECT_EQ(first.stride, 1);
  EXPECT_EQ(ahead.ask(101, kMost, ReadAhead::Known::ascends).pieces, 0u);  // there is enough
  const auto second = ahead.ask(100 + kMost / 4, kMost, ReadAhead::Known::ascends);
  EXPECT_EQ(second.pieces, kMost / 4);
  EXPECT_EQ(second.first, 101 + kMost);
  EXPECT_EQ(ReadAhead().ask(5000, 3, ReadAhead::Known::ascends).pieces, 3u);  // and there may be less room
}

// A range that the program will overwrite is asked for at the ends of pieces only, block by block: that looks
// like a sweep, or one with a stride.
TEST(ReadAhead, FollowsNobodyWhoOverwrites) {
  using enum ReadAhead::Purpose;
  ReadAhead ahead;
  for (std::uint64_t p = 0; p < 400; p += 4) {
    ahead.overwrites(p, p + 3);
    ahead.overwrites(p + 1, p + 2);  // said once more
    EXPECT_EQ(ahead.ask(p, kMost, ReadAhead::Known::nothing, store).pieces, 0u);
    EXPECT_EQ(ahead.ask(p + 3, kMost, ReadAhead::Known::nothing, store).pieces, 0u);
  }
  // A thread that loads from it is followed at once, from then on also where it was overwritten last.
  std::uint32_t came = 0;
  for (std::uint64_t p = 380; p < 386; ++p)
    came += ahead.ask(p, kMost, ReadAhead::Known::nothing, load).pieces;
  EXPECT_GE(came, 8u);
  // So is one that stores elsewhere, or where something was to be overwritten long ago.
  for (const std::uint64_t begin : {0u, 1000u}) {
    came = 0;
    for (std::uint64_t p = begin; p < begin + 6; ++p)
      came += ahead.ask(p, kMost, ReadAhead::Known::nothing, store).pieces;
    EXPECT_GE(came, 8u) << begin;
  }
}

// Where there is room for less than it would take, the next pieces follow when a quarter of what there is
// room for was used: before the program has to wait.
TEST(ReadAhead, AsksInTimeWhereThereIsLittleRoom) {
  constexpr std::uint32_t kRoom = 8;
  ReadAhead ahead;
  (void)ahead.ask(100, kRoom, ReadAhead::Known::ascends);
  EXPECT_EQ(ahead.ask(101, kRoom).pieces, 0u);
  EXPECT_EQ(ahead.ask(102, kRoom).pieces, 2u);
}

// A sweep that is alone has all the room; of several each has half.
TEST(ReadAhead, SharesTheRoom) {
  ReadAhead ahead;
  const auto first = ahead.ask(1000, kMost, ReadAhead::Known::ascends),
             second = ahead.ask(9000, kMost, ReadAhead::Known::ascends);
  EXPECT_EQ(first.pieces, kMost);
  EXPECT_EQ(second.pieces, kMost / 2);
  // The first one has enough now; and when the second was not used for a while, it gets all again.
  EXPECT_EQ(ahead.ask(1000 + kMost / 4, kMost).pieces, 0u);
  std::uint32_t more = 0;
  for (std::uint64_t i = 0; i < 100; ++i) more += ahead.ask(1000 + kMost / 4, kMost).pieces;
  EXPECT_EQ(more, kMost / 4);
}

TEST(ReadAhead, TakesNoMoreThanThereIsRoomFor) {
  Reader one(0);
  for (std::uint64_t p = 0; p < 100; ++p) one.touch(p);
  EXPECT_EQ(one.asked(), 100u);
}

}  // namespace
}  // namespace kasane::gas
