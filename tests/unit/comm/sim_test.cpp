// SPDX-License-Identifier: Apache-2.0
// The simulator's own promises: the same seed is the same history, it really delays, tears, reorders and
// refuses, and threads that wait for each other are reported, not waited for. (What it shares with every
// transport: tests/multi/comm.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/batch.h"
#include "comm/blocking.h"
#include "comm/collectives/collectives.h"
#include "comm/requests.h"
#include "support/sim/sim.h"

namespace kasane::comm::sim {
namespace {

constexpr RegionId kRegion{1};
constexpr HandlerId kNote{1};
constexpr std::size_t kWords = 64;

/// Ranks with a small region each.
struct Ranks {
  World world;
  std::vector<std::array<std::uint64_t, kWords>> memory;

  Ranks(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options = {})
      : world(ranks, seed, options), memory(ranks) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      memory[r].fill(0);
      EXPECT_TRUE(world.transport(Rank{r}).attach(kRegion, -1, reinterpret_cast<std::byte*>(memory[r].data()),
                                                  sizeof(memory[r])));
    }
  }
  Blocking at(std::uint32_t r) { return {world.transport(Rank{r}), world.waiter()}; }
};

/// A run with all there is in it: threads, atomics, torn writes, requests, preemption.
std::uint64_t history(std::uint64_t seed, std::uint64_t* result = nullptr) {
  Ranks ranks(3, seed);
  std::uint64_t order = 0;
  auto take = [&](std::uint32_t who) { order = order * 31 + who + 1; };
  for (std::uint32_t r = 0; r < 3; ++r) {
    ranks.world.transport(Rank{r}).set_handler(
        kNote,
        [](void* c, const Message& m) noexcept {
          static_cast<Transport*>(c)->reply(m.token, m.payload.size());
        },
        &ranks.world.transport(Rank{r}));
    for (int thread = 0; thread < 2; ++thread) {
      ranks.world.spawn(Rank{r}, [&, r] {
        auto ops = ranks.at(r);
        for (std::uint32_t i = 0; i < 10; ++i) {
          ops.fetch_add({Rank{(r + i) % 3}, kRegion, 0}, 1);
          take(r);
          const std::uint64_t words[4] = {r, i, r, i};
          ops.write({Rank{(r + 1) % 3}, kRegion, 64}, words, sizeof(words));
          ranks.world.yield_point();
          (void)ops.request(Rank{(r + 2) % 3}, kNote, std::as_bytes(std::span(words)));
          take(r);
        }
      });
    }
  }
  const auto ended = ranks.world.run();
  EXPECT_TRUE(ended) << ended.error().message;
  std::uint64_t sum = 0;
  for (const auto& m : ranks.memory) sum += m[0];
  EXPECT_EQ(sum, 60u);
  if (result != nullptr) *result = order;
  return ranks.world.trace_hash();
}

TEST(Sim, TheSameSeedGivesTheSameHistoryAndAnotherSeedAnother) {
  std::set<std::uint64_t> hashes, orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::uint64_t first_order = 0, second_order = 0;
    const std::uint64_t first = history(seed, &first_order);
    EXPECT_EQ(history(seed, &second_order), first) << "seed " << seed;
    EXPECT_EQ(second_order, first_order) << "seed " << seed;
    hashes.insert(first);
    orders.insert(first_order);
  }
  EXPECT_EQ(hashes.size(), 50u);
  EXPECT_GT(orders.size(), 40u);
}

// Looks for a seed on which the body sees what it looks for: what can happen must happen for some seed.
template <class F>
bool some_seed(const F& sees) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    if (sees(seed)) return true;
  }
  return false;
}

TEST(Sim, AReaderMaySeeHalfOfAWriteUntilItHasCompleted) {
  auto torn = [](std::uint64_t seed) {
    Ranks ranks(2, seed);
    bool mixed = false;
    ranks.world.spawn(Rank{0}, [&] {
      std::array<std::uint8_t, 64> ones;
      ones.fill(1);
      ranks.at(0).write({Rank{1}, kRegion, 0}, ones.data(), ones.size());
    });
    ranks.world.spawn(Rank{1}, [&] {
      for (int i = 0; i < 20; ++i) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(ranks.memory[1].data());
        const auto set = std::count(bytes, bytes + 64, 1);
        mixed = mixed || (set != 0 && set != 64);
        ranks.world.step();
        ranks.world.yield_point();
      }
    });
    EXPECT_TRUE(ranks.world.run());
    return mixed;
  };
  EXPECT_TRUE(some_seed(torn));
}

TEST(Sim, AWriteMayBeVisibleBeforeItsCompletionIs) {
  struct Flag : Completion {
    bool set = false;
    Flag() {
      fn = [](Completion* self) noexcept { static_cast<Flag*>(self)->set = true; };
    }
  };
  auto visible_first = [](std::uint64_t seed) {
    Ranks ranks(2, seed);
    const std::uint64_t value = 7;
    Flag done;
    EXPECT_EQ(ranks.world.transport(Rank{0}).write({Rank{1}, kRegion, 0}, &value, 8, &done), Post::pending);
    bool early = false;
    while (!done.set) {
      early = early || ranks.memory[1][0] == value;
      EXPECT_TRUE(ranks.world.step());
    }
    EXPECT_EQ(ranks.memory[1][0], value);
    return early;
  };
  EXPECT_TRUE(some_seed(visible_first));
}

std::vector<std::uint64_t> arrival_order(std::uint64_t seed, bool reorder) {
  SimOptions options;
  options.reorder = reorder;
  Ranks ranks(2, seed, options);
  std::vector<std::uint64_t> arrived;
  ranks.world.transport(Rank{1}).set_handler(
      kNote,
      [](void* c, const Message& m) noexcept {
        std::uint64_t n;
        std::memcpy(&n, m.payload.data(), 8);
        static_cast<std::vector<std::uint64_t>*>(c)->push_back(n);
      },
      &arrived);
  ranks.world.spawn(Rank{0}, [&] {
    for (std::uint64_t n = 0; n < 8; ++n) ranks.at(0).send(Rank{1}, kNote, as_payload(n));
  });
  EXPECT_TRUE(ranks.world.run());
  while (ranks.world.step()) {
  }
  EXPECT_EQ(arrived.size(), 8u);
  return arrived;
}

TEST(Sim, MessagesOvertakeEachOtherUnlessToldNotTo) {
  auto sorted = [](const std::vector<std::uint64_t>& v) { return std::is_sorted(v.begin(), v.end()); };
  EXPECT_TRUE(some_seed([&](std::uint64_t seed) { return !sorted(arrival_order(seed, true)); }));
  EXPECT_FALSE(some_seed([&](std::uint64_t seed) { return !sorted(arrival_order(seed, false)); }));
}

TEST(Sim, AQueueThatIsFullAndSometimesOneThatIsNotSaysAgain) {
  SimOptions options;
  options.again_permille = 0;
  options.ring_capacity = 5;
  options.operation_capacity = 6;
  Ranks ranks(2, 1, options);
  ranks.world.transport(Rank{1}).set_handler(kNote, [](void*, const Message&) noexcept {}, nullptr);
  Transport& t = ranks.world.transport(Rank{0});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(t.send(Rank{1}, kNote, {}), Post::done);
  EXPECT_EQ(t.send(Rank{1}, kNote, {}), Post::again);
  std::uint64_t word = 0;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(t.read({Rank{1}, kRegion, 0}, &word, 8, nullptr), Post::pending);
  EXPECT_EQ(t.read({Rank{1}, kRegion, 0}, &word, 8, nullptr), Post::again);
  while (ranks.world.step()) {
  }
  EXPECT_EQ(t.send(Rank{1}, kNote, {}), Post::done);

  EXPECT_TRUE(some_seed([](std::uint64_t seed) {
    Ranks fresh(1, seed);
    std::uint64_t to = 0;
    // nothing under way yet
    EXPECT_EQ(fresh.world.transport(Rank{0}).read({Rank{0}, kRegion, 0}, &to, 8, nullptr), Post::pending);
    return fresh.world.transport(Rank{0}).read({Rank{0}, kRegion, 0}, &to, 8, nullptr) == Post::again;
  }));
}

TEST(Sim, PreemptionFindsALostUpdate) {
  auto lost = [](std::uint64_t seed) {
    World world(1, seed);
    int counter = 0;
    for (int thread = 0; thread < 2; ++thread) {
      world.spawn(Rank{0}, [&] {
        for (int i = 0; i < 5; ++i) {
          const int old = counter;
          world.yield_point();
          counter = old + 1;
        }
      });
    }
    EXPECT_TRUE(world.run());
    return counter != 10;
  };
  EXPECT_TRUE(some_seed(lost));
}

TEST(Sim, ThreadsThatWaitForEachOtherAreReportedWithTheSeed) {
  World world(2, 4711);
  bool never = false;
  world.spawn(Rank{0}, [] {});
  world.spawn(Rank{1}, [&] { world.waiter().until([&] { return never; }); });
  const auto ended = world.run();
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("seed 4711"), std::string::npos) << ended.error().message;
  EXPECT_NE(ended.error().message.find("deadlock"), std::string::npos) << ended.error().message;
  EXPECT_NE(ended.error().message.find("#1 of rank 1 (waits)"), std::string::npos) << ended.error().message;
}

TEST(Sim, ASleepThatNobodyEndsIsADeadlockToo) {
  World world(1, 3);
  Transport& t = world.transport(Rank{0});
  world.spawn(Rank{0}, [&] { t.sleep(Doorbell::work, t.activity(Doorbell::work), -1); });
  EXPECT_FALSE(world.run());
}

TEST(Sim, AnEndlessLoopReachesTheStepLimit) {
  SimOptions options;
  options.step_limit = 1000;
  options.preempt_permille = 1000;
  World world(1, 1, options);
  world.spawn(Rank{0}, [&] {
    for (;;) world.yield_point();
  });
  const auto ended = world.run();
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("1000 steps"), std::string::npos) << ended.error().message;
}

TEST(Sim, AnExceptionThatLeavesAThreadIsReported) {
  World world(1, 1);
  world.spawn(Rank{0}, [] { throw std::runtime_error("no luck"); });
  const auto ended = world.run();
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("no luck"), std::string::npos) << ended.error().message;
}

TEST(Sim, ThreadsMayStartThreadsAndTheWorldMayRunAgain) {
  Ranks ranks(2, 9);
  int ended = 0;
  for (int round = 1; round <= 3; ++round) {
    ranks.world.spawn(Rank{0}, [&] {
      ranks.world.spawn(Rank{1}, [&] {
        ranks.at(1).fetch_add({Rank{0}, kRegion, 8}, 1);
        ++ended;
      });
      ranks.world.waiter().until([&, want = round] { return ended == want; });
    });
    ASSERT_TRUE(ranks.world.run());
    EXPECT_EQ(ranks.memory[0][1], static_cast<std::uint64_t>(round));
  }
}

// Each thread would like more slots than its rank has: what it has it must not keep while it waits for more.
TEST(Sim, ThreadsWithManyRequestsShareFewReplySlots) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimOptions options;
    options.reply_slots = 3;
    Ranks ranks(3, seed, options);
    for (std::uint32_t r = 0; r < 3; ++r) {
      Transport& t = ranks.world.transport(Rank{r});
      t.set_handler(
          kNote,
          [](void* c, const Message& m) noexcept {
            std::uint64_t n;
            std::memcpy(&n, m.payload.data(), 8);
            static_cast<Transport*>(c)->reply(m.token, n + 1);
          },
          &t);
      for (std::uint64_t thread = 0; thread < 3; ++thread) {
        ranks.world.spawn(Rank{r}, [&, r, thread] {
          auto io = ranks.at(r);
          std::array<std::uint64_t, 40> answers{};
          Requests requests(io);
          for (std::uint64_t i = 0; i < answers.size(); ++i) {
            const std::uint64_t n = thread * 100 + i;
            requests.post(Rank{static_cast<std::uint32_t>((r + i) % 3)}, kNote, as_payload(n), {&answers[i]});
          }
          requests.await();
          for (std::uint64_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], thread * 100 + i + 1);
        });
      }
    }
    const auto ended = ranks.world.run();
    ASSERT_TRUE(ended) << ended.error().message;
  }
}

TEST(Sim, WithoutServiceThreadsWaitingThreadsMakeTheProgress) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimOptions options;
    options.service = false;
    Ranks ranks(2, seed, options);
    std::vector<std::unique_ptr<Collectives>> all;
    for (std::uint32_t r = 0; r < 2; ++r)
      all.push_back(std::make_unique<Collectives>(ranks.world.transport(Rank{r}), ranks.world.waiter()));
    for (std::uint32_t r = 0; r < 2; ++r) {
      ranks.world.spawn(Rank{r}, [&, r] {
        for (int i = 0; i < 5; ++i) all[r]->barrier();
      });
    }
    const auto ended = ranks.world.run();
    ASSERT_TRUE(ended) << ended.error().message;
    // The answers to the last chunks are under way, and nobody is left to take what is due: step until they
    // are there.
    while (ranks.world.step()) {
    }
  }
}

// With times: what a thread that polls has run may be what one that sleeps at the same rank waits for.
TEST(SimInTime, AHandlerThatAPollingThreadRunsWakesASleepingOne) {
  SimOptions options;
  options.timing = Timing::tcp();
  options.time_limit_ns = 1'000'000'000;
  Ranks ranks(2, 1, options);
  Transport& there = ranks.world.transport(Rank{1});
  there.set_handler(
      kNote,
      [](void* t, const Message&) noexcept { static_cast<Transport*>(t)->wake(Rank{1}, Doorbell::work); },
      &there);
  bool woken = false;
  ranks.world.serve(Rank{1}, [&] {
    there.sleep(Doorbell::work, there.activity(Doorbell::work), -1);
    woken = true;
  });
  ranks.world.spawn(Rank{1}, [&] { ranks.world.waiter().until([&] { return woken; }); });
  ranks.world.spawn(Rank{0}, [&] {
    ranks.world.compute(1'000'000);
    ranks.at(0).send(Rank{1}, kNote, {});
  });
  const auto ended = ranks.world.run();
  EXPECT_TRUE(ended.has_value()) << ended.error().message;
}

// Three that compute on two cores take as long as one and a half.
TEST(SimInTime, RanksShareTheCores) {
  SimOptions options;
  options.timing = Timing::rdma();
  options.timing->cores = 2;
  Ranks ranks(3, 1, options);
  std::uint64_t last = 0;
  for (std::uint32_t r = 0; r < 3; ++r)
    ranks.world.spawn(Rank{r}, [&] {
      ranks.world.compute(20 * Timing::kSliceNs);
      last = std::max(last, ranks.world.now_ns());
    });
  ASSERT_TRUE(ranks.world.run().has_value());
  EXPECT_EQ(last, 30 * Timing::kSliceNs);
}

TEST(Sim, OutsideOfThreadsAPollWaiterTakesTheSteps) {
  Ranks ranks(2, 5);
  PollWaiter waiter(ranks.world.transport(Rank{0}), /*spin_ns=*/0);
  Blocking ops(ranks.world.transport(Rank{0}), waiter);
  ops.store({Rank{1}, kRegion, 16}, 99);
  EXPECT_EQ(ranks.memory[1][2], 99u);
  EXPECT_EQ(ranks.at(1).load({Rank{1}, kRegion, 16}), 99u);
}

TEST(SimDeathTest, WhatTheCallerGotWrongIsACheck) {
  Ranks ranks(1, 1);
  Transport& t = ranks.world.transport(Rank{0});
  std::uint64_t word = 0;
  const std::vector<std::byte> large(kMaxPayload + 1);
  EXPECT_DEATH((void)t.read({Rank{0}, kRegion, sizeof(ranks.memory[0])}, &word, 1, nullptr), "bytes");
  EXPECT_DEATH((void)t.write({Rank{0}, kRegion, ~std::uint64_t{0}}, &word, 8, nullptr), "offset");
  EXPECT_DEATH((void)t.read({Rank{0}, RegionId{2}, 0}, &word, 8, nullptr), "not attached");
  EXPECT_DEATH((void)t.atomic(AtomicOp::swap, {Rank{0}, kRegion, 4}, 0, 0, &word, nullptr), "offset");
  EXPECT_DEATH((void)t.send(Rank{1}, kNote, {}), "ranks");
  EXPECT_DEATH((void)t.send(Rank{0}, kNote, large), "kMaxPayload");
  EXPECT_DEATH(
      {
        (void)t.send(Rank{0}, kNote, {});
        while (ranks.world.step()) {
        }
      },
      "never set");
}

// More than there is room for at once, refused now and then, in pieces: all have arrived when await()
// returns, and they were under way together.
TEST(Batch, AllHaveCompletedAndTakeTheirTimeTogether) {
  std::uint64_t together = 0, in_turn = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Ranks ranks(2, seed);
    ranks.world.spawn(Rank{0}, [&] {
      Blocking io = ranks.at(0);
      std::array<std::uint64_t, kWords> from, back{};
      for (std::size_t i = 0; i < kWords; ++i) from[i] = seed * 1000 + i;
      const std::uint64_t start = ranks.world.steps();
      {
        Batch batch(io);
        for (std::size_t i = 0; i < kWords; ++i) batch.write({Rank{1}, kRegion, i * 8}, &from[i], 8);
        batch.await();
        EXPECT_EQ(ranks.memory[1], from);
        for (std::size_t i = 0; i < kWords; ++i) batch.read({Rank{1}, kRegion, i * 8}, &back[i], 8);
      }
      EXPECT_EQ(back, from);
      const std::uint64_t middle = ranks.world.steps();
      for (std::size_t i = 0; i < kWords; ++i) io.write({Rank{1}, kRegion, i * 8}, &from[i], 8);
      for (std::size_t i = 0; i < kWords; ++i) io.read({Rank{1}, kRegion, i * 8}, &back[i], 8);
      together += middle - start;
      in_turn += ranks.world.steps() - middle;
    });
    ASSERT_TRUE(ranks.world.run().has_value());
  }
  EXPECT_LT(together, in_turn);
}

}  // namespace
}  // namespace kasane::comm::sim
