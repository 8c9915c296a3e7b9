// SPDX-License-Identifier: Apache-2.0
// The engine's small lock-free parts under every interleaving of small programs: no index is taken twice or
// lost, and no work that a thread saw at a closed gate is left lying.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>
#include <vector>

#include "comm/engine/gate.h"
#include "comm/index_pool.h"
#include "support/interleave.h"

namespace kasane::comm {
namespace {

using kasane::test::explore;
using kasane::test::InterleavedAtomics;
using kasane::test::Reduction;
using kasane::test::Schedule;

TEST(IndexPool, HandsEachIndexOutOnce) {
  IndexPool<> pool(3);
  std::set<std::uint32_t> out;
  for (int i = 0; i < 3; ++i) out.insert(pool.take());
  EXPECT_EQ(out, (std::set<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(pool.take(), IndexPool<>::kNone);
  pool.put(1);
  EXPECT_EQ(pool.take(), 1u);
}

// The program of the ABA problem: one takes while the other takes two and gives the first back.
TEST(IndexPool, NeverGivesAnIndexTwiceInAnyInterleaving) {
  const auto runs = explore(Reduction::commuting, [](Schedule& s) {
    IndexPool<InterleavedAtomics> pool(2);
    std::array<int, 2> out{};
    std::uint32_t kept = pool.kNone, first = pool.kNone, second = pool.kNone;
    const auto taken = [&](std::uint32_t i) {
      if (i != pool.kNone) {
        EXPECT_EQ(++out[i], 1) << "index " << i << " is out twice";
      }
    };
    s.thread([&] { taken(kept = pool.take()); });
    s.thread([&] {
      taken(first = pool.take());
      taken(second = pool.take());
      if (first != pool.kNone) {
        --out[first];
        pool.put(first);
      }
    });
    s.run();
    const auto left = static_cast<int>(out[0] == 0) + static_cast<int>(out[1] == 0);
    int found = 0;
    while (pool.take() != pool.kNone) ++found;
    EXPECT_EQ(found, left);  // nothing is lost
  });
  EXPECT_GT(runs, 10u);
}

TEST(IndexPool, ManyThreads) {
  constexpr std::uint32_t kCount = 7;
  IndexPool<> pool(kCount);
  std::array<std::atomic<int>, kCount> out{};
  std::atomic<int> twice{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20'000; ++n) {
        const std::uint32_t i = pool.take();
        if (i == IndexPool<>::kNone) continue;
        if (out[i].fetch_add(1) != 0) ++twice;
        out[i].fetch_sub(1);
        pool.put(i);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(twice.load(), 0);
  std::set<std::uint32_t> all;
  for (std::uint32_t i = 0; i < kCount; ++i) all.insert(pool.take());
  EXPECT_EQ(all.size(), kCount);
}

// Work appears, then its finder tries the gate. The thread inside does the work that it sees, and looks again
// if another failed to enter: in the end no work is left.
TEST(Gate, WorkSeenAtAClosedGateIsDone) {
  const auto runs = explore(Reduction::none, [](Schedule& s) {
    BasicGate<InterleavedAtomics> gate;
    InterleavedAtomics::Atomic<int> work{0};
    int inside = 0;
    const auto find_and_do = [&] {
      work.fetch_add(1, std::memory_order_seq_cst);
      if (!gate.enter()) return;
      do {
        EXPECT_EQ(++inside, 1);
        (void)work.exchange(0, std::memory_order_seq_cst);
        --inside;
      } while (gate.leave() && gate.enter());
    };
    s.thread(find_and_do);
    s.thread(find_and_do);
    s.run();
    EXPECT_EQ(work.load(std::memory_order_seq_cst), 0);
  });
  EXPECT_GT(runs, 20u);
}

}  // namespace
}  // namespace kasane::comm
