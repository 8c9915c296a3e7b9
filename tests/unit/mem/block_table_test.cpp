// SPDX-License-Identifier: Apache-2.0
#include "mem/block_table.h"

#include <atomic>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fixtures.h"

namespace kasane::mem {
namespace {

BlockSet make_set(std::uint64_t blocks) {
  auto set = BlockSet::create(blocks);
  if (!set) throw std::runtime_error(set.error().message);
  return std::move(*set);
}

std::vector<std::uint64_t> members(const BlockSet& set) {
  std::vector<std::uint64_t> found;
  set.for_each([&](BlockId b) { found.push_back(raw(b)); });
  return found;
}

// Words are locks, as in the coherence protocol: 0 is free, and only a compare-swap changes it. A thread that
// holds all words of a page frees them by drop().
TEST(BlockTable, DroppingAPageGivesBackItsWordsAllAtOnce) {
  if (kThreadSanitized) GTEST_SKIP() << "it does not know that the kernel's taking of a page orders memory";
  constexpr std::uint64_t kWords = kBlockBytes / sizeof(std::uint32_t), kPages = 2, kTurns = 30'000;
  constexpr std::uint32_t kWhole = 99;
  auto made = BlockTable::create(kPages * kWords);
  ASSERT_TRUE(made.has_value());
  BlockTable& table = *made;
  std::vector<std::uint64_t> entries(kPages * kWords);  // plain: guarded by the words
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0}, stolen{0};
  std::vector<std::thread> threads;
  for (std::uint32_t self = 1; self <= 3; ++self)
    threads.emplace_back([&, self] {
      Random random(self);
      while (!stop.load()) {
        // Pauses while it holds nothing: a thread that loses its core while it holds a word delays the
        // threads that want the page.
        std::this_thread::yield();
        for (int turn = 0; turn < 64; ++turn) {
          const std::uint64_t b = random.below(kPages * kWords);
          std::uint32_t free = 0;
          if (!table[BlockId{b}].compare_exchange_strong(free, self)) continue;
          ++entries[b], ++done;
          for (int hold = 0; hold < 20; ++hold) relax();
          if (table[BlockId{b}].exchange(0) != self) ++stolen;
        }
      }
    });
  std::uint64_t rounds = 0, stale = 0;
  for (; rounds < 100 || done.load() < kTurns; ++rounds) {
    const std::uint64_t first = rounds % kPages * kWords;
    for (std::uint64_t b = first; b < first + kWords; ++b) {
      for (std::uint32_t free = 0; !table[BlockId{b}].compare_exchange_weak(free, kWhole); free = 0)
        std::this_thread::yield();
    }
    for (std::uint64_t b = first; b < first + kWords; ++b) ++entries[b];
    EXPECT_TRUE(table.drop({BlockId{first}, kWords}));
    for (std::uint64_t b = first; b < first + kWords; ++b)
      stale += table[BlockId{b}].load() == kWhole ? 1 : 0;
    if (stale != 0) break;  // the next round would wait for them
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stale, 0u) << "words that were not given back";
  EXPECT_EQ(stolen.load(), 0u) << "words that were taken from who held them";
  EXPECT_EQ(std::accumulate(entries.begin(), entries.end(), std::uint64_t{0}), done.load() + rounds * kWords);
}

TEST(BlockTable, StartsAtZeroAndHoldsAWordABlock) {
  auto table = BlockTable::create(std::uint64_t{1} << 28);  // of a space of 1 TiB
  ASSERT_TRUE(table);
  EXPECT_EQ(table->blocks(), std::uint64_t{1} << 28);
  EXPECT_EQ((*table)[BlockId{(1u << 28) - 1}].load(), 0u);
  (*table)[BlockId{5}].store(42);
  BlockTable moved = std::move(*table);
  EXPECT_EQ(moved[BlockId{5}].load(), 42u);
  EXPECT_EQ(moved[BlockId{6}].load(), 0u);
  EXPECT_FALSE(BlockTable::create(0));
}

TEST(BlockSet, WalksASparseSetOverAWholeSpaceInOrder) {
  BlockSet set = make_set(std::uint64_t{1} << 28);
  EXPECT_TRUE(members(set).empty());
  const std::vector<std::uint64_t> wanted{0,      63,     64,       4095,      4096,
                                          262143, 262144, 16777216, 134217728, (1u << 28) - 1};
  for (auto it = wanted.rbegin(); it != wanted.rend(); ++it) set.insert(BlockId{*it});
  EXPECT_EQ(members(set), wanted);
  EXPECT_EQ(set.next(1), 63u);
  EXPECT_EQ(set.next(63), 63u);
  EXPECT_EQ(set.next(134217729), (1u << 28) - 1);
  EXPECT_EQ(set.next(1u << 28), ~std::uint64_t{0});
  EXPECT_TRUE(set.contains(BlockId{4096}));
  EXPECT_FALSE(set.contains(BlockId{4097}));
}

TEST(BlockSet, TakesTheSameTwice) {
  BlockSet set = make_set(100);  // not a multiple of anything
  for (int i = 0; i < 3; ++i) set.insert(BlockId{99});
  set.insert(BlockId{98});
  set.erase(BlockId{99});
  set.erase(BlockId{99});
  EXPECT_EQ(members(set), std::vector<std::uint64_t>{98});
  set.erase(BlockId{98});
  set.erase(BlockId{98});
  EXPECT_TRUE(members(set).empty());
  set.insert(BlockId{7});
  BlockSet moved = std::move(set);
  EXPECT_EQ(members(moved), std::vector<std::uint64_t>{7});
}

TEST(BlockSet, MayBeChangedWhileItIsWalked) {
  BlockSet set = make_set(1 << 20);
  for (std::uint64_t b = 0; b < (1 << 20); b += 1000) set.insert(BlockId{b});
  std::uint64_t visits = 0;
  set.for_each([&](BlockId b) {
    ++visits;
    set.erase(b);
    if (raw(b) % 2000 == 0) set.insert(BlockId{raw(b) + 1});  // in front of the walk: seen as well
  });
  EXPECT_EQ(visits, 1049u + 525u);
  EXPECT_TRUE(members(set).empty()) << "everything inserted was met and erased";
}

TEST(BlockSet, AgreesWithAnOrdinarySet) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::uint64_t blocks = 1 + Random(seed).below(seed % 2 ? 300 : 600'000);
    BlockSet set = make_set(blocks);
    std::set<std::uint64_t> oracle;
    Random random(seed);
    for (int step = 0; step < 3000; ++step) {
      const std::uint64_t b = random.below(blocks), what = random.below(10);
      if (what < 5)
        set.insert(BlockId{b}), oracle.insert(b);
      else if (what < 9)
        set.erase(BlockId{b}), oracle.erase(b);
      const std::uint64_t from = random.below(blocks);
      const auto next = oracle.lower_bound(from);
      ASSERT_EQ(set.next(from), next == oracle.end() ? ~std::uint64_t{0} : *next)
          << "seed " << seed << " step " << step;
      ASSERT_EQ(set.contains(BlockId{b}), oracle.count(b) == 1);
    }
    ASSERT_EQ(members(set), std::vector<std::uint64_t>(oracle.begin(), oracle.end()));
  }
}

// Every walk meets a member that stays throughout, however often its neighbours in word and group come and
// go. Each thread inserts members of its own, walks, and erases them; the words around hold its own members
// and others'.
TEST(BlockSet, NoWalkMissesAMemberThatStays) {
  constexpr std::uint64_t kBlocks = 3 * 262144;
  const int rounds = kSanitized ? 400 : 40000;
  BlockSet set = make_set(kBlocks);
  std::atomic<std::uint64_t> missed{0}, disorder{0};
  auto churn = [&](std::uint64_t self) {
    Random random(self + 1);
    for (int round = 0; round < rounds; ++round) {
      // Few places, so that words, groups and upper levels become empty and full all the time.
      const std::uint64_t stays =
          random.below(3) * 262144 + random.below(2) * 4096 + random.below(2) * 64 + self;
      set.insert(BlockId{stays});
      std::uint64_t last = 0;
      bool met = false, first = true;
      set.for_each([&](BlockId b) {
        if (!first && raw(b) <= last) ++disorder;
        first = false;
        last = raw(b);
        met = met || raw(b) == stays;
      });
      if (!met || set.next(stays) != stays) ++missed;
      set.erase(BlockId{stays});
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < 4; ++self) threads.emplace_back(churn, self);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(missed.load(), 0u);
  EXPECT_EQ(disorder.load(), 0u);
  EXPECT_TRUE(members(set).empty());
}

// Afterwards no count of the summaries is missing: every member that is left is found, from any start.
TEST(BlockSet, FindsWhatIsLeftOnceAllIsQuiet) {
  BlockSet set = make_set(1 << 20);
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < 4; ++self)
    threads.emplace_back([&set, self] {
      Random random(self + 7);
      for (int i = 0; i < (kSanitized ? 2000 : 40000); ++i) {
        // A residue of the thread's own: the outcome is known.
        const BlockId b{random.below(1 << 20) / 4 * 4 + self};
        if (random.below(2) != 0)
          set.insert(b);
        else
          set.erase(b);
      }
      for (std::uint64_t b = self; b < (1 << 20); b += 4) set.erase(BlockId{b});
      set.insert(BlockId{self * 250'000 / 4 * 4 + self});
    });
  for (auto& thread : threads) thread.join();
  std::vector<std::uint64_t> wanted;
  for (std::uint64_t self = 0; self < 4; ++self) wanted.push_back(self * 250'000 / 4 * 4 + self);
  EXPECT_EQ(members(set), wanted);
}

}  // namespace
}  // namespace kasane::mem
