// SPDX-License-Identifier: Apache-2.0
// Allocations in pages of 4 KiB, 64 KiB and 2 MiB: each has the pages it asked for, and keeps what threads
// write while its pages move from rank to rank.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <kasane/kasane.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/rank/runtime.h"
#include "support/counts.h"

namespace {

using kasane::placement;

constexpr std::size_t kSizes[] = {kasane::page_small, kasane::page_default, kasane::page_large};
constexpr placement kPlacements[] = {placement::local, placement::block, placement::cyclic};

/// The calling thread's rank becomes the owner of the range's pages.
bool own(void* p, std::size_t bytes) {
  return kasane::runtime::Runtime::current()->own(p, bytes).has_value();
}

// Its workers share what they see, and hand threads to each other.
TEST(Pages, OneRankFaultsAtTheFirstTouchAndNeverFences) {
  if (kasane::ranks() != 1) GTEST_SKIP() << "several ranks share by faults and fences";
  const auto [faults, fences, wrong] = kasane::run([] {
    constexpr std::size_t kWords = std::size_t{1} << 20;
    constexpr std::uint64_t kRounds = 20;
    const auto x = kasane::make_array<std::uint64_t>(kWords);
    const auto touch = [&] {
      kasane::parallel_for(x.get(), x.get() + kWords, [](std::uint64_t& word) { ++word; });
    };
    touch();
    const kasane::test::Counts before;
    for (std::uint64_t round = 1; round < kRounds; ++round) touch();
    const kasane::test::Counts after;
    const auto sum = [](const kasane::test::Counts& c) {
      return c["releases"] + c["releases_combined"] + c["acquires"] + c["acquires_combined"];
    };
    std::size_t bad = 0;
    for (std::size_t i = 0; i < kWords; ++i) bad += x.get()[i] != kRounds;
    return std::tuple(
        after["faults_read"] + after["faults_write"] - before["faults_read"] - before["faults_write"],
        sum(after) - sum(before), bad);
  });
  EXPECT_EQ(faults, 0u);
  EXPECT_EQ(fences, 0u);
  EXPECT_EQ(wrong, 0u);
}

TEST(Pages, AnAllocationHasThoseItAskedFor) {
  for (const std::size_t page : kSizes) {
    for (const placement where : kPlacements) {
      const auto [aligned, misplaced, elsewhere, moved] = kasane::run([&] {
        constexpr std::size_t kBytes = 4 << 20;
        const std::size_t pages = kBytes / page;
        auto* p = static_cast<char*>(kasane::allocate(kBytes, 64, where.in_pages(page)));
        std::size_t wrong = 0, foreign = 0;
        for (std::size_t i = 0; i < pages; ++i) {
          const std::uint32_t first = kasane::where(p + i * page),
                              last = kasane::where(p + (i + 1) * page - 1);
          const std::size_t expected = where == placement::local   ? kasane::rank()
                                       : where == placement::block ? i * kasane::ranks() / pages
                                                                   : i % kasane::ranks();
          wrong += first != expected || last != expected;
          foreign += first != kasane::rank();
        }
        // Nothing else runs, so no page but these is counted.
        const std::uint64_t before = kasane::counter("pages_moved", kasane::rank());
        const bool owned = own(p, kBytes);
        const std::uint64_t after = kasane::counter("pages_moved", kasane::rank());
        const bool is_aligned = reinterpret_cast<std::uintptr_t>(p) % page == 0;
        kasane::deallocate(p);
        return std::tuple{owned && is_aligned, wrong, foreign, after - before};
      });
      EXPECT_TRUE(aligned);
      EXPECT_EQ(misplaced, 0u) << "pages of " << page;
      EXPECT_EQ(moved, elsewhere) << "pages of " << page;
    }
  }
}

// Many threads, wherever they run, write bytes of their own all over the memory and take its pages in
// passing.
TEST(Pages, KeepWhatThreadsWriteWhileTheyMove) {
  for (const std::size_t page : kSizes) {
    for (const placement where : kPlacements) {
      const std::uint64_t wrong = kasane::run([&] {
        constexpr int kThreads = 16, kRounds = 4;
        const std::size_t bytes = 512 * 1024 < 2 * page ? 2 * page : 512 * 1024, cells = bytes / 1024;
        auto* p = static_cast<unsigned char*>(kasane::allocate(bytes, 64, where.in_pages(page)));
        std::uint64_t all_wrong = 0;
        for (int round = 1; round <= kRounds; ++round) {
          kasane::parallel_for(
              0, kThreads,
              [=](int t) {
                for (std::size_t i = 0; i < cells; ++i) {
                  const std::size_t cell = (i * 5 + static_cast<std::size_t>(t) * 97) %
                                           cells;  // 5: no divisor, cells are a power of two
                  p[cell * 1024 + static_cast<std::size_t>(t)] = static_cast<unsigned char>(16 * round + t);
                  if (i % (cells / 4) == 3) own(p + cell * 1024, 1);  // refused for none: nothing is pinned
                }
              },
              1);
          all_wrong += kasane::parallel_reduce(
              std::size_t{0}, cells, std::uint64_t{0},
              [=](std::size_t cell) {
                std::uint64_t n = 0;
                for (int t = 0; t < kThreads; ++t)
                  n += p[cell * 1024 + static_cast<std::size_t>(t)] !=
                       static_cast<unsigned char>(16 * round + t);
                return n;
              },
              [](std::uint64_t a, std::uint64_t b) { return a + b; });
        }
        kasane::deallocate(p);
        return all_wrong;
      });
      EXPECT_EQ(wrong, 0u) << "pages of " << page;
    }
  }
}

// Upwards, downwards and with strides: blocks come with the one at which a load faults, of its page and of
// others, and none that is not used. Each time in pages where no sweep has been yet, and none was going;
// behind them are pages of this rank's own, or such as nobody has touched, where it ends. So few faults draw
// no page here.
TEST(Pages, OfAnotherRankAreSweptOverWithFewFaults) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank faults on nothing of another";
  constexpr std::int64_t kBlockBytes = 4096, kBlocks = 256, kBytes = kBlocks * kBlockBytes,
                         kGap = kasane::page_default;
  constexpr std::array<std::int64_t, 7> kStrides{1, -1, 6, -6, 3, -5, 16};
  struct Cost {
    std::uint64_t faults, fetched, used;
  };
  for (const std::size_t page : {kasane::page_small, kasane::page_default}) {
    const auto costs = kasane::run([&] {
      std::array<Cost, kStrides.size()> all{};
      const placement there = placement::on((kasane::rank() + 1) % kasane::ranks());
      auto* p = static_cast<char*>(kasane::allocate(kStrides.size() * (kBytes + kGap) + kGap,
                                                    kasane::page_default, there.in_pages(page)));
      const std::vector<char> zeros(kBytes);
      for (std::size_t i = 0; i <= kStrides.size(); ++i) {
        char* const gap = p + static_cast<std::int64_t>(i) * (kBytes + kGap);
        if (i % 4 == 1) own(gap, kGap);
        if (i != kStrides.size())
          kasane::put(gap + kGap, zeros.data(), zeros.size());  // its owner has them in DRAM
      }
      for (std::size_t i = 0; i < kStrides.size(); ++i) {
        const volatile char* blocks = p + static_cast<std::int64_t>(i) * (kBytes + kGap) + kGap;
        const kasane::test::Counts before(kasane::rank());
        std::uint64_t used = 0;
        for (std::int64_t b = kStrides[i] > 0 ? 0 : kBlocks - 1; b >= 0 && b < kBlocks;
             b += kStrides[i], ++used)
          static_cast<void>(blocks[b * kBlockBytes]);
        const kasane::test::Counts after(kasane::rank());
        all[i] = {
            after["faults_read"] - before["faults_read"] - (after["faults_again"] - before["faults_again"]),
            after["blocks_fetched"] - before["blocks_fetched"], used};
      }
      kasane::deallocate(p);
      return all;
    });
    for (std::size_t i = 0; i < kStrides.size(); ++i) {
      // One for 16 blocks, and five where the first teach.
      EXPECT_LE(costs[i].faults, costs[i].used / 16 + 5) << "stride " << kStrides[i] << ", pages of " << page;
      EXPECT_EQ(costs[i].fetched, costs[i].used) << "stride " << kStrides[i] << ", pages of " << page;
    }
  }
}

/// KiB of shared memory that is mapped in this process.
long shared_kib() {
  std::ifstream status("/proc/self/status");
  long kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (std::sscanf(line.c_str(), "RssShmem: %ld", &kib) == 1) break;
  }
  return kib;
}

// Rows of a page and 16 bytes, of which 2 KiB are used (SPLASH's ocean): a first touch is one fault, and
// memory is what is touched, in blocks.
TEST(Pages, RowsTakeTheBlocksThatAreTouched) {
  constexpr std::size_t kRows = 512, kRow = kasane::page_default + 16, kUsed = 2048, kBlock = 4096;
  struct Seen {
    std::uint64_t blocks, faults, again, wrong;
    long kib;
  };
  const Seen seen = kasane::run([] {
    auto* const rows =
        static_cast<unsigned char*>(kasane::allocate(kRows * kRow, 64, placement::first_touch));
    std::uint64_t blocks = 0, wrong = 0;
    const auto block_of = [](const unsigned char* p) { return reinterpret_cast<std::uintptr_t>(p) / kBlock; };
    for (std::size_t i = 0; i < kRows; ++i)
      blocks += block_of(rows + i * kRow + kUsed - 1) - block_of(rows + i * kRow) + 1;
    const long kib = shared_kib();
    const kasane::test::Counts before;
    for (std::size_t i = 0; i < kRows; ++i) std::memset(rows + i * kRow, static_cast<int>(i % 251), kUsed);
    const kasane::test::Counts after;
    const long grown = shared_kib() - kib;
    for (std::size_t i = 0; i < kRows; ++i)
      for (std::size_t k = 0; k < kUsed; ++k) wrong += rows[i * kRow + k] != i % 251;
    kasane::deallocate(rows);
    return Seen{blocks, after["faults_write"] - before["faults_write"],
                after["faults_again"] - before["faults_again"], wrong, grown};
  });
  EXPECT_EQ(seen.wrong, 0u);
  EXPECT_LE(seen.faults, seen.blocks + 16);  // other threads of the ranks have some
  EXPECT_LE(seen.again, 16u);
  // In pages it would be 32 MiB. Frames of former uses of the memory may be mapped again.
  EXPECT_LE(seen.kib, static_cast<long>(2 * seen.blocks * kBlock / 1024) + 4096);
}

// From another rank's pages into this rank's, which it has not touched yet, and on into the other's: every
// block keeps what is stored there, and none is lost on the way.
TEST(Pages, AreSweptOverWhoeverOwnsThem) {
  constexpr std::int64_t kBlockWords = 4096 / 8, kBlocks = 256;
  for (const std::size_t page : {kasane::page_small, kasane::page_default}) {
    for (const placement where : {placement::block, placement::cyclic, placement::first_touch}) {
      for (const std::int64_t stride : {1, -2, 2, 3, -5}) {
        const std::uint64_t wrong = kasane::run([&] {
          auto* words = static_cast<std::uint64_t*>(
              kasane::allocate(kBlocks * kBlockWords * 8, kasane::page_default, where.in_pages(page)));
          const std::int64_t count = (kBlocks - 1) / std::abs(stride) + 1;
          const auto word = [=](std::int64_t i) {
            return words + (stride > 0 ? i * stride : kBlocks - 1 + i * stride) * kBlockWords;
          };
          std::uint64_t all_wrong = 0;
          for (std::uint64_t round = 1; round <= 2; ++round) {
            for (std::int64_t i = 0; i < count; ++i) *word(i) = round * 1000 + static_cast<std::uint64_t>(i);
            all_wrong += kasane::parallel_reduce(
                std::int64_t{0}, count, std::uint64_t{0},
                [=](std::int64_t i) {
                  return std::uint64_t{*word(i) != round * 1000 + static_cast<std::uint64_t>(i)};
                },
                [](std::uint64_t a, std::uint64_t b) { return a + b; });
          }
          kasane::deallocate(words);
          return all_wrong;
        });
        EXPECT_EQ(wrong, 0u) << "stride " << stride << ", pages of " << page;
      }
    }
  }
}

TEST(Pages, SmallObjectsOfEachSizeAreFreedAndGivenAgain) {
  for (const std::size_t page : kSizes) {
    EXPECT_TRUE(kasane::run([&] {
      bool good = true;
      const int count = page == kasane::page_large ? 5 : 300;  // each takes whole pages of these
      for (int round = 0; round < 3; ++round) {
        std::vector<unsigned char*> objects;
        for (int i = 0; i < count; ++i) {
          objects.push_back(
              static_cast<unsigned char*>(kasane::allocate(100, 16, placement::local.in_pages(page))));
          std::memset(objects.back(), i % 200, 100);
        }
        good = good && std::set<unsigned char*>(objects.begin(), objects.end()).size() == objects.size();
        kasane::thread([&] {  // maybe on another rank
          for (int i = 0; i < count; ++i) {
            good = good && objects[static_cast<std::size_t>(i)][99] == i % 200;
            kasane::deallocate(objects[static_cast<std::size_t>(i)]);
          }
        })
            .join();
      }
      return good;
    }));
  }
}

TEST(Pages, OfOtherSizesAreRefusedWithTheList) {
  kasane::run([] {
    for (const std::size_t page : {std::size_t{0}, std::size_t{1}, std::size_t{8192}, std::size_t{4} << 20}) {
      try {
        kasane::deallocate(kasane::allocate(100, 16, placement::local.in_pages(page)));
        ADD_FAILURE() << page;
      } catch (const kasane::error& e) {
        EXPECT_EQ(e.code(), EINVAL);
        EXPECT_NE(std::string(e.what()).find("4096, 65536 or 2097152"), std::string::npos) << e.what();
      }
    }
  });
}

TEST(Pages, AHeapThatIsTooSmallSaysSo) {
  for (const std::size_t page : kSizes) {
    kasane::run([&] {
      try {
        kasane::deallocate(kasane::allocate(std::size_t{1} << 50, 16, placement::local.in_pages(page)));
        ADD_FAILURE() << page;
      } catch (const std::bad_alloc& e) {
        EXPECT_NE(std::string(e.what()).find("--space"), std::string::npos) << e.what();
      }
    });
  }
}

}  // namespace
