// SPDX-License-Identifier: Apache-2.0
// Free stacks give their frames back: each once until it is used again, and never one that a thread has.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

// kKept: the most that a worker's cache holds, an eighth of all
constexpr std::uint32_t kStacks = 512, kMany = 300, kKept = 64;

/// In place of giving frames back: whatever was in them is gone. Frames that never returned have left a
/// sanitizer's red zones there.
[[gnu::no_sanitize_address]] void wipe(void* pool, StackId stack) {
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(static_cast<TestPool*>(pool)->stack(stack));
  for (std::size_t i = 0; i < TestPool::kSlotBytes / sizeof *words; ++i) words[i] = 0xDDDDDDDDDDDDDDDD;
}

/// All of `threads` have a stack at once.
void use_many(std::uint32_t threads) {
  std::atomic<std::uint32_t> there{0};
  std::vector<ThreadId> all;
  for (std::uint32_t i = 0; i < threads; ++i) {
    all.push_back(fork([&there, threads] {
      there.fetch_add(1);
      yield_until([&] { return there.load() == threads; });
    }));
  }
  for (const ThreadId id : all) Pool::join(id);
}

TEST(Trim, EachFreeStackOnceUntilItIsUsedAgain) {
  TestPool pool(1, kStacks, kStacks, wipe);
  EXPECT_EQ(pool->trim_stacks(kStacks), 0u) << "none has been used";
  std::uint32_t trimmed = 0;
  for (int round = 0; round < 3; ++round) {
    pool.run([] { use_many(kMany - 1); });  // and the root has one
    EXPECT_EQ(pool.trimmed_used.load(), trimmed)
        << "all of those, one by one, before others that were never used";
    const std::uint32_t before = trimmed;
    trimmed += pool->trim_stacks(100);
    EXPECT_EQ(trimmed - before, 100u);
    trimmed += pool->trim_stacks(kStacks);
    EXPECT_GE(trimmed - before, kMany - kKept);
    EXPECT_LE(trimmed - before, kMany);
    EXPECT_EQ(pool->trim_stacks(kStacks), 0u);
  }
}

TEST(Trim, WithoutAWayToDoItThereIsNone) {
  TestPool pool(1, kStacks, kStacks);
  pool.run([] { use_many(kMany); });
  EXPECT_EQ(pool->trim_stacks(kStacks), 0u);
}

/// A thread's stack holds what it has put there, however deep, while free ones are wiped all the time.
struct Tree {
  std::mt19937 random;
  unsigned depth;

  [[gnu::noinline]] unsigned operator()() {
    volatile unsigned words[2048];  // 8 KiB: below the top block
    const unsigned seed = random();
    for (unsigned i = 0; i < 2048; i += 256) words[i] = seed + i;
    unsigned wrong = 0;
    if (depth > 0) {
      std::atomic<unsigned> of_children{0};
      std::vector<ThreadId> children;
      for (unsigned i = 0; i < 4; ++i) {
        children.push_back(fork([&of_children, child = Tree{std::mt19937(seed + i), depth - 1}]() mutable {
          of_children.fetch_add(child());
        }));
      }
      if (seed % 3 == 0) Pool::yield();
      for (const ThreadId id : children) Pool::join(id);
      wrong = of_children.load();
    } else {
      Pool::yield();
    }
    for (unsigned i = 0; i < 2048; i += 256) wrong += words[i] != seed + i;
    return wrong;
  }
};

TEST(Trim, NeverAStackThatAThreadHas) {
  for (const std::uint32_t workers : {1u, 2u, 4u}) {
    TestPool pool(workers, 4096, 4096, wipe);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> trimmed{0};
    std::thread trimmer([&] {
      while (!stop.load()) trimmed += pool->trim_stacks(16), std::this_thread::yield();
    });
    unsigned wrong = 0;
    for (unsigned seed = 0; seed < fewer_if_sanitized(10); ++seed) {
      pool.run([&] {
        use_many(fewer_if_sanitized(1500));
        wrong += Tree{std::mt19937(seed), 5}();
      });
    }
    stop = true;
    trimmer.join();
    EXPECT_EQ(wrong, 0u) << workers;
    EXPECT_GT(trimmed.load(), 0u) << workers;
  }
}

}  // namespace
}  // namespace kasane::ult
