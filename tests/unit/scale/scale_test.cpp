// SPDX-License-Identifier: Apache-2.0
// What the shipping protocols send at the busiest rank of a simulated cluster, and how that grows with the
// ranks. A step that costs more at one place the more ranks there are is either bounded here, or named here
// as one that grows: who mends it changes its test.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "scale/cluster.h"
#include "scale/programs.h"

namespace kasane::scale {
namespace {

struct Most {
  std::uint64_t messages = 0, bytes = 0;
};

Most busiest(const Cluster& cluster) {
  Most most;
  for (std::uint32_t r = 0; r < cluster.ranks(); ++r) {
    const auto t = cluster.traffic(r);
    most.messages = std::max(most.messages, t.messages_in + t.messages_out);
    most.bytes = std::max(most.bytes, t.bytes_in + t.bytes_out);
  }
  return most;
}

/// A page of the heap for each rank, at it.
Most team(std::uint32_t ranks, const std::function<void(Member&, std::uint64_t heap)>& body) {
  Cluster cluster({.ranks = ranks, .heap_bytes = ranks * mem::kPageBytes});
  cluster.place(cluster.heap(), ranks * mem::kPageBytes,
                [](std::uint64_t page) { return Rank{static_cast<std::uint32_t>(page)}; });
  cluster.member(0).new_mutex(100);
  const auto ran = cluster.run_team([&](Member& me) { body(me, cluster.heap()); });
  EXPECT_TRUE(ran.has_value()) << ran.error().message;
  return busiest(cluster);
}

// ---- exact ----

TEST(Counts, ABarrierOfCollectivesIsALogarithm) {
  for (const auto& [ranks, messages] : {std::pair{16u, 8u}, {64u, 12u}, {256u, 16u}}) {
    EXPECT_EQ(team(ranks, [](Member& me, std::uint64_t) { me.barrier_of_collectives(); }).messages, messages);
    EXPECT_EQ(team(ranks, [](Member& me, std::uint64_t) { me.allreduce(1); }).messages, messages);
  }
}

TEST(Counts, AnAtomicIsTwoMessages) {
  const auto adds = [](int n) {
    return team(16,
                [n](Member& me, std::uint64_t heap) {
                  for (int i = 0; i < n && raw(me.rank()) == 1; ++i) me.add(heap + 2 * mem::kPageBytes);
                })
        .messages;
  };
  EXPECT_EQ(adds(2) - adds(1), 4u);  // two more for the directory, which a script asks each time
}

TEST(Counts, AMissOfAPage) {
  const auto misses = [](std::uint64_t blocks) {
    return team(16,
                [blocks](Member& me, std::uint64_t heap) {
                  if (raw(me.rank()) == 1) me.read(heap + 2 * mem::kPageBytes, blocks * mem::kBlockBytes);
                })
        .messages;
  };
  EXPECT_EQ(misses(1), 14u);
  EXPECT_EQ(misses(2) - misses(1), 2u);
}

TEST(Counts, TheSameRunTwice) {
  const auto run = [] {
    Cluster cluster({.ranks = 16, .heap_bytes = 0});
    const auto fib = std::ranges::find(scripts(), std::string("fib"), &Script::name);
    EXPECT_TRUE(fib->run(cluster, true).has_value());
    return std::pair{cluster.elapsed_ns(), busiest(cluster).messages};
  };
  EXPECT_EQ(run(), run());
}

TEST(Counts, EachScriptRunsOnBothNetworks) {
  for (const Script& script : scripts()) {
    for (const auto& timing : {comm::sim::Timing::rdma(), comm::sim::Timing::tcp()}) {
      Cluster cluster({.ranks = 8,
                       .timing = timing,
                       .heap_bytes = std::max(script.together, script.heap_each * 8) + (2 << 20),
                       .page_bytes = script.page_bytes});
      const auto work = script.run(cluster, true);
      ASSERT_TRUE(work.has_value()) << script.name << ": " << work.error().message;
      const double efficiency = static_cast<double>(*work) / static_cast<double>(cluster.elapsed_ns()) / 8;
      EXPECT_GT(efficiency, 0.001) << script.name;
      EXPECT_LE(efficiency, 1.0) << script.name;
      for (std::uint32_t r = 0; r < 8; ++r) {
        const Parts p = cluster.member(r).parts();
        EXPECT_LE(p.compute, cluster.elapsed_ns()) << script.name;
      }
    }
  }
}

// ---- failures ----

/// A program of --quick; times in ns.
struct Ran {
  bool ended_by_death;
  std::uint64_t elapsed;
};
Ran ran(const char* name, const ClusterOptions& given) {
  const auto script = std::ranges::find(scripts(), std::string(name), &Script::name);
  ClusterOptions options = given;
  options.heap_bytes = std::max(script->together, script->heap_each * options.ranks) + (2 << 20);
  Cluster cluster(options);
  const auto work = script->run(cluster, true);
  EXPECT_TRUE(work.has_value()) << name << ": " << work.error().message;
  return {cluster.ended_by_death(), cluster.elapsed_ns()};
}

/// A team waits for the slow one; threads go where there is time.
void one_is_slow(std::uint32_t ranks, double team_at_least) {
  const auto slowed = [&](const char* name) {
    return static_cast<double>(ran(name, {.ranks = ranks, .slow = Rank{ranks / 2}}).elapsed) /
           static_cast<double>(ran(name, {.ranks = ranks}).elapsed);
  };
  const double team = slowed("heat");
  EXPECT_GT(team, team_at_least);
  EXPECT_LT(team, 2.1);
  EXPECT_LT(slowed("uts"), 1.3);
}
TEST(Failures, ASlowRankTakesWhatItsPartTakes) { one_is_slow(16, 1.3); }
// There a step is 16 us of work, and what the others wait for is each other.
TEST(Failures, ASlowRankDoesNoHarmAmongAThousand_Thousand) { one_is_slow(1024, 0.9); }

/// One message in a hundred was lost, and comes 10 ms later.
TEST(Failures, LateMessagesDelayAndLoseNothing) {
  auto timing = comm::sim::Timing::rdma();
  timing.late_one_in = 100;
  timing.late_ns = 10'000'000;
  for (const char* name : {"fib", "cilksort", "queues", "cg"}) {
    const Ran r = ran(name, {.ranks = 16, .timing = timing});
    EXPECT_FALSE(r.ended_by_death);
    EXPECT_LT(r.elapsed, 10'000'000'000u) << name;
  }
}

/// What a rank does when another has died: someone posts to it, is told, and the job ends.
void one_dies(std::uint32_t ranks) {
  for (const char* name : {"barriers", "uts", "collectives"}) {
    const std::uint64_t at = 150'000;
    const Ran r = ran(name, {.ranks = ranks, .dies = Rank{ranks / 2 + 1}, .dies_ns = at});
    EXPECT_TRUE(r.ended_by_death) << name;
    EXPECT_LT(r.elapsed, at + comm::sim::Timing::rdma().notice_ns + 1'000'000'000u) << name;
  }
}
TEST(Failures, ARankThatDiesEndsTheJob) { one_dies(16); }
TEST(Failures, ARankThatDiesEndsTheJobOfAThousand_Thousand) { one_dies(1024); }

// ---- growth ----

using Body = std::function<void(Member&, std::uint64_t)>;
double grows(const Body& body, std::uint32_t few, std::uint32_t many) {
  return static_cast<double>(team(many, body).messages) / static_cast<double>(team(few, body).messages);
}

void meets(Member& me, std::uint64_t) { me.compute(10'000), me.meet(), me.compute(10'000), me.meet(); }
/// One rank works, all others look for work and go to sleep.
void idles(Member& me, std::uint64_t) {
  if (raw(me.rank()) == 0) me.compute(2'000'000);
  me.meet();
}
void collects(Member& me, std::uint64_t) { me.barrier_of_collectives(), me.allreduce(1); }
// What follows grows.
void one_barrier(Member& me, std::uint64_t) { me.wait({Rank{0}, 0}); }
/// All read a page, its owner changes it, and tells each of them.
void told(Member& me, std::uint64_t heap) {
  for (int i = 0; i < 2; ++i) {
    me.read(heap, 64);
    me.barrier_of_collectives();
    if (raw(me.rank()) == 0) me.write(heap, 64), me.release_all();
    me.barrier_of_collectives();
    me.acquire_noticed();
  }
}
/// All have read a page, which then moves: each is asked to forget where it is.
void moved(Member& me, std::uint64_t heap) {
  me.read(heap, 64);
  me.barrier_of_collectives();
  if (raw(me.rank()) == 1) me.own(heap);
  me.barrier_of_collectives();
}
/// One lock for all.
void one_lock(Member& me, std::uint64_t heap) {
  me.lock({Rank{0}, 100});
  me.write(heap, 8);
  me.unlock({Rank{0}, 100});
}

TEST(Growth, OfWhatIsBounded) {
  EXPECT_LT(grows(meets, 64, 256), 1.5);
  EXPECT_LT(grows(idles, 64, 256), 1.5);
  EXPECT_LT(grows(collects, 64, 256), 1.5);
}
TEST(Growth, OfWhatIsBoundedAtAThousandRanks_Thousand) {
  EXPECT_LT(grows(meets, 256, 1024), 1.6);
  EXPECT_LT(grows(idles, 256, 1024), 1.6);
  EXPECT_LT(grows(collects, 256, 1024), 1.6);
}
TEST(Growth, OfWhatGrows) {
  EXPECT_GT(grows(one_barrier, 64, 256), 3);
  EXPECT_GT(grows(told, 64, 256), 3);
  EXPECT_GT(grows(moved, 64, 256), 3);
  EXPECT_GT(grows(one_lock, 64, 256), 3);
}

}  // namespace
}  // namespace kasane::scale
