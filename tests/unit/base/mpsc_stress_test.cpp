// SPDX-License-Identifier: Apache-2.0
// The multi-producer ring on real atomics.
#include "base/mpsc_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kasane {
namespace {

TEST(MpscRing, FirstInFirstOut) {
  MpscRing<int> ring(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ring.try_push(i), Push::done);
  EXPECT_EQ(ring.try_push(4), Push::full) << "it holds four";
  for (int i = 0; i < 4; ++i) {
    const int* oldest = ring.front();
    ASSERT_TRUE(oldest != nullptr && *oldest == i);
    ring.pop();
    EXPECT_EQ(ring.try_push(i + 4), Push::done);
  }
  int value = -1;
  for (int i = 4; i < 8; ++i) {
    EXPECT_TRUE(ring.try_pop(value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(ring.try_pop(value));
  EXPECT_EQ(ring.front(), nullptr);
}

// The bit in tail: one push after the announcement is told to wake, and none before or afterwards.
TEST(MpscRing, TellsOnePushToWake) {
  MpscRing<int> ring(4);
  int value = 0;
  EXPECT_TRUE(ring.announce_sleep());
  EXPECT_EQ(ring.try_push(1), Push::wake);
  EXPECT_EQ(ring.try_push(2), Push::done);
  EXPECT_FALSE(ring.announce_sleep()) << "there is something";
  EXPECT_TRUE(ring.try_pop(value) && ring.try_pop(value));
  EXPECT_TRUE(ring.announce_sleep());
  ring.retract_sleep();
  EXPECT_EQ(ring.try_push(3), Push::done);
  EXPECT_EQ(ring.claimed(), 3u);
}

// Large rings hand cells back in groups: at least three quarters are always usable, and all of them once the
// consumer has found nothing.
TEST(MpscRing, HandsBackInGroups) {
  MpscRing<int> ring(64);
  int value = 0;
  for (int i = 0; i < 64; ++i) EXPECT_EQ(ring.try_push(i), Push::done);
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(ring.try_pop(value));
  EXPECT_EQ(ring.try_push(64), Push::full);
  EXPECT_TRUE(ring.try_pop(value));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(ring.try_push(64 + i), Push::done);
  EXPECT_EQ(ring.try_push(80), Push::full);
  while (ring.try_pop(value)) {
  }
  EXPECT_EQ(value, 79);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(ring.try_push(i), Push::done);
}

// Each producer's values arrive in its order, none is lost, and no cell is torn (four words that must agree).
TEST(MpscStress, KeepsEachProducersOrder) {
  struct Cell {
    std::uint64_t producer, number, both, inverse;
  };
  constexpr std::uint64_t kProducers = 3, kEach = 20'000;
  MpscRing<Cell> ring(16);
  std::vector<std::thread> producers;
  for (std::uint64_t p = 0; p < kProducers; ++p)
    producers.emplace_back([&, p] {
      for (std::uint64_t n = 0; n < kEach;) {
        const bool pushed = ring.try_fill([&](Cell& cell) { cell = {p, n, p ^ n, ~n}; }) != Push::full;
        if (pushed)
          ++n;
        else
          std::this_thread::yield();
      }
    });
  std::vector<std::uint64_t> next(kProducers);
  std::uint64_t torn = 0, disordered = 0;
  for (std::uint64_t received = 0; received < kProducers * kEach;) {
    const Cell* cell = ring.front();
    if (cell == nullptr) {
      std::this_thread::yield();
      continue;
    }
    torn += cell->both != (cell->producer ^ cell->number) || cell->inverse != ~cell->number;
    if (cell->producer < kProducers) disordered += cell->number != next[cell->producer]++;
    ring.pop();
    ++received;
  }
  for (auto& t : producers) t.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(disordered, 0u);
  EXPECT_EQ(ring.front(), nullptr);
}

}  // namespace
}  // namespace kasane
