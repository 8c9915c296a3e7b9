// SPDX-License-Identifier: Apache-2.0
#include "mem/mprotect_engine.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "fixtures.h"
#include "mem/alt_stack.h"
#include "mem/block_table.h"
#include "mem/mappings.h"

namespace kasane::mem {
namespace {

/// A space under the engine with the smallest handler that is right for many threads: a busy bit a block, rights that only grow in it.
class World {
 public:
  explicit World(std::size_t bytes, std::uint64_t limit = 0)
      : space(make_space(bytes)), engine(make_mprotect_engine(space, limit)), table(make_table(space.blocks())) {
    if (!engine->start(on_fault, this)) std::abort();
  }

  /// Changes the rights of one block under its busy bit.
  bool set(BlockId b, Access access, bool only_more) {
    std::atomic<std::uint32_t>& word = table[b];
    while (word.fetch_or(kBusy, std::memory_order_acquire) & kBusy) ::sched_yield();
    const auto now = static_cast<Access>(word.load(std::memory_order_relaxed) >> 1);
    const bool change = !only_more || now < access;
    const bool done = !change || engine->protect({b, 1}, access);
    word.store(static_cast<std::uint32_t>(change && done ? access : now) << 1, std::memory_order_release);
    return done;
  }

  volatile std::uint64_t& word(std::uint64_t offset) { return *reinterpret_cast<volatile std::uint64_t*>(space.v(offset)); }

  Space space;
  std::unique_ptr<FaultEngine> engine;
  BlockTable table;
  std::atomic<std::uint64_t> reads{0}, writes{0};
  std::atomic<std::uint64_t> last{~std::uint64_t{0}};

 private:
  static constexpr std::uint32_t kBusy = 1;
  static BlockTable make_table(std::uint64_t blocks) {
    auto made = BlockTable::create(blocks);
    if (!made) std::abort();
    return std::move(*made);
  }
  static bool on_fault(void* context, std::uint64_t offset, Access wanted) {
    auto* self = static_cast<World*>(context);
    ++(wanted == Access::write ? self->writes : self->reads);
    self->last = offset;
    return self->set(block_of(offset), wanted, /*only_more=*/true);
  }
};

AltStack alt_stack() {
  auto stack = AltStack::create();
  if (!stack) std::abort();
  return std::move(*stack);
}

class MprotectEngine : public ::testing::Test {
 protected:
  AltStack stack_ = alt_stack();
};

TEST_F(MprotectEngine, ReportsOffsetAndKindOfEachAccessNotAllowed) {
  World w(16 * kPageBytes);
  EXPECT_EQ(w.engine->name(), "mprotect");
  *reinterpret_cast<std::uint64_t*>(w.space.a(5 * kBlockBytes + 16)) = 77;
  EXPECT_EQ(w.word(5 * kBlockBytes + 16), 77u);
  EXPECT_EQ(w.last, 5 * kBlockBytes + 16);
  EXPECT_EQ(w.reads, 1u);
  EXPECT_EQ(w.writes, 0u);
  EXPECT_EQ(w.word(5 * kBlockBytes + 24), 0u);
  EXPECT_EQ(w.reads, 1u) << "allowed by now";
  w.word(5 * kBlockBytes + 32) = 78;
  EXPECT_EQ(w.last, 5 * kBlockBytes + 32);
  EXPECT_EQ(w.writes, 1u);
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(5 * kBlockBytes + 32)), 78u);
  w.word(w.space.bytes() - 8) = 79;
  EXPECT_EQ(w.last, w.space.bytes() - 8);
  EXPECT_EQ(w.writes, 2u);
  EXPECT_EQ(w.reads, 1u) << "write includes read";
}

TEST_F(MprotectEngine, TakesRightsOfWholeRunsBack) {
  World w(4 * kPageBytes);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::write));
  w.word(0) = 1;
  w.word(w.space.bytes() - 8) = 1;
  EXPECT_EQ(w.writes, 0u);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::read));
  w.word(8) = w.word(0) + 1;
  EXPECT_EQ(w.writes, 1u);
  EXPECT_EQ(w.reads, 0u);
  EXPECT_TRUE(w.engine->protect({BlockId{w.space.blocks()}, 0}, Access::none)) << "an empty run at the end";
}

// Rule 10: the kernel does not wait for a handler on behalf of a system call.
TEST_F(MprotectEngine, ASystemCallIntoAProtectedBlockFailsWithoutAFault) {
  World w(4 * kPageBytes);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "12345678", 8), 8);
  EXPECT_EQ(::read(ends[0], w.space.v(64), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(w.reads + w.writes, 0u);
  EXPECT_EQ(::read(ends[0], w.space.a(64), 8), 8) << "through the alias it works";
  EXPECT_EQ(std::memcmp(w.space.a(64), "12345678", 8), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(MprotectEngine, StartsAgainAfterAStop) {
  World w(kPageBytes);
  w.engine->stop();
  w.engine->stop();
  ASSERT_TRUE(w.engine->start(
      [](void* context, std::uint64_t offset, Access wanted) {
        return static_cast<World*>(context)->set(block_of(offset), wanted, true);
      },
      &w));
  w.word(0) = 5;
  EXPECT_EQ(w.writes, 0u) << "the old handler";
  EXPECT_EQ(w.word(0), 5u);
}

// Threads fault on the same blocks and on different ones while another takes rights away all the time: every store arrives.
TEST_F(MprotectEngine, NoStoreIsLostUnderManyFaultsAtOnce) {
  constexpr std::uint64_t kThreads = 4, kBlocks = 48;
  const std::uint64_t rounds = kSanitized ? 300 : 3000;
  World w(kBlocks * kBlockBytes);
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    Random random(99);
    while (!stop) EXPECT_TRUE(w.set(BlockId{random.below(kBlocks)}, random.below(2) ? Access::none : Access::read, false));
  });
  std::vector<std::vector<std::uint64_t>> sums(kThreads, std::vector<std::uint64_t>(kBlocks));
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < kThreads; ++self)
    threads.emplace_back([&, self] {
      AltStack own = alt_stack();
      Random random(self);
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const std::uint64_t b = random.below(kBlocks), at = b * kBlockBytes + self * 8;
        if (w.word(at) != sums[self][b]) ++wrong;
        sums[self][b] += i;
        w.word(at) = sums[self][b];
      }
    });
  for (auto& thread : threads) thread.join();
  stop = true;
  taker.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(w.reads + w.writes, 0u);
  for (std::uint64_t self = 0; self < kThreads; ++self)
    for (std::uint64_t b = 0; b < kBlocks; ++b)
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(b * kBlockBytes + self * 8)), sums[self][b]);
}

// Every other block armed: two mappings each, far more than the kernel allows. Who heeds crowded() never gets there.
TEST_F(MprotectEngine, MappingsStayBoundedForWhoHeedsCrowded) {
  constexpr std::uint64_t kArmed = 40'000, kLimit = 8'000;
  World w(((2 * kArmed * kBlockBytes) / kPageBytes + 1) * kPageBytes, kLimit);
  EXPECT_FALSE(w.engine->crowded());
  std::uint64_t drops = 0, most = 0;
  for (std::uint64_t i = 0; i < kArmed; ++i) {
    ASSERT_TRUE(w.engine->protect({BlockId{2 * i}, 1}, Access::write)) << i;
    if (!w.engine->crowded()) continue;
    ++drops;
    most = std::max(most, count_mappings());
    EXPECT_GE(count_mappings(), kLimit) << "crowded() is true only where it is exact";
    ASSERT_TRUE(w.engine->protect({BlockId{0}, 2 * i + 1}, Access::none));
    // The verdict follows within an eighth of the limit.
    for (std::uint64_t n = 0; n < kLimit / 8 && w.engine->crowded(); ++n)
      ASSERT_TRUE(w.engine->protect({BlockId{0}, 1}, Access::none));
    EXPECT_FALSE(w.engine->crowded());
  }
  EXPECT_GE(drops, 9u) << "2 × 40 000 mappings under a limit of 8 000";
  EXPECT_LE(most, kLimit + kLimit / 8 + 16);
}

// Neighbours merge: the cheap bound passes the limit again and again, the exact count never does.
TEST_F(MprotectEngine, ManySmallRunsThatMergeAreNotCrowded) {
  World w(512 * kPageBytes, 2'000);
  for (std::uint64_t b = 0; b < w.space.blocks(); ++b) {
    ASSERT_TRUE(w.engine->protect({BlockId{b}, 1}, Access::write));
    ASSERT_FALSE(w.engine->crowded()) << b;
  }
}

TEST_F(MprotectEngine, AtTheKernelsLimitProtectSaysSoAndRecovers) {
  std::uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 100'000 || kSanitized) GTEST_SKIP() << "vm.max_map_count is " << limit;
  World w((limit * kBlockBytes / kPageBytes + 2) * kPageBytes);
  std::uint64_t armed = 0;
  while (armed < limit && w.engine->protect({BlockId{2 * armed % w.space.blocks()}, 1}, Access::write)) ++armed;
  EXPECT_LT(armed, limit);
  EXPECT_TRUE(w.engine->crowded());
  ASSERT_TRUE(w.engine->protect({BlockId{0}, 2 * armed}, Access::none)) << "merging needs no new mapping";
  EXPECT_TRUE(w.engine->protect({BlockId{2 * armed}, 1}, Access::write));
}

using MprotectEngineDeathTest = MprotectEngine;

TEST_F(MprotectEngineDeathTest, ARunBeyondTheSpaceIsOurBug) {
  World w(kPageBytes);
  EXPECT_DEATH((void)w.engine->protect({BlockId{w.space.blocks() - 1}, 2}, Access::none), "");
}

}  // namespace
}  // namespace kasane::mem
