// SPDX-License-Identifier: Apache-2.0
// Collectives over every transport: each against the oracle, in groups of every kind, by several threads,
// waited for out of order. Where a rank maps its peers, also through the collectives' region. KASANE_SEED=n
// changes what the random tests draw (they print theirs when they fail).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include "multi/comm/every_transport.h"
#include "multi/comm_collectives/oracle.h"

namespace kasane::comm::test {
namespace {

std::uint64_t base_seed() {
  const char* seed = std::getenv("KASANE_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 0);
}

Ticket start(Group& g, const Case& c, Call& call) {
  switch (c.collective) {
    case Collective::barrier: return g.start_barrier();
    case Collective::broadcast: return g.start_broadcast(c.root, call.out);
    case Collective::reduce: return g.start_reduce(reduction_of(c), c.root, call.out);
    case Collective::allreduce: return g.start_allreduce(reduction_of(c), call.out);
    case Collective::gather: return g.start_gather(c.root, call.in, call.out);
    case Collective::allgather: return g.start_allgather(call.in, call.out);
    case Collective::alltoall: return g.start_alltoall(call.in, call.out);
    case Collective::scan: return g.start_scan(reduction_of(c), call.out);
    case Collective::exscan: return g.start_scan(reduction_of(c), call.out, Scan::exclusive);
  }
  return {};
}

void run(Group& g, const Case& c, Waiter& waiter) {
  Call call = call_of(c, g.rank(), g.size());
  Ticket ticket = start(g, c, call);
  EXPECT_EQ(ticket.wait(waiter), Status::ok);
  EXPECT_TRUE(call.out == expected(c, g.rank(), g.size()))
      << "member " << g.rank() << " of " << g.size() << ": " << c.text();
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
        Group& all = env.all.world();
        std::vector<std::size_t> sizes{0, 1, 125, 126, 127, 2000};
        if (!slow(env)) sizes.push_back(40'000);
        std::uint64_t seed = base_seed();
        for (int collective = 1; collective <= 9; ++collective) {
          for (const std::size_t elements : sizes) {
            Case c{.collective = static_cast<Collective>(collective), .elements = elements, .seed = ++seed};
            const bool rooted = c.collective == Collective::broadcast || c.collective == Collective::reduce ||
                                c.collective == Collective::gather;
            for (c.root = 0; c.root < (rooted ? all.size() : 1); ++c.root) run(all, c, env.waiter);
          }
        }
        for (const Scalar scalar : kScalars) {
          for (const Reduce op : kReduces) {
            if (has(scalar, op))
              run(all,
                  {.collective = Collective::allreduce,
                   .scalar = scalar,
                   .op = op,
                   .elements = 300,
                   .seed = ++seed},
                  env.waiter);
          }
        }
      },
      /*sim_seeds=*/2);
}

/// The same random groups on every rank: members in any order, by explicit lists.
struct Member {
  std::unique_ptr<Group> group;
  std::vector<std::uint32_t> list;
};
std::vector<Member> random_groups(Group& world, Random& common, int count) {
  std::vector<Member> groups;
  for (int i = 0; i < count; ++i) {
    Member m;
    m.list.resize(world.size());
    std::iota(m.list.begin(), m.list.end(), 0u);
    for (std::size_t k = m.list.size(); k > 1; --k) std::swap(m.list[k - 1], m.list[common.below(k)]);
    m.list.resize(1 + common.below(world.size()));
    m.group = world.subset(m.list);
    const bool in_it = std::find(m.list.begin(), m.list.end(), world.rank()) != m.list.end();
    EXPECT_EQ(m.group != nullptr, in_it);
    if (in_it) {
      EXPECT_EQ(m.group->size(), m.list.size());
      EXPECT_EQ(m.list[m.group->rank()], world.rank());
    }
    groups.push_back(std::move(m));
  }
  return groups;
}

/// One thread's random sequence over its groups; up to 24 outstanding collectives, awaited in a random order
/// on each rank.
void random_sequence(std::vector<Member>& groups, std::uint64_t seed, std::uint32_t me, int length,
                     std::size_t longest, Waiter& waiter) {
  struct Pending {
    Case c;
    Group* group;
    std::unique_ptr<Call> call;
    Ticket ticket;
  };
  Random common(seed), own(seed * 1000 + me);
  std::vector<Pending> pending;
  auto finish = [&](std::size_t i) {
    Pending p = std::move(pending[i]);
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(p.ticket.wait(waiter), Status::ok);
    EXPECT_TRUE(p.call->out == expected(p.c, p.group->rank(), p.group->size()))
        << p.c.text() << ", sequence seed " << seed;
  };
  for (int i = 0; i < length; ++i) {
    Member& m = groups[common.below(groups.size())];
    const Case c = random_case(common, static_cast<std::uint32_t>(m.list.size()), longest);
    if (m.group == nullptr) continue;
    auto call = std::make_unique<Call>(call_of(c, m.group->rank(), m.group->size()));
    Ticket ticket = start(*m.group, c, *call);
    pending.push_back({c, m.group.get(), std::move(call), std::move(ticket)});
    while (pending.size() > 24 || (!pending.empty() && own.one_in(3))) finish(own.below(pending.size()));
    if (!pending.empty() && own.one_in(4)) (void)pending.back().ticket.test();
  }
  while (!pending.empty()) finish(own.below(pending.size()));
}

TEST_P(CollectivesTest, RandomSequencesOverOverlappingGroupsByThreeThreads) {
  on_ranks(
      [](Env& env) {
        const std::uint64_t seed = base_seed() * 100 + (env.world == nullptr ? 0 : env.world->seed());
        Random common(seed);
        std::vector<std::vector<Member>> groups;
        for (int t = 0; t < 3; ++t) groups.push_back(random_groups(env.all.world(), common, 3));
        const int length = slow(env) ? 40 : crowded() ? 60 : 250;
        const std::size_t longest = slow(env) ? 12'000 : 60'000;
        env.in_parallel(3, [&](int t, Waiter& waiter) {
          random_sequence(groups[static_cast<std::size_t>(t)], seed + static_cast<std::uint64_t>(t) * 17,
                          env.me(), length, longest, waiter);
        });
        env.all.barrier();
      },
      crowded() ? 4 : 8);
}

TEST_P(CollectivesTest, ARootMayRunFarAheadWhateverOthersWaitFor) {
  on_ranks(
      [](Env& env) {
        Group& all = env.all.world();
        const auto other = all.split(0, env.me());
        constexpr std::size_t kCount = 100;  // far more than are active at once
        std::vector<std::uint64_t> values(kCount);
        std::vector<Ticket> tickets;
        auto start_all = [&] {
          for (std::size_t i = 0; i < kCount; ++i) {
            values[i] = env.me() == 0 ? i * 3 + 1 : 0;
            tickets.push_back(all.start_broadcast(0, std::as_writable_bytes(std::span(&values[i], 1))));
          }
        };
        // Rank 0 starts everything before, the others after a collective of another group.
        if (env.me() == 0) start_all();
        other->barrier();
        if (env.me() != 0) start_all();
        while (!tickets.empty()) {  // the last first
          EXPECT_EQ(tickets.back().wait(), Status::ok);
          tickets.pop_back();
        }
        for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], i * 3 + 1);
        other->barrier();
      },
      crowded() ? 3 : 8);
}

TEST_P(CollectivesTest, SplitOrdersByKeyAndLeavesOutWhoHasNoColour) {
  on_ranks(
      [](Env& env) {
        Group& all = env.all.world();
        const std::uint32_t n = env.ranks();
        for (int round = 0; round < 5; ++round) {                   // slots and memory are used again
          const auto half = all.split(env.me() % 2, n - env.me());  // descending
          ASSERT_NE(half, nullptr);
          EXPECT_EQ(half->size(), (n + 1 - env.me() % 2) / 2);
          EXPECT_EQ(half->member(half->rank()), Rank{env.me()});
          for (std::uint32_t i = 1; i < half->size(); ++i)
            EXPECT_LT(raw(half->member(i)), raw(half->member(i - 1)));
          std::vector<std::uint64_t> one{1};
          half->allreduce(Reduce::sum, std::span(one));
          EXPECT_EQ(one[0], half->size());
          const auto quarter = half->split(half->rank() / 2, 0);  // a group of a group
          run(*quarter, {.collective = Collective::allgather, .elements = 1000, .seed = 5}, env.waiter);

          const auto most = all.split(env.me() == 0 ? Group::kNoColour : 7, 0);
          EXPECT_EQ(most == nullptr, env.me() == 0);
          if (most != nullptr)
            run(*most, {.collective = Collective::allreduce, .elements = 700, .seed = 3}, env.waiter);

          const std::uint32_t alone = env.me();
          const auto self = all.subset(std::span(&alone, 1));
          for (int collective = 1; collective <= 9; ++collective) {
            run(*self, {.collective = static_cast<Collective>(collective), .elements = 600, .seed = 9},
                env.waiter);
          }
        }
      },
      crowded() ? 2 : 6);
}

TEST_P(CollectivesTest, MegabytesArrive) {
  if (std::get<0>(GetParam()) == Kind::sim) GTEST_SKIP() << "too many simulated messages";
  on_ranks(
      [](Env& env) {
        for (const Collective c :
             {Collective::broadcast, Collective::allreduce, Collective::alltoall, Collective::reduce}) {
          run(env.all.world(),
              {.collective = c,
               .root = env.ranks() - 1,
               .elements = crowded() ? 150'001u : 300'001u,
               .seed = 77},
              env.waiter);
        }
      },
      0);
}

TEST(CollectivesLost, AGroupWithALostMemberFailsAndOthersGoOn) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("sim seed " + std::to_string(seed));
    sim::World world(4, seed);
    std::vector<std::unique_ptr<Collectives>> all;
    for (std::uint32_t r = 0; r < 4; ++r)
      all.push_back(std::make_unique<Collectives>(world.transport(Rank{r}), world.waiter()));
    // outlive what is still on its way
    std::vector<std::vector<std::byte>> many(4, std::vector<std::byte>(100'000));
    std::vector<std::unique_ptr<Group>> keep;
    for (std::uint32_t r = 0; r < 4; ++r) {
      world.spawn(Rank{r}, [&, r] {
        auto safe = all[r]->world().split(r == 3 ? 1 : 0, 0);
        auto doomed = all[r]->world().split(0, 0);
        if (r != 3) {
          std::uint64_t value = r;
          Ticket sum = doomed->start_allreduce(reduction(Scalar::uint64, Reduce::sum),
                                               std::as_writable_bytes(std::span(&value, 1)));
          Ticket big = doomed->start_broadcast(0, many[r]);
          for (std::uint32_t i = world.random(40); i > 0; --i) {
            world.yield_point();
            (void)big.test();
          }
          all[r]->peer_lost(Rank{3});  // as if the transport had told so
          EXPECT_EQ(sum.wait(), Status::peer_lost);
          EXPECT_EQ(big.wait(), Status::peer_lost);
          EXPECT_EQ(doomed->start_barrier().wait(), Status::peer_lost);
          for (int i = 0; i < 40; ++i) safe->barrier();
        }
        keep.push_back(std::move(safe));
        keep.push_back(std::move(doomed));
      });
    }
    const auto ended = world.run();
    ASSERT_TRUE(ended) << ended.error().message;
    keep.clear();
  }
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

TEST(CollectivesDeathTest, MembersThatDifferAreTold) {
  auto differ = [](auto body) {
    sim::World world(2, 1);
    Collectives first(world.transport(Rank{0}), world.waiter()),
        second(world.transport(Rank{1}), world.waiter());
    for (std::uint32_t r = 0; r < 2; ++r)
      world.spawn(Rank{r}, [&, r] { body(r, r == 0 ? first.world() : second.world()); });
    (void)world.run();
  };
  std::vector<std::byte> bytes(10'000);
  EXPECT_DEATH(differ([&](std::uint32_t r, Group& g) {
                 r == 0 ? g.barrier() : g.broadcast(0, std::span(bytes).first(0));
               }),
               "members of group 0 differ.*barrier.*broadcast|members of group 0 differ.*broadcast.*barrier");
  EXPECT_DEATH(
      differ([&](std::uint32_t r, Group& g) { g.broadcast(0, std::span(bytes).first(r == 0 ? 100 : 101)); }),
      "rank 1 calls broadcast .root 0, 101 bytes.*rank 0 calls broadcast .root 0, 100 bytes");
  EXPECT_DEATH(differ([&](std::uint32_t r, Group& g) {
                 g.broadcast(0, std::span(bytes).first(r == 0 ? 100 : 10'000));
               }),
               "members of group 0 differ");
  EXPECT_DEATH(differ([&](std::uint32_t r, Group& g) {
                 g.broadcast(0, std::span(bytes).first(r == 0 ? 10'000 : 100));
               }),
               "members of group 0 differ");
}

}  // namespace
}  // namespace kasane::comm::test
