// SPDX-License-Identifier: Apache-2.0
// What a program says of memory that may leave DRAM (advise, evict, pin): under a budget (KASANE_DRAM) it
// changes which pages leave and come, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <limits>
#include <string>
#include <thread>

#include "support/counts.h"

namespace {

using kasane::placement, kasane::usage;

constexpr std::size_t kPage = kasane::page_default, kWords = kPage / 8;

/// Of the host, in pages: so many K, M or G.
std::size_t budget_pages() {
  const char* const text = std::getenv("KASANE_DRAM");
  char* unit = nullptr;
  const std::size_t n = std::strtoull(text, &unit, 10);
  return (n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : 10)) / kPage;
}

std::uint64_t* allocate(std::size_t pages) {
  return static_cast<std::uint64_t*>(kasane::allocate(pages * kPage, kPage, placement::block));
}

std::uint64_t value(std::size_t i) { return i * 0x9E3779B97F4A7C15u; }

/// By all ranks, each near its part.
void fill(std::uint64_t* data, std::size_t pages) {
  kasane::parallel_for(std::size_t{0}, pages, [=](std::size_t p) {
    for (std::size_t i = p * kWords; i < (p + 1) * kWords; ++i) data[i] = value(i);
  });
}
std::uint64_t wrong(const std::uint64_t* data, std::size_t pages) {
  return kasane::parallel_reduce(
      std::size_t{0}, pages, std::uint64_t{0},
      [=](std::size_t p) {
        std::uint64_t n = 0;
        for (std::size_t i = p * kWords; i < (p + 1) * kWords; ++i) n += data[i] != value(i);
        return n;
      },
      [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

/// Pages that must be brought in for one word of each to be read from here; wrong words count as many.
std::uint64_t missing(const std::uint64_t* data, std::size_t pages) {
  const std::uint64_t before = kasane::counter("pages_brought_in");
  std::uint64_t bad = 0;
  for (std::size_t p = 0; p < pages; ++p) bad += data[p * kWords] != value(p * kWords);
  return kasane::counter("pages_brought_in") - before + bad * pages;
}
std::uint64_t left() {
  const kasane::test::Counts all;
  return all["pages_evicted"] + all["pages_dropped"];
}
/// Pages that leave for it.
std::uint64_t evict(const std::uint64_t* data, std::size_t pages) {
  kasane::release_all();
  const std::uint64_t before = left();
  kasane::evict(data, pages * kWords);
  return left() - before;
}

// What is checked is checked outside of run(): the test's own records are no global memory.

/// Bytes that come from SSD while the first words of so many pages are read here, with such advice; waits for
/// `least`.
std::uint64_t read_back(usage how, std::size_t pages, std::uint64_t least = 0) {
  std::uint64_t bytes = 0;
  kasane::run([&] {
    const std::size_t all = budget_pages() / 4;
    auto* data = static_cast<std::uint64_t*>(kasane::allocate(all * kPage, kPage, placement::local));
    fill(data, all);
    evict(data, all);
    kasane::advise(data, all * kWords, how);
    const std::uint64_t before = kasane::counter("bytes_read_back");
    std::uint64_t bad = 0;
    for (std::size_t p = 0; p < pages; ++p) bad += data[p * kWords] != value(p * kWords);
    // What is read ahead may still be on its way.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do {
      bytes = kasane::counter("bytes_read_back") - before + bad;
    } while (bytes < least && std::chrono::steady_clock::now() < deadline);
    kasane::advise(data, all * kWords, usage::normal);
    kasane::deallocate(data);
  });
  return bytes;
}

/// From the first page on. The first test of the process: a sweep over the same memory that is remembered
/// (gas/read_ahead.h) would keep it from beginning one.
TEST(Advice, WhatIsReadInOrderIsReadAhead) {
  EXPECT_GE(read_back(usage::sequential, 3, 2 * kPage), 2 * kPage);
}

TEST(Advice, WhatIsEvictedLeavesAndComesBack) {
  const std::size_t pages = budget_pages() / 4;
  std::uint64_t bad = 1, gone = 0;
  kasane::run([&] {
    auto* data = allocate(pages);
    fill(data, pages);
    gone = evict(data, pages);
    bad = wrong(data, pages);
    kasane::deallocate(data);
  });
  EXPECT_GE(gone, pages * 3 / 4);  // a page may be in use at that moment
  EXPECT_EQ(bad, 0u);
}

/// A thread at the last rank stores what it has stored before, as long as its copies stay.
template <class Reuse>
std::uint64_t stored_again(const Reuse& reuse) {
  std::uint64_t bad = 1;
  kasane::run([&] {
    const std::size_t pages = budget_pages() / 8;
    const auto fill_there = [&](std::uint64_t* data) {
      kasane::thread there(kasane::at{kasane::ranks() - 1}, [=] {
        for (std::size_t i = 0; i < pages * kWords; ++i) data[i] = value(i);
      });
      there.join();
    };
    auto* data = static_cast<std::uint64_t*>(kasane::allocate(pages * kPage, kPage, placement::local));
    fill_there(data);
    evict(data, pages);
    data = reuse(data, pages);
    fill_there(data);
    evict(data, pages);
    bad = wrong(data, pages);
    kasane::deallocate(data);
  });
  return bad;
}

// The owner has lost the bytes with which a store of the same value would make no change.
TEST(Advice, WhatIsFreedOnSsdAndAllocatedAnewIsNowhereAsItWas) {
  EXPECT_EQ(stored_again([](std::uint64_t* data, std::size_t pages) {
              kasane::deallocate(data);
              return static_cast<std::uint64_t*>(kasane::allocate(pages * kPage, kPage, placement::local));
            }),
            0u);
}
TEST(Advice, WhatIsDiscardedOnSsdIsNowhereAsItWas) {
  EXPECT_EQ(stored_again([](std::uint64_t* data, std::size_t pages) {
              kasane_discard(data, pages * kPage);
              return data;
            }),
            0u);
}

/// Two threads, at the first and the last rank, take turns.
class Turns {
 public:
  enum class Edge { none, fence };  ///< none: the ranks neither release nor acquire
  void wait_for(int turn, Edge edge) const {
    const auto while_not_yet = std::chrono::microseconds(200);
    while (turn_.load(std::memory_order_relaxed) != turn) std::this_thread::sleep_for(while_not_yet);
    if (edge == Edge::fence) static_cast<void>(turn_.load(std::memory_order_acquire));
  }
  void end(Edge edge) {
    turn_.fetch_add(1, edge == Edge::fence ? std::memory_order_release : std::memory_order_relaxed);
  }

 private:
  std::atomic<int> turn_{0};
};

// A block that the last rank changes at every release stays open there, and over an acquire it is merged with
// the owner's bytes. Those of memory that is allocated anew are of no use before somebody has touched it.
TEST(Advice, WhatStaysOpenIsNotOfMemoryThatNobodyHasTouched) {
  using Edge = Turns::Edge;
  std::uint64_t bad = 1;
  bool again = false;
  kasane::run([&] {
    const std::size_t pages = 16, words = pages * kasane::page_small / 8;  // a block each
    const auto fresh = [=] {
      const auto small = kasane::placement(placement::first_touch).in_pages(kasane::page_small);
      return static_cast<std::uint64_t*>(kasane::allocate(words * 8, kPage, small));
    };
    std::uint64_t* data = nullptr;
    Turns turns;
    kasane::thread first(kasane::at{0}, [&] {
      data = fresh();
      for (std::size_t i = 0; i < words; ++i) data[i] = value(i) | 1;
      turns.end(Edge::fence);
      turns.wait_for(2, Edge::none);
      kasane::evict(data, words);
      turns.end(Edge::none);
      turns.wait_for(4, Edge::none);
      const auto* const was = data;
      again = (data = fresh()) == was;
      turns.end(Edge::fence);
      turns.wait_for(6, Edge::fence);
      bad = static_cast<std::uint64_t>(
          std::count_if(data, data + words, [](std::uint64_t v) { return v != 0; }));
    });
    kasane::thread last(kasane::at{kasane::ranks() - 1}, [&] {
      turns.wait_for(1, Edge::fence);
      for (int epoch = 0; epoch < 5; ++epoch) {
        for (std::size_t i = 0; i < words; i += 64) data[i] += 2;
        kasane::release_all();
      }
      turns.end(Edge::none);
      turns.wait_for(3, Edge::none);
      kasane::deallocate(data);
      turns.end(Edge::none);
      turns.wait_for(5, Edge::fence);
      for (std::size_t i = 0; i < words; ++i) data[i] = 0;
      turns.end(Edge::fence);
    });
    first.join();
    last.join();
    kasane::deallocate(data);
  });
  EXPECT_TRUE(again);
  EXPECT_EQ(bad, 0u);
}

TEST(Advice, WhatIsPinnedStays) {
  // Half of a rank's share at most: where every rank asks for room, none may have more than its share for
  // what is pinned and the rest.
  const std::size_t pinned = budget_pages() / std::max(4u, 2 * kasane::ranks()), much = budget_pages() * 2;
  std::uint64_t after_sweeps = 1, after_evict = 1, gone = 0, bad = 1, faults = 1;
  kasane::run([&] {
    auto *data = allocate(pinned), *others = allocate(much);
    fill(data, pinned);
    evict(data, pinned);
    {
      const kasane::pin pin(data, pinned * kWords);
      bad = wrong(data, pinned);
      for (int sweep = 0; sweep < 3; ++sweep) fill(others, much);
      const kasane::test::Counts before;
      bad += wrong(data, pinned);
      faults = kasane::test::Counts()["faults_read"] - before["faults_read"];
      after_sweeps = missing(data, pinned);
      evict(data, pinned);
      after_evict = missing(data, pinned);
    }
    gone = evict(data, pinned);
    bad += wrong(others, much);
    kasane::deallocate(data);
    kasane::deallocate(others);
  });
  EXPECT_EQ(after_sweeps, 0u);
  if (kasane::ranks() == 1) {
    EXPECT_EQ(faults, 0u) << "nobody need know whether it is touched";
  }
  EXPECT_EQ(after_evict, 0u);
  EXPECT_GE(gone, pinned * 3 / 4);
  EXPECT_EQ(bad, 0u);
}

TEST(Advice, WhatIsUsedOnceDrivesNothingOut) {
  const std::size_t hot = budget_pages() / 3, much = budget_pages() * 2;
  std::uint64_t bad = 0, gone = 1;
  kasane::run([&] {
    auto *once = allocate(much), *data = allocate(hot);
    kasane::advise(once, much * kWords, usage::once);
    fill(once, much);
    fill(data, hot);
    for (int sweep = 0; sweep < 3; ++sweep) bad += wrong(once, much);
    gone = missing(data, hot);
    kasane::advise(once, much * kWords, usage::normal);
    kasane::deallocate(once);
    kasane::deallocate(data);
  });
  EXPECT_EQ(bad, 0u);
  if (kasane::ranks() > 1)
    GTEST_SKIP() << "how many is not checked: several ranks share a budget, and who has nothing that leaves "
                    "first gives others what it has";
  EXPECT_LE(gone, hot / 2);  // all of them, had nothing been said
}

TEST(Advice, WhatIsReadAtRandomComesAlone) {
  if (kasane::ranks() > 1)
    GTEST_SKIP() << "the thread may be at another rank by then, for which pages come as a whole";
  EXPECT_LE(read_back(usage::random, 16), 16 * 4096u);
  EXPECT_GT(read_back(usage::normal, 16, 2 * kPage + 1), 2 * kPage);
}

/// By itself: the ranks warn.
TEST(AdviceTooMuch, PinsThatDoNotFitBreak) {
  const std::size_t pages = budget_pages() * 2;
  std::uint64_t bad = 0;
  kasane::run([&] {
    auto* data = allocate(pages);
    {
      const kasane::pin pin(data, pages * kWords);
      for (int sweep = 0; sweep < 2; ++sweep) {
        fill(data, pages);
        bad += wrong(data, pages);
      }
    }
    kasane::deallocate(data);
  });
  EXPECT_EQ(bad, 0u);
}

TEST(Advice, WhatIsLargerThanTheBudgetIsNoView) {
  const std::size_t pages = budget_pages() + 1;
  int code = 0;
  std::uint64_t bad = 1;
  std::string text;
  kasane::run([&] {
    auto* data = allocate(pages);
    fill(data, pages);
    kasane::prefetch(data, pages * kWords);  // a hint: as much as makes sense
    bad = wrong(data, pages);
    code = kasane_view(data, pages * kPage, KASANE_READ);
    text = kasane_error_message();
    kasane::deallocate(data);
  });
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(code, ENOMEM);
  EXPECT_NE(text.find("raise --dram"), std::string::npos) << text;
}

// Ranks that are on one host have equal parts of the budget; without one there is no limit.
TEST(Advice, SaysHowMuchDramThereIs) {
  std::uint64_t dram = 0;
  kasane::run([&] { dram = kasane::dram(); });
  const bool limited = std::getenv("KASANE_DRAM") != nullptr;
  EXPECT_EQ(dram,
            limited ? budget_pages() * kPage / kasane::ranks() : std::numeric_limits<std::uint64_t>::max());
}

TEST(Advice, SaysWhatIsWrong) {
  int of_private = 0, usage_too_large = 0, usage_too_small = 0, too_long = 0, nothing = 1;
  static int word = 0;
  kasane::run([&] {
    auto* data = allocate(1);
    of_private = kasane_evict(&word, sizeof word);
    usage_too_large = kasane_advise(data, kPage, 4);
    usage_too_small = kasane_advise(data, kPage, -1);
    too_long = kasane_advise(data, ~std::size_t{0}, KASANE_ONCE);
    nothing = kasane_pin(data, 0);
    kasane::deallocate(data);
  });
  EXPECT_EQ(of_private, 0);
  EXPECT_EQ(usage_too_large, EINVAL);
  EXPECT_EQ(usage_too_small, EINVAL);
  EXPECT_EQ(too_long, EINVAL);
  EXPECT_EQ(nothing, 0);
}

}  // namespace
