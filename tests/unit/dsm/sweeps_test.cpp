// SPDX-License-Identifier: Apache-2.0
// How far a fault goes: sweeps are recognised, up, down and with strides, several at once; other faults bring
// next to nothing.
#include "dsm/sweeps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace kasane::dsm {
namespace {

constexpr std::uint64_t kPage = 16;  ///< blocks

/// Blocks that are here. A fault at another block brings what its sweep deserves: runs within their window,
/// which here is a page, strides from other pages, too.
class Reader {
 public:
  void touch(std::uint64_t block) {
    if (here_.count(block) != 0) return;
    if (asleep_ && present_.insert(block / kPage).second) {
      ++faults_;
      Sweeps::Sweep& sweep = sweeps_.match(block, 2, epoch_);
      sweep.took(sweep.blocks());
      sweeps_.will_repeat();
    }
    ++faults_;
    Sweeps::Sweep& sweep = sweeps_.match(block, 2, epoch_);
    EXPECT_LE(sweep.blocks(), Sweeps::kMost);
    here_.insert(block);
    std::uint32_t took = 1;
    for (; took < sweep.blocks(); ++took) {
      const std::uint64_t further = block + static_cast<std::uint64_t>(took * sweep.stride());
      const bool leaves = further / kPage != block / kPage;
      if ((leaves && (std::abs(sweep.stride()) == 1 || took >= sweep.beyond_page())) ||
          !here_.insert(further).second)
        break;
    }
    sweep.took(took);
    if (of_another_rank_) sweep.served();
  }
  /// From now on all pages are of this rank.
  void own_pages() { of_another_rank_ = false; }
  /// From now on pages must be made present, by a fault each that gets nothing.
  void pages_sleep() { asleep_ = true; }
  /// Like an acquire.
  void drop() {
    here_.clear();
    ++epoch_;
  }
  /// Since it was last asked.
  std::uint64_t faults() { return std::exchange(faults_, 0); }
  [[nodiscard]] std::uint64_t here() const { return here_.size(); }

 private:
  Sweeps sweeps_;
  std::set<std::uint64_t> here_, present_;
  bool asleep_ = false, of_another_rank_ = true;
  std::uint64_t faults_ = 0, epoch_ = 0;
};

std::vector<std::uint64_t> sweep(std::uint64_t first, std::int64_t stride, std::uint64_t blocks) {
  std::vector<std::uint64_t> all(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i)
    all[i] = first + static_cast<std::uint64_t>(stride * static_cast<std::int64_t>(i));
  return all;
}
std::uint64_t pages(const std::vector<std::uint64_t>& blocks) {
  std::set<std::uint64_t> all;
  for (const std::uint64_t b : blocks) all.insert(b / kPage);
  return all.size();
}

constexpr std::int64_t kStrides[] = {1, -1, 2, -2, 3, -3, 5, -5, 7, -7, 15, -15};

TEST(Sweeps, TakeAFaultFor16BlocksOnceTheyAreKnownAndNothingElse) {
  for (const std::int64_t stride : kStrides) {
    Reader reader;
    const auto blocks = sweep(10'000, stride, 300);
    for (const std::uint64_t b : blocks) reader.touch(b);
    const std::uint64_t at_best =
        std::abs(stride) == 1 ? pages(blocks) : (blocks.size() + Sweeps::kMost - 1) / Sweeps::kMost;
    EXPECT_LE(reader.faults(), at_best + 5) << stride;
    EXPECT_LT(reader.here(), blocks.size() + Sweeps::kMost) << stride;
    for (int epoch = 0; epoch < 3; ++epoch) {  // it begins where it began before
      reader.drop();
      for (const std::uint64_t b : blocks) reader.touch(b);
      EXPECT_EQ(reader.faults(), at_best) << stride;
    }
  }
}

TEST(Sweeps, LeaveTheirPageFromTheThirdFaultOn) {
  for (const std::int64_t stride : {16, -16, 17, 40}) {
    Reader reader;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(reader.here(), i);
      reader.touch(static_cast<std::uint64_t>(10'000 + i * stride));
    }
    EXPECT_EQ(reader.here(), 4u) << stride;
  }
  Sweeps sweeps;  // a run
  for (std::uint64_t b = 0; b < 5; ++b) {
    Sweeps::Sweep& s = sweeps.match(b, 2, 0);
    EXPECT_EQ(s.beyond_page() != 0, b >= 2);
    s.took(1);
    s.served();
  }
}

TEST(Sweeps, OverOwnPagesTakeEachByItself) {
  for (const std::int64_t stride : {16, -17, 40}) {
    Reader reader;
    reader.own_pages();
    const auto blocks = sweep(10'000, stride, 50);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const std::uint64_t b : blocks) reader.touch(b);
      EXPECT_EQ(reader.faults(), pages(blocks)) << stride;
      EXPECT_EQ(reader.here(), blocks.size()) << stride;
      reader.drop();
    }
  }
}

TEST(Sweeps, GoOnWhereAFaultMustComeAgain) {
  for (const std::int64_t stride : kStrides) {
    Reader reader;
    reader.pages_sleep();
    const auto blocks = sweep(10'000, stride, 300);
    for (const std::uint64_t b : blocks) reader.touch(b);
    EXPECT_LE(reader.faults(), 2 * pages(blocks) + 4) << stride;
    EXPECT_LE(reader.here(), blocks.size() + kPage) << stride;
  }
}

TEST(Sweeps, ThatEndInTheirPageTakeOneFaultTheNextTime) {
  for (const std::int64_t stride : {1, -1, 2, -3}) {
    Reader reader;
    const auto blocks = sweep(stride > 0 ? 16 : 31, stride, 5);
    for (const std::uint64_t b : blocks) reader.touch(b);
    reader.faults();
    reader.drop();
    for (const std::uint64_t b : blocks) reader.touch(b);
    EXPECT_EQ(reader.faults(), 1u) << stride;
  }
}

TEST(Sweeps, GoDownToBlockZero) {
  Reader reader;
  for (std::uint64_t b = 64; b-- > 0;) reader.touch(b);
  EXPECT_EQ(reader.faults(), 4u + 4u);
  EXPECT_EQ(reader.here(), 64u);
}

TEST(Sweeps, GoOnBesideEachOther) {
  for (const std::uint64_t apart : {8, 40, 10'000}) {  // they may run over the same windows
    Reader reader;
    std::uint64_t all = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      reader.touch(100'000 + i);
      reader.touch(200'000 + 3 * i);
      reader.touch(300'000 - i);
      reader.touch(300'000 + apart + i);
      all += 4;
    }
    EXPECT_LE(reader.faults(), 3 * (200 / kPage + 6) + 3 * 200 / kPage + 6) << apart;
    EXPECT_LE(reader.here(), all + 4 * kPage) << apart;
  }
}

TEST(Sweeps, NeedOneNeighbourAboveOrBelow) {
  for (const std::uint64_t neighbour : {103, 105}) {
    Reader reader;
    reader.touch(104);
    reader.drop();  // also after an acquire
    reader.touch(neighbour);
    EXPECT_EQ(reader.here(), 2u);
  }
}

TEST(Sweeps, NeedAStrideTwice) {
  Reader reader;
  for (const std::uint64_t b : {100, 103, 107, 112, 118, 125}) reader.touch(b);
  EXPECT_EQ(reader.here(), 6u);
}

// Two blocks in every epoch, however near, are no sweep.
TEST(Sweeps, AreNotSeenInWhatIsTouchedAgain) {
  for (const std::uint64_t apart : {2, 5, 15}) {
    Reader reader;
    for (int epoch = 0; epoch < 20; ++epoch) {
      reader.drop();
      reader.touch(160);
      reader.touch(160 + apart);
      EXPECT_EQ(reader.here(), 2u) << apart;
    }
  }
}

// What others have changed, an epoch at a time, is no stride.
TEST(Sweeps, WithAStrideAreOfOneEpoch) {
  Reader reader;
  for (std::uint64_t b = 0; b < 15; b += 5) {
    reader.drop();
    reader.touch(b);
    EXPECT_EQ(reader.here(), 1u);
  }
}

TEST(Sweeps, AreSeldomSeenInWhatIsTouchedAtRandom) {
  Reader reader;
  std::mt19937_64 random(7);
  std::set<std::uint64_t> touched;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t b = random() % 100'000;
    touched.insert(b);
    reader.touch(b);
  }
  EXPECT_LE(reader.here(), touched.size() + touched.size() / 500);
}

// As for a page whose program wants nothing read ahead.
TEST(Sweeps, ThatAreShortenedBeginAnew) {
  Sweeps sweeps;
  for (std::uint64_t b = 0; b < 100; ++b) {
    Sweeps::Sweep& s = sweeps.match(b, 2, 0);
    EXPECT_LE(s.blocks(), 2u);
    s.shorten();
    EXPECT_EQ(s.blocks(), 1u);
    s.took(1);
  }
}

}  // namespace
}  // namespace kasane::dsm
