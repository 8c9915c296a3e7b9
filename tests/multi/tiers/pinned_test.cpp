// SPDX-License-Identifier: Apache-2.0
// More is pinned than there is DRAM, and another rank goes on asking for what of it is on SSD: then pinned
// pages leave, too. What comes for the other keeps to the budget (the test runs in a memory control group),
// and a thread here gets its room though something comes and leaves all the time. On 2 or more ranks, with a
// budget.
#include <gtest/gtest.h>

#include <cstdint>
#include <kasane/kasane.hpp>

namespace {

using kasane::placement;

constexpr std::size_t kPage = kasane::page_default, kWords = kPage / 8, kPages = std::size_t{64} << 20 >> 16;

std::uint64_t* allocate(std::size_t pages, placement where) {
  return static_cast<std::uint64_t*>(kasane::allocate(pages * kPage, kPage, where));
}

std::uint64_t value(std::size_t page) { return (page + 1) * 0x9E3779B97F4A7C15u; }

enum class Here { waits, sweeps };

struct Result {
  std::uint64_t bad = 0, asked = 0;
  bool elsewhere = false;
};

/// Another rank gets a word of each page, again and again until this one has swept over them, or once.
Result run(Here here) {
  return kasane::run([here] {
    Result result;
    auto *anchors = allocate(kasane::ranks(), placement::block), *data = allocate(kPages, placement::local);
    for (std::size_t p = 0; p < kPages; ++p) data[p * kWords] = value(p);
    kasane::release_all();
    std::uint64_t* const done = anchors;
    const std::uint32_t me = kasane::rank();
    {
      const kasane::pin pin(data, kPages * kWords);
      kasane::thread other(kasane::near{anchors + (me + 1) % kasane::ranks() * kWords}, [=, &result] {
        std::uint64_t bad = 0, asked = 0;
        do {
          for (std::size_t p = 0; p < kPages; ++p, ++asked) {
            std::uint64_t word = 0;
            kasane::get(&word, data + p * kWords, 1);
            bad += word != value(p);
          }
        } while (here == Here::sweeps && kasane::atomic_ref(*done).load() == 0);
        result = {bad, asked, kasane::rank() != me};
      });
      std::uint64_t bad = 0;
      for (std::size_t p = 0; here == Here::sweeps && p < kPages; ++p) bad += data[p * kWords] != value(p);
      kasane::atomic_ref(*done).store(1);
      other.join();
      result.bad += bad;
    }
    kasane::deallocate(data);
    kasane::deallocate(anchors);
    return result;
  });
}

TEST(Pinned, PagesLeaveForWhatAnotherRankAsksFor) {
  const Result result = run(Here::waits);
  EXPECT_EQ(result.bad, 0u);
  EXPECT_TRUE(result.elsewhere) << "else nobody asked";
}

TEST(Pinned, AThreadGetsItsRoomWhileAnotherRankAsks) {
  const Result result = run(Here::sweeps);
  EXPECT_EQ(result.bad, 0u);
  EXPECT_GE(result.asked, kPages);
  EXPECT_TRUE(result.elsewhere) << "else nobody asked";
}

}  // namespace
