// SPDX-License-Identifier: Apache-2.0
// Allocations in pages of 4 KiB, 64 KiB and 2 MiB: each has the pages it asked for, and keeps what threads write while its pages move from rank to rank.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/runtime.h"

namespace {

using kasane::placement;

constexpr std::size_t kSizes[] = {kasane::page_small, kasane::page_default, kasane::page_large};
constexpr placement kPlacements[] = {placement::local, placement::block, placement::cyclic};

/// The calling thread's rank becomes the owner of the range's pages.
bool own(void* p, std::size_t bytes) { return kasane::runtime::Runtime::current()->own(p, bytes).has_value(); }

TEST(Pages, AnAllocationHasThoseItAskedFor) {
  for (const std::size_t page : kSizes) {
    for (const placement where : kPlacements) {
      const auto [aligned, misplaced, elsewhere, moved] = kasane::run([&] {
        constexpr std::size_t kBytes = 4 << 20;
        const std::size_t pages = kBytes / page;
        auto* p = static_cast<char*>(kasane::allocate(kBytes, 64, where.in_pages(page)));
        std::size_t wrong = 0, foreign = 0;
        for (std::size_t i = 0; i < pages; ++i) {
          const std::uint32_t first = kasane::where(p + i * page), last = kasane::where(p + (i + 1) * page - 1);
          const std::size_t expected = where == placement::local ? kasane::rank() : where == placement::block ? i * kasane::ranks() / pages : i % kasane::ranks();
          wrong += first != expected || last != expected;
          foreign += first != kasane::rank();
        }
        // Nothing else runs, so no page but these is counted.
        const std::uint64_t before = kasane::statistics(kasane::rank()).pages_moved;
        const bool owned = own(p, kBytes);
        const std::uint64_t after = kasane::statistics(kasane::rank()).pages_moved;
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

// Many threads, wherever they run, write bytes of their own all over the memory and take its pages in passing.
TEST(Pages, KeepWhatThreadsWriteWhileTheyMove) {
  for (const std::size_t page : kSizes) {
    for (const placement where : kPlacements) {
      const std::uint64_t wrong = kasane::run([&] {
        constexpr int kThreads = 16, kRounds = 4;
        const std::size_t bytes = 512 * 1024 < 2 * page ? 2 * page : 512 * 1024, cells = bytes / 1024;
        auto* p = static_cast<unsigned char*>(kasane::allocate(bytes, 64, where.in_pages(page)));
        std::uint64_t all_wrong = 0;
        for (int round = 1; round <= kRounds; ++round) {
          kasane::parallel_for(0, kThreads, [=](int t) {
            for (std::size_t i = 0; i < cells; ++i) {
              const std::size_t cell = (i * 5 + static_cast<std::size_t>(t) * 97) % cells;   // 5: no divisor, cells are a power of two
              p[cell * 1024 + static_cast<std::size_t>(t)] = static_cast<unsigned char>(16 * round + t);
              if (i % (cells / 4) == 3) own(p + cell * 1024, 1);   // refused for none: nothing is pinned
            }
          }, 1);
          all_wrong += kasane::parallel_reduce(std::size_t{0}, cells, std::uint64_t{0}, [=](std::size_t cell) {
            std::uint64_t n = 0;
            for (int t = 0; t < kThreads; ++t) n += p[cell * 1024 + static_cast<std::size_t>(t)] != static_cast<unsigned char>(16 * round + t);
            return n;
          }, [](std::uint64_t a, std::uint64_t b) { return a + b; });
        }
        kasane::deallocate(p);
        return all_wrong;
      });
      EXPECT_EQ(wrong, 0u) << "pages of " << page;
    }
  }
}

// Upwards, downwards and with strides: blocks come with the one at which a load faults, and none that is not used. In pages of 64 KiB,
// which so few faults do not draw here; each time in others, where no sweep has been yet, and none was going.
TEST(Pages, OfAnotherRankAreSweptOverWithFewFaults) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank faults on nothing of another";
  constexpr std::int64_t kBlockBytes = 4096, kPageBytes = kasane::page_default;
  constexpr std::int64_t kBlocks = 512, kPages = kBlocks * kBlockBytes / kPageBytes, kApart = (kPages + 1) * kPageBytes;
  constexpr std::array<std::int64_t, 5> kStrides{1, -1, 2, 3, -5};
  struct Cost {
    std::uint64_t faults, fetched, used;
  };
  const auto costs = kasane::run([&] {
    std::array<Cost, kStrides.size()> all{};
    auto* p = static_cast<char*>(kasane::allocate(kStrides.size() * kApart, kBlockBytes, placement::on((kasane::rank() + 1) % kasane::ranks())));
    for (std::size_t i = 0; i < kStrides.size(); ++i) {
      const volatile char* blocks = p + static_cast<std::int64_t>(i) * kApart;
      const kasane::counters before = kasane::statistics(kasane::rank());
      std::uint64_t used = 0;
      for (std::int64_t b = kStrides[i] > 0 ? 0 : kBlocks - 1; b >= 0 && b < kBlocks; b += kStrides[i], ++used) static_cast<void>(blocks[b * kBlockBytes]);
      const kasane::counters after = kasane::statistics(kasane::rank());
      all[i] = {after.faults_read - before.faults_read - (after.faults_again - before.faults_again), after.blocks_fetched - before.blocks_fetched, used};
    }
    kasane::deallocate(p);
    return all;
  });
  for (std::size_t i = 0; i < kStrides.size(); ++i) {
    // One a page, and four where the first teaches; besides those in which its owner had first to make its page present.
    EXPECT_LE(costs[i].faults, kPages + 4u) << "stride " << kStrides[i];
    EXPECT_EQ(costs[i].fetched, costs[i].used) << "stride " << kStrides[i];
  }
}

TEST(Pages, SmallObjectsOfEachSizeAreFreedAndGivenAgain) {
  for (const std::size_t page : kSizes) {
    EXPECT_TRUE(kasane::run([&] {
      bool good = true;
      const int count = page == kasane::page_large ? 5 : 300;   // each takes whole pages of these
      for (int round = 0; round < 3; ++round) {
        std::vector<unsigned char*> objects;
        for (int i = 0; i < count; ++i) {
          objects.push_back(static_cast<unsigned char*>(kasane::allocate(100, 16, placement::local.in_pages(page))));
          std::memset(objects.back(), i % 200, 100);
        }
        good = good && std::set<unsigned char*>(objects.begin(), objects.end()).size() == objects.size();
        kasane::thread([&] {   // maybe on another rank
          for (int i = 0; i < count; ++i) {
            good = good && objects[static_cast<std::size_t>(i)][99] == i % 200;
            kasane::deallocate(objects[static_cast<std::size_t>(i)]);
          }
        }).join();
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
