// SPDX-License-Identifier: Apache-2.0
// How many one-sided trips the forms of the direct view, moves and the allocator cost over a network, by the
// counters: what is counted does not depend on the machine's load. On two or three ranks, none of which maps
// another's memory, with one worker each; main of rank 0 uses pages that other ranks own and manage. No page
// is used so often that it would come by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <utility>
#include <vector>

#include "gas/direct_access.h"
#include "runtime/api/direct.h"
#include "runtime/rank/runtime.h"
#include "support/counts.h"

namespace {

using kasane::global_ptr;

struct Trips : testing::Test {
  static constexpr std::size_t kPageWords = 65536 / 8, kPages = 60;

  void SetUp() override {
    if (kasane::ranks() == 1) GTEST_SKIP() << "one rank sends nothing";
  }

  /// The one-sided operations of this rank during f, which must not lose its thread: nobody steals from main.
  template <class F>
  static std::uint64_t of(F&& f) {
    const std::uint64_t before = kasane::counter("remote_operations", 0);
    f();
    return kasane::counter("remote_operations", 0) - before;
  }

  /// Words in pages whose first access costs three, of which two go at once: neither owned nor managed here.
  static std::vector<global_ptr<std::uint64_t>> far_words() {
    auto* const memory =
        static_cast<std::uint64_t*>(kasane::allocate(kPages * 65536, 65536, kasane::placement::cyclic));
    std::vector<global_ptr<std::uint64_t>> far;
    for (std::size_t p = 0; p < kPages; ++p) {
      const global_ptr<std::uint64_t> word(memory + p * kPageWords);
      std::uint64_t value;
      if (of([&] { kasane::get(&value, word); }) == 3) far.push_back(word);
    }
    return far;
  }
};

TEST_F(Trips, OneWhereThePageIsKnownThreeWhereNot) {
  const auto far = far_words();
  ASSERT_GE(far.size(), 10u);  // the first access of each cost three
  const auto word = far[0];
  std::uint64_t value = 7;
  EXPECT_EQ(of([&] { kasane::get(&value, word); }), 1u);
  EXPECT_EQ(of([&] { kasane::put(word, &value); }), 1u);
  EXPECT_EQ(of([&] { kasane::fetch_add(word, 1); }), 1u);
  EXPECT_EQ(of([&] { kasane::add(word, 1); }), 1u);
  EXPECT_EQ(of([&] { kasane::compare_swap(word, 1, 2); }), 1u);
  double x = 0;
  EXPECT_EQ(of([&] { kasane::accumulate(global_ptr<double>(reinterpret_cast<double*>(word.get())), &x); }),
            1u);
  EXPECT_EQ(of([&] { kasane::get_async(&value, word).wait(); }), 1u);
  EXPECT_EQ(of([&] { kasane::put_async(word, &value).wait(); }), 1u);
  EXPECT_EQ(of([&] { kasane::copy(far[1], word, 100); }), 1u);
  std::vector<std::uint64_t> rows(64);
  EXPECT_EQ(
      of([&] { kasane::get_strided(rows.data(), global_ptr<const std::uint64_t>(word), {8, 8, 100, 8}); }),
      1u);
}

TEST_F(Trips, OneAPageOfARange) {
  const auto far = far_words();
  ASSERT_GE(far.size(), 10u);
  const auto first = *std::min_element(far.begin(), far.end());
  std::vector<std::uint64_t> values(12 * kPageWords);
  kasane::get(values.data(), first, values.size());
  const std::uint64_t again = of([&] { kasane::get(values.data(), first, values.size()); });
  EXPECT_GE(again, 4u);
  EXPECT_LE(again, 12u + 4u);  // a page at this rank costs none, one that it manages a look for nothing
  EXPECT_EQ(of([&] { kasane::get(values.data(), first, values.size()); }), again);
}

// Where operations are messages (UCX without a network card): the manager marks the page and takes its
// holders, each of which forgets it, the owner yields, and brings a small page along. Its bytes else, and the
// entry, which is not waited for, are one-sided. Elsewhere five one-sided operations and one message: gas.md.
TEST_F(Trips, APageThatMoves) {
  const bool by_messages =
      kasane::runtime::Runtime::current()->direct().access().transport().facts().puts_need_target;
  for (const std::size_t page_bytes : {kasane::page_small, kasane::page_default}) {
    auto* const memory = static_cast<std::uint64_t*>(
        kasane::allocate(kPages * page_bytes, page_bytes, kasane::placement::cyclic.in_pages(page_bytes)));
    std::size_t moved = 0;
    for (std::size_t p = 0; p < kPages; ++p) {
      auto* const word = memory + p * page_bytes / 8;
      std::uint64_t value = 0;
      if (of([&] { kasane::get(&value, global_ptr<std::uint64_t>(word)); }) != 3)
        continue;  // owned or managed here
      EXPECT_NE(kasane::where(word), 0u);
      const kasane::test::Counts before(0);
      kasane::own(word, 1);
      const kasane::test::Counts after(0);
      EXPECT_EQ(after["remote_operations"] - before["remote_operations"], !by_messages ? 5u
                                                                          : page_bytes == kasane::page_small
                                                                              ? 1u
                                                                              : 2u);
      EXPECT_EQ(after["move_requests"] - before["move_requests"], by_messages ? 2u : 1u);
      EXPECT_EQ(after["address_recalls"] - before["address_recalls"], 0u);  // this rank alone knew
      EXPECT_EQ(kasane::where(word), 0u);
      ++moved;
    }
    EXPECT_GE(moved, 10u);
    kasane::deallocate(memory);
  }
}

// The paper's pattern: of memory of another rank, which takes no part in it.
TEST_F(Trips, AnAllocationAtMostThreeAFreeAtMostTwo) {
  constexpr std::size_t kCount = 100, kRounds = 5;
  std::uint64_t random = 1, allocations = 0, frees = 0;
  const auto below = [&](std::uint64_t n) {
    return (random = random * 6364136223846793005u + 1442695040888963407u, (random >> 33) % n);
  };
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<void*> objects;
    objects.reserve(kCount);
    allocations += of([&] {
      for (std::size_t i = 0; i < kCount; ++i)
        objects.push_back(kasane::allocate(1 + below(32768), 16, kasane::placement::on(1)));
    });
    frees += of([&] {
      for (std::size_t left = kCount; left != 0; --left) {
        std::swap(objects[below(left)], objects[left - 1]);
        kasane::deallocate(objects[left - 1]);
      }
    });
  }
  EXPECT_GT(allocations, 0u);
  EXPECT_LE(allocations, 3 * kCount * kRounds);
  EXPECT_LE(frees, 2 * kCount * kRounds);
  std::printf("%.2f trips an allocation, %.2f a free\n",
              static_cast<double>(allocations) / (kCount * kRounds),
              static_cast<double>(frees) / (kCount * kRounds));
}

}  // namespace
