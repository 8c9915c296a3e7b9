// SPDX-License-Identifier: Apache-2.0
// Collectives over every transport, each against the oracle. Where a rank maps its peers, also through the
// collectives' region. KASANE_SEED=n changes what the tests draw.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <tuple>

#include "comm/collectives/cells.h"
#include "multi/comm/every_transport.h"
#include "multi/comm_collectives/oracle.h"

namespace kasane::comm::test {
namespace {

std::uint64_t base_seed() {
  const char* seed = std::getenv("KASANE_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 0);
}

void reduce(Collectives& all, const Case& c, Bytes& values) {
  const auto as = [&](auto zero) {
    all.allreduce(c.op, std::span(reinterpret_cast<decltype(zero)*>(values.data()), c.elements));
  };
  switch (c.scalar) {
    case Scalar::int32: return as(std::int32_t{});
    case Scalar::int64: return as(std::int64_t{});
    case Scalar::uint32: return as(std::uint32_t{});
    case Scalar::uint64: return as(std::uint64_t{});
    case Scalar::float32: return as(float{});
    case Scalar::float64: return as(double{});
  }
}

void run(Env& env, const Case& c) {
  Call call = call_of(c, env.me(), env.ranks());
  switch (c.collective) {
    case Collective::barrier: env.all.barrier(); break;
    case Collective::broadcast: env.all.broadcast(Rank{c.root}, call.out); break;
    case Collective::allreduce: reduce(env.all, c, call.out); break;
    case Collective::allgather: env.all.allgather(call.in, call.out); break;
  }
  EXPECT_TRUE(call.out == expected(c, env.ranks())) << "rank " << env.me() << ": " << c.text();
}

using Param = std::tuple<Kind, bool>;  ///< the transport, and whether the collectives' region is attached

class CollectivesTest : public ::testing::TestWithParam<Param> {
 protected:
  static void on_ranks(const Body& body, int sim_seeds) {
    const auto [kind, region] = GetParam();
    on_every_rank(
        kind,
        [&body, with_region = region](Env& env) {
          if (with_region) {
            const auto attached = env.all.attach();
            ASSERT_TRUE(attached) << attached.error().message;
          }
          body(env);
        },
        sim_seeds);
  }
  /// So many ranks on few cores that what is waited for is the scheduler: shorter then.
  static bool crowded() { return ranks_wanted() > 3; }
  static bool slow(const Env& env) { return env.kind != Kind::shm && env.kind != Kind::shm_service; }
};

TEST_P(CollectivesTest, EveryCollectiveTypeSizeAndRoot) {
  on_ranks(
      [](Env& env) {
        std::vector<std::size_t> sizes{0, 1, 125, 126, 127, 2000};
        if (!slow(env)) sizes.push_back(40'000);
        std::uint64_t seed = base_seed();
        for (const Collective collective : kCollectives) {
          for (const std::size_t elements : sizes) {
            Case c{.collective = collective, .elements = elements, .seed = ++seed};
            const bool rooted = collective == Collective::broadcast;
            for (c.root = 0; c.root < (rooted ? env.ranks() : 1); ++c.root) run(env, c);
          }
        }
        for (const Scalar scalar : kScalars) {
          for (const Reduce op : kReduces) {
            run(env, {.collective = Collective::allreduce,
                      .scalar = scalar,
                      .op = op,
                      .elements = 300,
                      .seed = ++seed});
          }
        }
      },
      /*sim_seeds=*/2);
}

void rest(Env& env, std::uint64_t steps) {
  if (env.world == nullptr) ::usleep(static_cast<useconds_t>(steps));
  for (; env.world != nullptr && steps > 0; --steps) env.world->yield_point();
}

// Ranks run ahead of each other: a root waits for nobody, and a rank may rest anywhere.
TEST_P(CollectivesTest, RandomSequences) {
  on_ranks(
      [](Env& env) {
        const std::uint64_t seed = base_seed() * 100 + (env.world == nullptr ? 0 : env.world->seed());
        Random common(seed), own(seed * 1000 + env.me());
        const int length = slow(env) ? 120 : crowded() ? 180 : 750;
        const std::size_t longest = slow(env) ? 12'000 : 60'000;
        for (int i = 0; i < length; ++i) {
          run(env, random_case(common, env.ranks(), longest));
          if (own.one_in(8)) rest(env, own.below(40));
        }
      },
      crowded() ? 4 : 8);
}

// Then its first collective there has a number of more than a rank may be ahead, and ranks that have sent
// nothing to a peer yet know that it has completed those before.
TEST_P(CollectivesTest, TheRegionMayComeLate) {
  if (!std::get<1>(GetParam())) GTEST_SKIP() << "no region";
  on_every_rank(
      std::get<0>(GetParam()),
      [](Env& env) {
        for (std::uint64_t i = 0; i < 2 * kActive; ++i)
          run(env, {.collective = Collective::broadcast, .elements = 10, .seed = i});
        const auto attached = env.all.attach();
        ASSERT_TRUE(attached) << attached.error().message;
        for (const Collective c : kCollectives) run(env, {.collective = c, .elements = 200, .seed = 1});
      },
      crowded() ? 2 : 6);
}

TEST_P(CollectivesTest, MegabytesArrive) {
  if (std::get<0>(GetParam()) == Kind::sim) GTEST_SKIP() << "too many simulated messages";
  on_ranks(
      [](Env& env) {
        for (const Collective c : {Collective::broadcast, Collective::allreduce, Collective::allgather}) {
          run(env, {.collective = c,
                    .root = env.ranks() - 1,
                    .elements = crowded() ? 150'001u : 300'001u,
                    .seed = 77});
        }
      },
      0);
}

std::vector<Param> params() {
  std::vector<Param> all;
  for (const Kind kind : every_kind()) {
    all.emplace_back(kind, false);
    if (kind == Kind::shm || kind == Kind::shm_service || kind == Kind::sim) all.emplace_back(kind, true);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, CollectivesTest, ::testing::ValuesIn(params()), [](const auto& param) {
  return name_of(std::get<0>(param.param)) + (std::get<1>(param.param) ? "_region" : "");
});

TEST(CollectivesDeathTest, RanksThatDifferAreTold) {
  auto differ = [](auto body) {
    sim::World world(2, 1);
    Collectives first(world.transport(Rank{0}), world.waiter()),
        second(world.transport(Rank{1}), world.waiter());
    for (std::uint32_t r = 0; r < 2; ++r) world.spawn(Rank{r}, [&, r] { body(r, r == 0 ? first : second); });
    (void)world.run();
  };
  std::vector<std::byte> bytes(10'000);
  const auto root = Rank{0};
  EXPECT_DEATH(differ([&](std::uint32_t r, Collectives& all) {
                 r == 0 ? all.barrier() : all.broadcast(root, std::span(bytes).first(0));
               }),
               "ranks differ.*barrier.*broadcast|ranks differ.*broadcast.*barrier");
  EXPECT_DEATH(differ([&](std::uint32_t r, Collectives& all) {
                 all.broadcast(root, std::span(bytes).first(r == 0 ? 100 : 101));
               }),
               "rank 1 calls broadcast .root 0, 101 bytes.*rank 0 calls broadcast .root 0, 100 bytes");
  for (const std::size_t of_root : {100, 10'000}) {
    EXPECT_DEATH(differ([&](std::uint32_t r, Collectives& all) {
                   all.broadcast(root, std::span(bytes).first(r == 0 ? of_root : 10'100 - of_root));
                 }),
                 "ranks differ");
  }
}

TEST(CollectivesDeathTest, ALostRankIsNotWaitedFor) {
  EXPECT_DEATH(
      {
        sim::World world(2, 1);
        Collectives all(world.transport(Rank{0}), world.waiter());
        world.spawn(Rank{0}, [&] {
          all.peer_lost(Rank{1});  // as if the transport had told so
          all.barrier();
        });
        (void)world.run();
      },
      "a rank was lost");
}

}  // namespace
}  // namespace kasane::comm::test
