// SPDX-License-Identifier: Apache-2.0
// Pages on SSD that another rank asks for come in as a whole, and that rank puts to them unseen by their
// owner: what it did not change is not written again all the same, and what it did is. On 2 ranks, with data
// of twice the budget, all of rank 0's, of which the first and last word of a block are used.
#include <gtest/gtest.h>

#include <cstdint>
#include <kasane/kasane.hpp>
#include <utility>

#include "support/counts.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kBudget = 16 * kMiB, kData = 2 * kBudget;
constexpr std::size_t kBlock = 4096, kWords = kBlock / 8, kBlocks = kData / kBlock;
constexpr std::size_t kPiece = 2 * kMiB / kBlock;  ///< blocks that both ranks have in DRAM at once
constexpr std::uint64_t kPages = kData / kasane::page_default, kOfBudget = kBudget / kasane::page_default;

std::uint64_t value(std::size_t block, std::uint64_t round) {
  return (block + 1) * 0x9E3779B97F4A7C15u + round;
}

struct Seen {
  std::uint64_t bad = 0, spilled = 0, brought_in = 0;
};

/// The data, and what happens while they are used.
class Data {
 public:
  Data() : words_(static_cast<std::uint64_t*>(kasane::allocate(kData, 64, kasane::placement::on(0)))) {
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      at_[rank] = static_cast<std::uint64_t*>(kasane::allocate(8, 64, kasane::placement::on(rank)));
    everywhere(0, [](std::uint64_t* block, std::size_t b) {
      return block[0] = value(b, 0), block[kWords - 1] = 0, true;
    });
    seen_ = {};
  }
  ~Data() {
    for (std::uint64_t* p : {words_, at_[0], at_[1]}) kasane::deallocate(p);
  }

  /// right(block, its number) for some blocks, by a thread of that rank; false: it is not as it should be.
  template <class F>
  void blocks(std::uint32_t rank, std::size_t first, std::size_t count, const F& right) {
    const kasane::test::Counts before;
    std::uint64_t bad = 0;
    kasane::thread(kasane::near{at_[rank]}, [&] {
      bad += kasane::rank() != rank;
      for (std::size_t b = first; b < first + count; ++b) bad += !right(words_ + b * kWords, b);
    }).join();
    const kasane::test::Counts after;
    seen_.bad += bad;
    seen_.spilled += after["bytes_spilled"] - before["bytes_spilled"];
    seen_.brought_in += after["pages_brought_in"] - before["pages_brought_in"];
  }
  template <class F>
  void everywhere(std::uint32_t rank, const F& right) {
    blocks(rank, 0, kBlocks, right);
  }
  /// Pieces: first by rank 0, so that they are here in part, then by rank 1.
  template <class F, class G>
  void piecewise(const F& by_0, const G& by_1) {
    for (std::size_t first = 0; first < kBlocks; first += kPiece) {
      blocks(0, first, kPiece, by_0);
      blocks(1, first, kPiece, by_1);
    }
  }
  [[nodiscard]] const Seen& seen() const { return seen_; }
  void look_anew() { seen_.spilled = seen_.brought_in = 0; }

 private:
  std::uint64_t* words_;
  std::uint64_t* at_[2];  ///< where the ranks are
  Seen seen_;
};

bool as_filled(const std::uint64_t* block, std::size_t b) {
  return block[0] == value(b, 0) && block[kWords - 1] == 0;
}

// Written is at most what was changed when the sweeps began: what the budget holds.
TEST(Served, WhatNobodyChangedIsNotWrittenAgain) {
  const Seen seen = kasane::run([] {
    Data data;
    for (int sweep = 0; sweep < 2; ++sweep) {
      data.piecewise(as_filled, as_filled);  // first, so that nothing is known of what was here in part
      data.everywhere(1, as_filled);
    }
    return data.seen();
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.spilled, kBudget + kMiB);
  EXPECT_GE(seen.brought_in, 4 * (kPages - kOfBudget));
}

// The last word of each 32nd block, so of every other page.
TEST(Served, WhatAnotherRankChangedIsWritten) {
  constexpr std::size_t kEach = 32;
  const auto change = [](std::uint64_t* block, std::size_t b) {
    if (b % kEach == 0) block[kWords - 1] = value(b, 1);
    return block[0] == value(b, 0);
  };
  const auto as_changed = [](const std::uint64_t* block, std::size_t b) {
    return block[0] == value(b, 0) && block[kWords - 1] == (b % kEach == 0 ? value(b, 1) : 0);
  };
  const Seen seen = kasane::run([&] {
    Data data;
    for (int sweep = 0; sweep < 2; ++sweep) data.everywhere(1, as_filled);
    data.look_anew();
    data.everywhere(1, change);
    for (std::uint32_t rank : {0u, 1u, 0u}) data.everywhere(rank, as_changed);
    return data.seen();
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_GE(seen.spilled, kBlocks / kEach * kBlock / 2);  // the rest may be in DRAM still
  EXPECT_LE(
      seen.spilled,
      kBudget / 2);  // some is left of what was changed when it was filled; whole pages would be 100 MiB
}

// What was read once, and stored to there, has older bytes on SSD than those that it came with, when its
// owner stores these again.
TEST(Served, WhatIsAsItOnceWasIsWritten) {
  const auto read = [](const std::uint64_t* block, std::size_t b) { return block[0] == value(b, 0); };
  const auto change = [](std::uint64_t* block, std::size_t b) {
    return block[kWords - 1] = value(b, 1), block[0] == value(b, 0);
  };
  const auto change_back = [](std::uint64_t* block, std::size_t b) {
    return std::exchange(block[kWords - 1], 0) == value(b, 1);
  };
  const Seen seen = kasane::run([&] {
    Data data;
    data.everywhere(1, as_filled);
    data.everywhere(1, change);
    data.everywhere(1, read);
    data.piecewise(change_back, as_filled);
    for (std::uint32_t rank : {0u, 1u}) data.everywhere(rank, as_filled);
    return data.seen();
  });
  EXPECT_EQ(seen.bad, 0u);
}

}  // namespace
