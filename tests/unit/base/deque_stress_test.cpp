// SPDX-License-Identifier: Apache-2.0
// The deque on real atomics: a few steps as a demonstration, then an owner and several thieves.
#include "base/deque.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/random.h"

namespace kasane {
namespace {

template <std::uint64_t Capacity>
struct Memory {
  alignas(128) std::byte bytes[Deque<>::bytes(Capacity)];
  Deque<>& deque = *Deque<>::create(bytes, Capacity);
};

std::optional<std::uint64_t> pop(Deque<>& deque) {
  std::uint64_t value;
  return deque.pop(value) ? std::optional(value) : std::nullopt;
}

TEST(Deque, OwnerTakesTheNewestThiefTheOldest) {
  Memory<4> memory;
  Deque<>& d = memory.deque;
  for (std::uint64_t v : {10, 11, 12, 13}) EXPECT_TRUE(d.push(v));
  EXPECT_FALSE(d.push(14)) << "it holds four";
  EXPECT_EQ(d.size_hint(), 4u);
  EXPECT_EQ(pop(d), 13u);
  std::uint64_t stolen = 0;
  EXPECT_EQ(d.steal(stolen), Steal::taken);
  EXPECT_EQ(stolen, 10u);
  EXPECT_EQ(pop(d), 12u);
  EXPECT_EQ(pop(d), 11u);
  EXPECT_EQ(pop(d), std::nullopt);
  EXPECT_EQ(d.steal(stolen), Steal::empty);
  EXPECT_EQ(stolen, 10u) << "only a taken value is filled in";
}

TEST(Deque, GoesRoundItsRingManyTimes) {
  Memory<2> memory;
  std::uint64_t stolen = 0;
  for (std::uint64_t v = 0; v < 1000; ++v) {
    ASSERT_TRUE(memory.deque.push(v));
    if (v % 3 == 0) {
      ASSERT_EQ(pop(memory.deque), v);
    } else {
      ASSERT_EQ(memory.deque.steal(stolen), Steal::taken);
      ASSERT_EQ(stolen, v);
    }
  }
  EXPECT_EQ(pop(memory.deque), std::nullopt);
}

TEST(Deque, WorksThroughTwoMappingsOfTheSameMemory) {
  const std::size_t bytes = 4096;
  static_assert(Deque<>::bytes(64) <= 4096);
  const int fd = ::memfd_create("deque", 0);
  ASSERT_EQ(::ftruncate(fd, bytes), 0);
  void* here = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* there = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(here, MAP_FAILED);
  ASSERT_NE(there, MAP_FAILED);
  auto& owner = *Deque<>::create(here, 64);
  auto& thief = *static_cast<Deque<>*>(there);
  EXPECT_TRUE(owner.push(5));
  std::uint64_t stolen = 0;
  EXPECT_EQ(thief.steal(stolen), Steal::taken);
  EXPECT_EQ(stolen, 5u);
  EXPECT_EQ(pop(owner), std::nullopt);
  ::munmap(here, bytes);
  ::munmap(there, bytes);
  ::close(fd);
}

TEST(DequeDeath, SaysWhatCapacityMustBe) {
  alignas(128) static std::byte memory[1024];
  EXPECT_DEATH(Deque<>::create(memory, 3), "a deque's capacity is a power of two");
  EXPECT_DEATH(Deque<>::create(memory + 8, 4), "aligned to 128 bytes");
}

// Every value pushed is taken exactly once, thieves see values in the order of pushes, and what was written
// before a push is seen by the thread that takes it (the payload is a plain array: the thread
// sanitizer watches it).
TEST(DequeStress, EveryValueIsTakenOnce) {
  constexpr std::uint64_t kValues = 60'000;
  constexpr int kThieves = 3;
  Memory<64> memory;
  Deque<>& d = memory.deque;
  std::vector<std::uint64_t> payload(kValues), owners, stolen[kThieves];
  std::atomic<bool> done{false};
  std::vector<std::thread> thieves;
  for (auto& mine : stolen)
    thieves.emplace_back([&] {
      std::uint64_t value = 0;
      for (;;) {
        const bool last_look =
            done.load(std::memory_order_acquire);  // acquire: then empty means empty for good
        const Steal outcome = d.steal(value);
        if (outcome == Steal::taken)
          mine.push_back(payload[value] == ~value ? value : ~0ull);
        else if (outcome == Steal::empty && last_look)
          return;
        else
          std::this_thread::yield();
      }
    });
  Random random(1);
  const auto pop_one = [&] {
    const auto value = pop(d);
    if (value) owners.push_back(payload[*value] == ~*value ? *value : ~0ull);
    return value.has_value();
  };
  for (std::uint64_t value = 0; value < kValues;) {
    payload[value] = ~value;
    if (d.push(value)) ++value;
    if (random.one_in(3)) pop_one();
  }
  while (pop_one()) {
  }
  done.store(true, std::memory_order_release);
  for (auto& t : thieves) t.join();

  std::vector<std::uint64_t> taken = owners;
  for (const auto& mine : stolen) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    taken.insert(taken.end(), mine.begin(), mine.end());
  }
  std::sort(taken.begin(), taken.end());
  std::vector<std::uint64_t> wanted(kValues);
  std::iota(wanted.begin(), wanted.end(), std::uint64_t{0});
  EXPECT_EQ(taken, wanted);
}

}  // namespace
}  // namespace kasane
