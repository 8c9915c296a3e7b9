// SPDX-License-Identifier: Apache-2.0
// Which pages move by themselves to which rank: the decision under patterns of use, and the driver over the
// simulated network.
#include "gas/relocation_policy.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "gas/auto_relocator.h"
#include "gas/direct_access.h"
#include "support/sanitized.h"
#include "unit/gas/sim_job.h"

namespace kasane::gas {
namespace {

using test::Job, test::SimRank;

constexpr std::uint32_t kThreshold = 8;

/// One page, used by ranks that look at every kThreshold-th use, as AutoRelocator does. The owner's uses are
/// not seen.
struct Page {
  UseRecord usage;
  Rank owner{0};
  std::map<Rank, std::uint32_t> uses, ahead;  ///< ahead: how much a rank's clock is
  std::uint32_t moves = 0, remote = 0, second = 0;
  std::uint32_t a_host = 1;  ///< so many neighbouring ranks share memory
  [[nodiscard]] bool near(Rank a, Rank b) const { return raw(a) / a_host == raw(b) / a_host; }

  void use(std::uint32_t r, std::uint32_t times = 1, bool others_wrote = false) {
    const Rank me{r};
    for (std::uint32_t i = 0; i < times && owner != me; ++i) {
      ++remote;
      uses[me] = counted(uses[me], others_wrote);
      if (uses[me] % kThreshold != 0) continue;
      const bool last_is_near = usage.last != kNoRank && usage.last != me && near(me, usage.last);
      RelocationDecision a =
          decide_relocation(usage, me, last_is_near, uses[me], kThreshold, second + ahead[me]);
      if (a.take_if_far) {
        a.take = !near(me, owner);
        if (!a.take) a.after = a.stays;
      }
      usage = UseRecord::of(a.after.word());
      uses[me] = a.take ? 0 : a.streak;
      if (!a.take) continue;
      owner = me;
      ++moves;
    }
  }
};

TEST(RelocationDecision, APageThatOneRankUsesMovesOnce) {
  Page page;
  page.use(2, 10'000);
  EXPECT_EQ(page.owner, Rank{2});
  EXPECT_EQ(page.moves, 1u);
  EXPECT_EQ(page.remote, kThreshold);
}

TEST(RelocationDecision, APageThatSeveralUseStays) {
  for (const std::uint32_t turn : {1u, 3u, 8u, 11u, 100u}) {
    Page page;
    for (int i = 0; i < 2'000; ++i) {
      page.use(1, std::min(turn, kThreshold - 1));
      page.use(2, turn);
    }
    // Rank 2 may look several times in a row before rank 1 does; not more than the doublings allow.
    EXPECT_LE(page.moves, 1 + kMostMoves) << turn;
  }
  Page page;  // three look in turn: each rank that does not own it finds the other
  for (int i = 0; i < 20'000; ++i) {
    for (const std::uint32_t r : {1u, 2u, 3u}) page.use(r, kThreshold);
  }
  EXPECT_LE(page.moves, 1u);
}

// What its owner writes between a reader's rounds stays with the owner, until it writes no more.
TEST(RelocationDecision, APageThatItsOwnerWritesStays) {
  Page page;
  for (int round = 0; round < 1'000; ++round) {
    page.use(1, 1, true);
    page.use(1, kThreshold - 2);
  }
  EXPECT_EQ(page.moves, 0u);
  page.use(1, 2);
  EXPECT_EQ(page.owner, Rank{1});
}

// The owner's own uses are not seen, so each rank in turn takes the page, ever more slowly: the moves cost
// less than a percent of the fetches, counting a move as 16.
TEST(RelocationDecision, AReleaseOfAWholePageCountsUnlessOthersHaveChangedIt) {
  EXPECT_EQ(counted_release(5), 7u);
  EXPECT_EQ(counted_release(5 | kOthersChanged), 5u);
  EXPECT_EQ(counted_release(counted_release(5 | kOthersChanged)), 7u);
  // what others have changed stays known when the fetch of it begins a new streak
  EXPECT_EQ(counted(5 | kOthersChanged, true), kOthersChanged | kAnew | 1);
  EXPECT_EQ(decide_relocation({}, Rank{1}, false, 9 | kOthersChanged, 16, 0).streak, 9u);
}

TEST(RelocationDecision, TurnsOfTwoRanksDampItToLessThanAPercent) {
  for (const std::uint32_t turn : {4u, 8u, 20u, 64u}) {
    Page page;
    for (int i = 0; i < 200'000 / static_cast<int>(turn); ++i) {
      page.use(0, turn);
      page.use(1, turn);
    }
    EXPECT_LE(page.moves, kMostMoves + 100'000 * 2 / streak_needed({Rank{0}, kMostMoves}, kThreshold) + 1)
        << turn;
    EXPECT_LE(page.moves * 16 * 100, page.remote * 4)
        << turn << ": " << page.moves << " moves, " << page.remote << " fetches";
  }
}

TEST(RelocationDecision, PhasesAreFollowed) {
  Page page;
  for (std::uint32_t phase = 0; phase < 8; ++phase) {
    const std::uint32_t before = page.remote;
    page.use(1 + phase % 3, 100'000);
    EXPECT_EQ(page.owner, Rank{1 + phase % 3});
    EXPECT_LE(page.remote - before, kThreshold * ((2u << phase) + 1)) << phase;
  }
  EXPECT_EQ(page.moves, 8u);
}

// Phases that last some seconds are all followed as the first one was: what is long past counts no more.
TEST(RelocationDecision, LongPhasesAreFollowedAtOnce) {
  Page page;
  for (std::uint32_t phase = 0; phase < 50; ++phase) {
    const std::uint32_t before = page.remote;
    page.use(1 + phase % 3, 100'000);
    EXPECT_EQ(page.owner, Rank{1 + phase % 3});
    EXPECT_LE(page.remote - before, 3 * kThreshold) << phase;
    page.second += 2 * kForgetSeconds;
  }
}

// Ranks of one host that use a page of another host in turns: none of them alone makes a streak, but each
// fetch crosses the network until one of them has it.
TEST(RelocationDecision, APageThatOneHostUsesComesToIt) {
  for (const std::uint32_t moves : {0u, 1u, 3u, kMostMoves}) {
    for (const std::uint32_t turn : {1u, 3u, 8u, 11u}) {
      Page page;
      page.a_host = 2;
      page.usage.moves = moves;
      for (int i = 0; i < 4'000 && page.moves == 0; ++i)
        for (const std::uint32_t r : {2u, 3u}) page.use(r, turn);
      EXPECT_TRUE(page.near(page.owner, Rank{2})) << turn;
      EXPECT_GE(page.remote, kThreshold * std::min(1u << moves, kLongestRow)) << turn;
      // and what each has not looked for
      EXPECT_LE(page.remote, kThreshold * ((1u << moves) + 2) + turn) << turn;
    }
  }
}

// As between ranks: hosts, none of which owns it, find each other, whichever of their ranks look.
TEST(RelocationDecision, APageThatSeveralHostsUseStays) {
  Page page;
  page.a_host = 2;
  page.usage.last = Rank{4};  // else the rank that looks first takes it
  for (int i = 0; i < 2'000; ++i)
    for (const std::uint32_t r : {2u, 4u, 3u, 5u}) page.use(r, kThreshold);
  EXPECT_EQ(page.moves, 0u);
}

TEST(RelocationDecision, TurnsOfTwoHostsDampItToLessThanAPercent) {
  Page page;
  page.a_host = 2;
  for (int i = 0; i < 20'000; ++i)
    for (const std::uint32_t r : {0u, 1u, 2u, 3u}) page.use(r, 2 * kThreshold);
  EXPECT_LE(page.moves, kMostMoves + page.remote / (kThreshold * kLongestRow) + 1);
  EXPECT_LE(page.moves * 16 * 100, page.remote * 4) << page.moves << " moves, " << page.remote << " fetches";
}

// What its owner writes stays with it, however many of another host read.
TEST(RelocationDecision, APageThatItsOwnerWritesStaysThoughAHostReadsIt) {
  Page page;
  page.a_host = 2;
  page.usage = {Rank{2}, 1, 0};
  for (int round = 0; round < 1'000; ++round)
    for (const std::uint32_t r : {2u, 3u}) {
      page.use(r, 1, true);
      page.use(r, kThreshold);
    }
  EXPECT_EQ(page.moves, 0u);
}

// Among the ranks of its host a page moves as if there were no other host.
TEST(RelocationDecision, RanksOfTheOwnersHostBreakEachOthersStreaks) {
  Page page;
  page.a_host = 3;
  page.use(2, kThreshold);
  EXPECT_EQ(page.moves, 1u);  // no rank had looked
  for (int i = 0; i < 2'000; ++i)
    for (const std::uint32_t r : {0u, 1u}) page.use(r, kThreshold);
  EXPECT_EQ(page.moves, 1u);
}

// Forgetting lets a page that two ranks use in turns move once a second more, however often they use it; also
// where their clocks differ by much.
TEST(RelocationDecision, TurnsStayDampedAsTimePasses) {
  for (const std::uint32_t ahead : {0u, 5u, 100'000u}) {
    for (const std::uint32_t a_second : {100u, 10'000u, fewer_if_sanitized(1'000'000)}) {
      Page page;
      page.second = 1000;
      page.ahead[Rank{1}] = ahead;
      constexpr std::uint32_t kSeconds = 30, kTurn = 20;
      for (std::uint32_t s = 0; s < kSeconds; ++s, ++page.second) {
        for (std::uint32_t i = 0; i < a_second / kTurn; ++i) page.use(i % 2, kTurn);
      }
      // a clock that is ahead, once
      const std::uint32_t forgotten = kSeconds / kForgetSeconds + (ahead != 0 ? kMostMoves : 0);
      EXPECT_LE(page.moves,
                kMostMoves + 1 + forgotten + page.remote / streak_needed({Rank{0}, kMostMoves}, kThreshold))
          << ahead << ", " << a_second;
    }
  }
}

TEST(RelocationDecision, AMoveIsForgottenInItsTime) {
  const UseRecord three{Rank{1}, 3, 100};
  EXPECT_EQ(forget(three, 100 + kForgetSeconds - 1), three);
  EXPECT_EQ(forget(three, 100 + kForgetSeconds), (UseRecord{Rank{1}, 2, 100 + kForgetSeconds}));
  // looks do not matter
  EXPECT_EQ(forget(forget(three, 101 * kForgetSeconds), 102 * kForgetSeconds),
            forget(three, 102 * kForgetSeconds));
  EXPECT_EQ(forget(three, 1'000'000).moves, 0u);
  EXPECT_EQ(forget(three, 50), three);  // another host's clock
  EXPECT_EQ(forget({}, 1'000'000), UseRecord{});
}

TEST(UseRecord, SurvivesItsWord) {
  for (const UseRecord& u : {UseRecord{}, UseRecord{Rank{0}, 0},
                             UseRecord{Rank{kMaxRanks - 1}, kMostMoves, 0xFFFFFFFF, kLongestRow}})
    EXPECT_EQ(UseRecord::of(u.word()), u);
  EXPECT_EQ(UseRecord{}.word(), 0u);  // a fresh directory
  EXPECT_EQ(streak_needed({Rank{0}, 200}, 16), 16u << kMostMoves);
}

// ---- driver ----------------------------------------------------------------------------------------------

struct Drawn : testing::Test {
  Drawn() : job(3, 1) {
    for (auto& rank : job.all) {
      auto_relocators.push_back(
          AutoRelocator::create(rank.transport, *rank.directory,
                                {mem::kPageBytes, 4 * mem::kPageBytes, 4, [] { return 0u; }})
              .value());
      rank.access = DirectAccess::create(*rank.engine, *rank.addresses, auto_relocators.back().get(),
                                         rank.frames.size(), mem::AddressMap())
                        .value();
    }
    job.on(1, [](SimRank& here, comm::Blocking& io) {
      for (std::uint64_t p = 0; p < 6; ++p)
        ASSERT_TRUE(here.mover->assign(io, PageId{p}, Rank{1}).has_value());
    });
  }
  Location where(std::uint64_t page) {
    Location l;
    job.on(0, [&](SimRank& here, comm::Blocking& io) { l = here.directory->lookup(io, PageId{page}); });
    return l;
  }
  void use(std::uint32_t r, std::uint64_t page, int times) {
    use_by(r, times, [&](SimRank&, comm::Blocking&) { auto_relocators[r]->used(PageId{page}); });
  }
  template <class F>
  void use_by(std::uint32_t r, int times, const F& call) {
    job.on(r, [&](SimRank& here, comm::Blocking& io) {
      for (int i = 0; i < times; ++i) call(here, io);
      while (auto_relocators[r]->serve(io, *here.mover)) {
      }
    });
  }
  Job job;
  std::vector<std::unique_ptr<AutoRelocator>> auto_relocators;
};

TEST_F(Drawn, APageComesAfterEnoughUses) {
  use(2, 2, 3);
  EXPECT_EQ(where(2).owner, Rank{1});
  use(2, 2, 1);
  EXPECT_EQ(where(2).owner, Rank{2});
  EXPECT_EQ(job[2].counters.pages_auto_relocated.load(), 1u);
  use(0, 2, 4);  // rank 2 was the last to look
  use(0, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{2});
  use(0, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{0});
}

TEST_F(Drawn, APageComesToTheRankThatFillsIt) {
  const auto release = [&](std::uint64_t page, int times, bool told) {
    use_by(2, times, [&](SimRank&, comm::Blocking&) {
      auto_relocators[2]->released(PageId{page});
      if (told) auto_relocators[2]->others_changed(PageId{page});
    });
  };
  release(2, 1, false);
  EXPECT_EQ(where(2).owner, Rank{1});
  release(2, 1, false);  // 4 uses
  EXPECT_EQ(where(2).owner, Rank{2});
  release(3, 100, true);
  EXPECT_EQ(where(3).owner, Rank{1});
}

// The owner is over the network for ranks 0 and 2, which share memory: their uses count together. Once one of
// them has the page, each breaks the other's streak.
TEST_F(Drawn, APageComesToTheRanksOfAHost) {
  job[0].transport.maps[Rank{2}] = job[2].frames.data();
  job[2].transport.maps[Rank{0}] = job[0].frames.data();
  use(0, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{0});
  job.on(1, [](SimRank& here, comm::Blocking& io) { EXPECT_TRUE(here.mover->pull(io, PageId{2})); });
  use(0, 2, 4);  // of 8, since it has moved before
  EXPECT_EQ(where(2).owner, Rank{1});
  use(2, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{2});
  // of 16, but rank 2 looked last: what came before the first look does not count
  for (int look = 0; look < 4; ++look) use(0, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{2});
  use(0, 2, 4);
  EXPECT_EQ(where(2).owner, Rank{0});
}

// A rank that takes a page was just using it, and may still be: that is no refusal, neither here nor at its
// owner, so the next try needs no more uses.
TEST_F(Drawn, APageInUseComesAllTheSame) {
  SimRank& here = job[2];
  here.claimed[3] = true;
  job[1].refusals = 3;
  here.transport.atomics = 0;
  job.world.spawn(Rank{2}, [&] {
    job.world.waiter().until([&] { return here.transport.atomics >= 2; });  // word 3 was looked at
    here.settle(PageId{3}, Settled::as_it_was, {});
  });
  use(2, 3, 4);
  EXPECT_EQ(where(3).owner, Rank{2});
  EXPECT_EQ(job[1].refusals, 0);
  EXPECT_EQ(here.counters.pages_auto_relocated.load(), 1u);
}

// Each operation of direct access is a use of the page, and the fourth one moves it; a copy is a use of both
// its pages.
TEST_F(Drawn, DirectAccessIsUse) {
  constexpr std::uint64_t page = mem::kPageBytes;
  std::uint64_t word = 0;
  use_by(2, 3, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(get(io, *here.access, &word, page, 8).has_value());
  });
  EXPECT_EQ(where(1).owner, Rank{1});
  use_by(2, 1, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(get(io, *here.access, &word, page, 8).has_value());
  });
  EXPECT_EQ(where(1).owner, Rank{2});
  use_by(2, 4, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(put(io, *here.access, 2 * page, &word, 8).has_value());
  });
  EXPECT_EQ(where(2).owner, Rank{2});
  const auto add = [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                  return here.access->atomic(io, o, comm::AtomicOp::fetch_add, comm::Width::eight, 3 * page,
                                             1, 0, &word);
                }).has_value());
  };
  use_by(0, 4, add);
  EXPECT_EQ(where(3).owner, Rank{0});
  use_by(0, 100, add);  // its own: not counted, so no rank looks
  EXPECT_EQ(job[0].counters.pages_auto_relocated.load(), 1u);
  use_by(0, 4, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                  return here.access->copy(io, o, page, 4 * page, 64);
                }).has_value());
  });
  EXPECT_EQ(where(4).owner, Rank{0});
  EXPECT_EQ(where(1).owner, Rank{2});  // its last user was another
  use_by(0, 4, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                  return here.access->copy(io, o, page, 4 * page, 64);
                }).has_value());
  });
  EXPECT_EQ(where(1).owner, Rank{2});  // and it has moved before: twice the uses
  use_by(0, 4, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                  return here.access->copy(io, o, page, 4 * page, 64);
                }).has_value());
  });
  EXPECT_EQ(where(1).owner, Rank{0});
}

TEST_F(Drawn, PagesOutsideOfItsRangeStay) {
  use(2, 0, 100);
  use(2, 5, 100);
  EXPECT_EQ(where(0).owner, Rank{1});
  EXPECT_EQ(where(5).owner, Rank{1});
}

TEST_F(Drawn, APinnedPageStaysAndIsAskedForLessAndLess) {
  job[1].pinned = true;
  job[2].transport.requests = 0;
  use(2, 3, 4 * 64);
  EXPECT_EQ(where(3).owner, Rank{1});
  EXPECT_FALSE(where(3).busy);
  EXPECT_LE(job[2].transport.requests, 6u);
  job[1].pinned = false;
}

TEST_F(Drawn, WhatNobodyHasTouchedOrIsNotAllocatedStays) {
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign_untouched(io, PageId{4}).has_value());
  });
  use(2, 4, 100);
  EXPECT_EQ(where(4).owner, Rank{1});
  EXPECT_TRUE(where(4).untouched);
}

}  // namespace
}  // namespace kasane::gas
