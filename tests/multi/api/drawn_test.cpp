// SPDX-License-Identifier: Apache-2.0
// Pages that only one rank uses directly come to it by themselves, whatever joins the ranks. On at least two
// ranks; main of rank 0 uses pages of rank 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <kasane/kasane.hpp>
#include <string_view>
#include <vector>

namespace {

using kasane::global_ptr;

constexpr std::size_t kPageWords = 65536 / 8, kPages = 4;

struct Drawn : testing::TestWithParam<std::function<void(global_ptr<std::uint64_t>)>> {
  // Freed at the end only: a page that is allocated anew may be drawn for uses that were counted before it
  // was freed.
  static void TearDownTestSuite() { std::for_each(arrays.begin(), arrays.end(), kasane::deallocate); }
  static inline std::vector<void*> arrays;
};

INSTANTIATE_TEST_SUITE_P(By, Drawn,
                         testing::Values(
                             [](global_ptr<std::uint64_t> word) {
                               std::uint64_t value;
                               kasane::get(&value, word);
                             },
                             [](global_ptr<std::uint64_t> word) { kasane::put(word, std::uint64_t{1}); },
                             [](global_ptr<std::uint64_t> word) { kasane::fetch_add(word, 1); },
                             [](global_ptr<std::uint64_t> word) {
                               std::uint64_t value;
                               kasane::get_async(&value, word).wait();
                             }));

TEST_P(Drawn, APageThatOneRankUsesComesToIt) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "nothing moves";
  auto* const memory =
      static_cast<std::uint64_t*>(kasane::allocate(kPages * 65536, 65536, kasane::placement::on(1)));
  arrays.push_back(memory);
  const auto limit = std::chrono::steady_clock::now() +
                     std::chrono::seconds(30);  // a page that does not come must become a failure
  for (std::size_t p = 0; p < kPages; ++p) {
    const global_ptr<std::uint64_t> word(memory + p * kPageWords);
    ASSERT_EQ(kasane::where(word.get()), 1u);
    const std::uint64_t drawn = kasane::counter("pages_auto_relocated", 0);
    const auto late = [&] { return std::chrono::steady_clock::now() > limit; };
    while (kasane::where(word.get()) != 0 && !late()) GetParam()(word);
    EXPECT_EQ(kasane::where(word.get()), 0u) << "page " << p;
    while (kasane::counter("pages_auto_relocated", 0) == drawn &&
           !late()) {  // counted when the move has ended here, too
    }
    EXPECT_EQ(kasane::counter("pages_auto_relocated", 0), drawn + 1);
  }
}

// A thread fills an array that main has made, again and again: it comes to it. Where two ranks fill it in
// turns its pages stay, or move as seldom as other pages that two ranks use.
struct Filled {
  static constexpr std::size_t kWords = 16 * kPageWords;
  explicit Filled(std::uint64_t* first) : at(first) {}
  void fill(std::uint64_t value) const {
    for (std::size_t i = 0; i < kWords; ++i) at[i] = value + i;
  }
  [[nodiscard]] std::size_t wrong(std::uint64_t value) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < kWords; ++i) n += at[i] != value + i ? 1 : 0;
    return n;
  }
  [[nodiscard]] std::size_t pages_at(std::uint32_t rank) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < kWords; i += kPageWords) n += kasane::where(at + i) == rank ? 1 : 0;
    return n;
  }
  std::uint64_t* at;
};

/// Calls f on a new thread at the rank that has `place`, and waits for it: a release of that rank.
template <class F>
void at_rank_of(const void* place, const F& f) {
  kasane::thread([&] {
    kasane::this_thread::move_near(place);
    f();
  }).join();
}

TEST(DrawnByAWriter, WhatOneRankFillsComesToIt) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "nothing moves";
  kasane::run([] {
    auto* const there = static_cast<std::uint64_t*>(kasane::allocate(8, 8, kasane::placement::on(1)));
    const Filled array(static_cast<std::uint64_t*>(kasane::allocate(Filled::kWords * 8, 65536)));
    array.fill(0);
    ASSERT_EQ(array.pages_at(0), 16u);
    std::uint64_t epoch = 0;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (array.pages_at(1) < 16 && std::chrono::steady_clock::now() < limit) {
      ++epoch;
      at_rank_of(there, [&] { array.fill(epoch); });
    }
    EXPECT_EQ(array.pages_at(1), 16u) << "after " << epoch << " epochs";
    EXPECT_EQ(array.wrong(epoch), 0u);
    kasane::deallocate(array.at);
    kasane::deallocate(there);
  });
}

TEST(DrawnByAWriter, WhatTwoRanksFillInTurnsMovesSeldom) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "nothing moves";
  kasane::run([] {
    auto* const there = static_cast<std::uint64_t*>(kasane::allocate(8, 8, kasane::placement::on(1)));
    const Filled array(static_cast<std::uint64_t*>(kasane::allocate(Filled::kWords * 8, 65536)));
    const auto drawn = [] {
      return kasane::counter("pages_auto_relocated", 0) + kasane::counter("pages_auto_relocated", 1);
    };
    const std::uint64_t before = drawn();
    for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
      array.fill(2 * epoch);
      at_rank_of(there, [&] {
        EXPECT_EQ(array.wrong(2 * epoch), 0u);
        array.fill(2 * epoch + 1);
      });
      ASSERT_EQ(array.wrong(2 * epoch + 1), 0u);
    }
    // 16, 32, 64 … uses; an epoch has at most one for each of the page's 16 blocks
    EXPECT_LE(drawn() - before, 16u * 6);
    kasane::deallocate(array.at);
    kasane::deallocate(there);
  });
}

// Ranks that share memory use a page of another host in turns, and none of them for long: no rank draws it,
// but their host does.
TEST(DrawnByAHost, APageThatItsRanksUseInTurnsComesToIt) {
  const char* const debug = std::getenv("KASANE_DEBUG");
  if (kasane::ranks() != 4 || debug == nullptr || std::string_view(debug) != "hosts=2")
    GTEST_SKIP() << "for two hosts of two ranks";
  kasane::run([] {
    std::array<std::uint64_t*, 4> at{};  // of each rank a page
    for (std::uint32_t r = 0; r < at.size(); ++r) {
      at[r] = static_cast<std::uint64_t*>(kasane::allocate(65536, 65536, kasane::placement::on(r)));
      *at[r] = 0;
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const kasane::global_ptr<std::uint64_t> word(at[0]);
    const auto use_until = [&](std::uint32_t first_user, std::uint32_t users, auto&& comes) {
      for (std::uint32_t i = 0; !comes() && std::chrono::steady_clock::now() < limit; ++i) {
        kasane::this_thread::move_near(at[first_user + i % users]);
        kasane::fetch_add(word, 1);
      }
      return comes();
    };
    const auto owner = [&] { return kasane::where(at[0]); };
    ASSERT_TRUE(use_until(1, 1, [&] { return owner() == 1; }));  // so that another rank was the last user
    ASSERT_TRUE(use_until(2, 2, [&] { return owner() >= 2; }));
    kasane::this_thread::move_near(at[0]);
    for (std::uint64_t* page : at) kasane::deallocate(page);
  });
}

}  // namespace
