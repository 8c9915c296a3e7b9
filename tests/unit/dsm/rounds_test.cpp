// SPDX-License-Identifier: Apache-2.0
// Fences that workers ask for at once: one thread leads for all that asked before it began, and later ones
// get a round that begins later.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "dsm/rounds.h"
#include "support/counting_waiter.h"

namespace kasane::dsm {
namespace {

using test::CountingWaiter;

TEST(Rounds, WhoAsksDuringARoundSharesTheNext) {
  Rounds rounds;
  CountingWaiter waiter;
  std::atomic<unsigned> worked{0}, led{0};
  constexpr unsigned kOthers = 3;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    led += rounds.join(waiter,
                       [&] {
                         ++worked;
                         while (waiter.waiting.load() != kOthers) std::this_thread::yield();
                       })
               ? 1u
               : 0u;
  });
  while (worked.load() == 0) std::this_thread::yield();
  for (unsigned i = 0; i < kOthers; ++i)
    threads.emplace_back([&] { led += rounds.join(waiter, [&] { ++worked; }) ? 1u : 0u; });
  threads.clear();
  EXPECT_EQ(worked.load(), 2u)
      << "the round that was under way is nothing to who asks later; one more is for all of them";
  EXPECT_EQ(led.load(), 2u);
}

TEST(Rounds, ANumberThatWasReadTellsALaterRound) {
  Rounds rounds;
  CountingWaiter waiter;
  const std::uint64_t before = rounds.began().load();
  EXPECT_NE(before, 0u) << "0 is no number";
  std::uint64_t during = 0;
  EXPECT_TRUE(rounds.join(waiter, [&] { during = rounds.began().load(); }));
  EXPECT_EQ(during, before + 1);
  EXPECT_EQ(rounds.began().load(), during) << "who reads it now is not served by that round";
}

TEST(Rounds, ServeEverybodyWithWorkThatBeganAfterItWasAsked) {
  Rounds rounds;
  CountingWaiter waiter;
  // what is written before a join is there in the round that serves it
  std::atomic<std::uint64_t> written{0}, seen{0};
  std::atomic<unsigned> led{0};
  constexpr unsigned kThreads = 4, kTimes = 2000;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (unsigned i = 0; i < kTimes; ++i) {
        const std::uint64_t mine = written.fetch_add(1) + 1;
        if (rounds.join(waiter, [&] { seen.store(written.load()); })) ++led;
        EXPECT_GE(seen.load(), mine);
      }
    });
  }
  threads.clear();
  EXPECT_GE(led.load(), 1u);
  EXPECT_LE(led.load(), kThreads * kTimes);
}

}  // namespace
}  // namespace kasane::dsm
