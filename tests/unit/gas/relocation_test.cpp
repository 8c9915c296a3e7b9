// SPDX-License-Identifier: Apache-2.0
// Moves of pages over the simulated network: how many round trips one takes, several at once, `give`,
// refusals. (What races with them: address_cache_test.cpp; every interleaving: tests/model.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "gas/direct_access.h"
#include "support/sanitized.h"
#include "unit/gas/sim_job.h"

namespace kasane::gas {
namespace {

using test::Job, test::kPages, test::offset_of, test::page_range, test::SimRank;

void assign(Job& job, std::uint64_t first, std::uint64_t pages, std::uint32_t owner) {
  job.on(owner, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint64_t p = first; p < first + pages; ++p) {
      ASSERT_TRUE(here.mover->assign(io, PageId{p}, Rank{owner}).has_value());
      here.frames[offset_of(PageId{p}) + 5] = std::byte(p + 1);
    }
  });
}

/// Rank `r` learns where the page is.
void use(Job& job, std::uint32_t r, std::uint64_t page) {
  job.on(r, [&](SimRank& here, comm::Blocking& io) {
    const char byte = 'u';
    ASSERT_TRUE(put(io, *here.access, offset_of(PageId{page}), &byte, 1).has_value());
  });
}

Location where(Job& job, std::uint64_t page) {
  Location l;
  job.on(0, [&](SimRank& here, comm::Blocking& io) { l = here.directory->lookup(io, PageId{page}); });
  return l;
}

// ---- round trips -----------------------------------------------------------------------------------------

// Rank 0 manages the page, 1 owns it, 2 uses it, and 3 takes it: mark; yield, recall and the holders at once;
// bytes; the entry.
TEST(RoundTrips, AMoveWithOneOtherSharerTakesFourOfWhichOneIsByMessage) {
  Job job(4, 1);
  assign(job, 4, 1, 1);
  use(job, 2, 4);
  job.on(3, [](SimRank& here, comm::Blocking& io) {
    here.transport.chain();
    here.transport.requests = 0;
    ASSERT_TRUE(here.mover->bring(io, PageId{4}, page_range(PageId{4})).has_value());
    const auto chain = here.transport.chain();
    EXPECT_EQ(chain.one_sided, 3u);
    EXPECT_EQ(chain.requests, 1u);
    EXPECT_EQ(here.transport.requests, 2u);
    EXPECT_EQ(here.frames[offset_of(PageId{4}) + 5], std::byte{5});
    EXPECT_EQ(here.frames[offset_of(PageId{4})], std::byte{'u'});
  });
  EXPECT_EQ(raw(where(job, 4).owner), 3u);
}

// The last of the four is awaited by a release only: the page is here for its user before its entry says so.
TEST(RoundTrips, WhoBringsAPageForItsUserWaitsForThree) {
  Job job(4, 1);
  assign(job, 4, 1, 1);
  use(job, 2, 4);
  job.on(3, [](SimRank& here, comm::Blocking& io) {
    here.transport.chain();
    EXPECT_FALSE(here.mover->bring_all(io, PageId{4}, 1).has_value());
    const auto chain = here.transport.chain();
    EXPECT_EQ(chain.one_sided, 2u);
    EXPECT_EQ(chain.requests, 1u);
    EXPECT_EQ(here.frames[offset_of(PageId{4}) + 5], std::byte{5});
    EXPECT_FALSE(here.claimed[4]);
    EXPECT_EQ(here.naming, 1);
    here.mover->await_entry_updates(io);
    EXPECT_EQ(here.naming, 0);
    EXPECT_EQ(raw(here.directory->lookup(io, PageId{4}).owner), 3u);
  });
}

// ---- … where operations are messages to the target's program ---------------------------------------------

constexpr std::uint64_t kSmall = 4096;
constexpr comm::sim::SimOptions kByMessages{.says_by_messages = true, .answer_alone_permille = 0};

/// Rank 0 manages the page, 1 owns it, `users` know where it is, and 3 takes it.
void bring_by_messages(Job& job, std::vector<std::uint32_t> users, std::uint64_t page_bytes,
                       const std::function<void(SimRank&)>& after) {
  const std::uint64_t page = 4, at = page * page_bytes;
  job.on(1, [&](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, PageId{page}, Rank{1}).has_value());
    here.frames[at + 5] = std::byte{5};
  });
  for (const std::uint32_t r : users) {
    job.on(r, [&](SimRank& here, comm::Blocking& io) {
      const char byte = 'u';
      ASSERT_TRUE(put(io, *here.access, at, &byte, 1).has_value());
    });
  }
  job.on(3, [&](SimRank& here, comm::Blocking& io) {
    here.transport.chain();
    here.transport.trips();
    here.transport.requests = 0;
    EXPECT_FALSE(here.mover->bring_all(io, PageId{page}, 1).has_value());
    after(here);
    EXPECT_EQ(here.frames[at + 5], std::byte{5});
    EXPECT_EQ(here.frames[at], users.empty() ? std::byte{0} : std::byte{'u'});
    here.mover->await_entry_updates(io);
    EXPECT_EQ(raw(here.directory->lookup(io, PageId{page}).owner), 3u);
  });
}

// Take; recall; yield, whose answer brings the bytes; at the same time the entry.
TEST(RoundTrips, ByMessagesASmallPageTakesThreeAndItsEntry) {
  Job job(4, 1, kByMessages, kSmall);
  bring_by_messages(job, {2}, kSmall, [](SimRank& here) {
    const auto chain = here.transport.chain();
    EXPECT_EQ(chain.requests, 3u);
    EXPECT_EQ(chain.one_sided, 0u);
    EXPECT_EQ(here.transport.requests, 3u);
    EXPECT_EQ(here.transport.trips(), 1u);
    EXPECT_EQ(here.counters.move_requests.load(), 2u);
    EXPECT_EQ(here.counters.address_recalls.load(), 1u);
  });
}

TEST(RoundTrips, ByMessagesASmallPageThatNobodyUsesTakesTwoAndItsEntry) {
  Job job(4, 1, kByMessages, kSmall);
  bring_by_messages(job, {}, kSmall, [](SimRank& here) {
    EXPECT_EQ(here.transport.chain().requests, 2u);
    EXPECT_EQ(here.transport.trips(), 1u);
  });
}

// Its bytes are read: two messages in a row, the recall and the yield being outstanding together, then a
// read.
TEST(RoundTrips, ByMessagesAPageThatIsReadTakesThreeAndItsEntry) {
  for (const std::uint64_t page_bytes : {kSmall, mem::kPageBytes}) {
    Job job(4, 1, kByMessages, page_bytes);
    job[3].never_lands = true;
    bring_by_messages(job, {2}, page_bytes, [](SimRank& here) {
      const auto chain = here.transport.chain();
      EXPECT_EQ(chain.requests, 2u);
      EXPECT_EQ(chain.one_sided, 1u);
      EXPECT_EQ(here.transport.trips(), 2u);
    });
  }
}

// Answers without what they were to bring: all ranks are asked to forget the page, and the bytes are read.
TEST(RoundTrips, ByMessagesAnAnswerMayComeAlone) {
  comm::sim::SimOptions options = kByMessages;
  options.answer_alone_permille = 1000;
  Job job(4, 1, options, kSmall);
  bring_by_messages(job, {2}, kSmall, [](SimRank& here) {
    EXPECT_EQ(here.counters.address_recalls.load(), 3u);
    EXPECT_EQ(here.transport.trips(), 2u);
  });
}

// More entries than may be outstanding at once, and a mover that wants each page before its entry has
// arrived.
TEST(RoundTrips, EntriesOnTheirWayAreWaitedForByTheNextMover) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(3, seed);
    assign(job, 0, kPages, 0);
    for (std::uint32_t r = 1; r < 3; ++r) {
      job.world.spawn(Rank{r}, [&job, r] {
        auto io = job[r].io();
        for (int round = 0; round < 3; ++round)
          EXPECT_FALSE(job[r].mover->bring_all(io, PageId{0}, kPages).has_value());
        job[r].mover->await_entry_updates(io);
        EXPECT_EQ(job[r].naming, 0);
      });
    }
    job.run();
    for (std::uint64_t p = 0; p < kPages; ++p) {
      const Location l = where(job, p);
      EXPECT_FALSE(l.busy);
      EXPECT_EQ(job[raw(l.owner)].frames[offset_of(PageId{p}) + 5], std::byte(p + 1));
    }
  }
}

TEST(RoundTrips, ManyHoldersAndManyPagesGoAtOnce) {
  Job job(6, 1);
  assign(job, 6, 4, 1);
  for (std::uint64_t p = 6; p < 10; ++p) {
    for (const std::uint32_t r : {2u, 4u}) use(job, r, p);
  }
  job.on(3, [](SimRank& here, comm::Blocking& io) {
    here.transport.chain();
    EXPECT_FALSE(here.mover->bring_all(io, PageId{6}, 4).has_value());
    const auto chain = here.transport.chain();
    EXPECT_EQ(here.transport.requests, 12u);
    // some are refused for a moment and posted later; one page after the other takes 13
    EXPECT_LE(chain.all(), 6u);
    EXPECT_EQ(here.counters.pages_moved.load(), 4u);
    for (std::uint64_t p = 6; p < 10; ++p) EXPECT_EQ(here.frames[offset_of(PageId{p}) + 5], std::byte(p + 1));
    here.mover->await_entry_updates(io);
  });
  for (std::uint64_t p = 6; p < 10; ++p) EXPECT_EQ(raw(where(job, p).owner), 3u);
}

// ---- partial pages ---------------------------------------------------------------------------------------

constexpr Rank kMe{1}, kOther{2};
constexpr Location kOnSsd{true, kMe, Tier::ssd, false, 7}, kInPart = in_part(kOnSsd),
                                                           kInDram = in_tier(kOnSsd, Tier::dram);

TEST(InPart, OthersSeeAPageOnSsdThatTheyCannotTake) {
  EXPECT_EQ(Location::of(kInPart.word()), kInPart);
  EXPECT_FALSE(readable(kInPart));
  EXPECT_FALSE(keepable(kInPart));
  EXPECT_EQ(begin_move(kOnSsd, kOther).verdict, MoveVerdict::on_ssd);
  EXPECT_EQ(begin_move(kInPart, kOther).verdict, MoveVerdict::in_part);
  EXPECT_TRUE(stood(kInDram, kInDram));
  EXPECT_FALSE(stood(kInDram, kInPart));
}

TEST(InPart, ItsOwnerBringsBlocksInAndLetsThemGo) {
  Location busy = kInPart;
  busy.busy = true;
  for (const Location& l : {kOnSsd, kInPart}) {
    EXPECT_TRUE(owned_on_ssd(l, kMe));
    EXPECT_FALSE(owned_on_ssd(l, kOther));
    EXPECT_TRUE(pages_in(l, kMe));
  }
  EXPECT_FALSE(owned_on_ssd(busy, kMe));
  EXPECT_FALSE(owned_on_ssd(kInDram, kMe));
  EXPECT_EQ(eviction_kind(kInDram, kMe), EvictionKind::spill);
  EXPECT_EQ(eviction_kind(kInPart, kMe), EvictionKind::spill_part);
  EXPECT_EQ(eviction_kind(kOnSsd, kMe), EvictionKind::drop);
  EXPECT_EQ(eviction_kind(kInPart, kOther), EvictionKind::drop);
  EXPECT_EQ(eviction_kind(busy, kMe), EvictionKind::wait);
}

TEST(HandOver, OnlyAWholePageOnSsdIsHandedOver) {
  Location busy = kOnSsd, fresh = kOnSsd;
  busy.busy = fresh.untouched = true;
  EXPECT_FALSE(hands_over(kOnSsd, false));
  for (const Location& l : {kInDram, busy, fresh, Location{}}) EXPECT_FALSE(hands_over(l, true));
  for (const Location& l : {kOnSsd, kInPart}) {
    EXPECT_TRUE(hands_over(l, true));
    EXPECT_EQ(page_in_from(l, kMe, true), PageInFrom::put);
    EXPECT_EQ(page_in_from(l, kMe, false), PageInFrom::ssd);
    EXPECT_EQ(page_in_from(l, kOther, true), PageInFrom::nothing);
  }
  for (const Location& l : {kInDram, busy, Location{}})
    EXPECT_EQ(page_in_from(l, kMe, true), PageInFrom::nothing);
}

// ---- a page's lock ---------------------------------------------------------------------------------------

TEST(PageLock, IsHeldByOneFromBusyToTheNextLocation) {
  Job job(2, 1);
  assign(job, 4, 1, 1);
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const Location before = here.directory->lookup(io, PageId{4});
    PageLock lock(*here.directory, PageId{4});
    EXPECT_FALSE(lock.held());
    ASSERT_TRUE(lock.try_lock(io));
    EXPECT_EQ(lock.found(), before);
    EXPECT_EQ(lock.now(), here.directory->lookup(io, PageId{4}));
    PageLock other(*here.directory, PageId{4});
    EXPECT_FALSE(other.try_lock(io));
    EXPECT_TRUE(other.found().busy);
    EXPECT_FALSE(other.try_lock(io, before));
    PageLock next = std::move(lock);
    EXPECT_TRUE(!lock.held() && next.held());
    next.store(io, end_move(next.now(), Rank{1}));
    EXPECT_FALSE(next.held());
    EXPECT_EQ(next.now(), here.directory->lookup(io, PageId{4}));
    EXPECT_EQ(next.now().version, before.version + 1);
    // a page that is not allocated is locked like others
    PageLock none(*here.directory, PageId{7});
    ASSERT_TRUE(none.try_lock(io));
    {
      comm::Batch batch(io);
      none.give_back(batch);
      none.give_back(batch);
    }
    EXPECT_EQ(none.now(), Location{});
    EXPECT_EQ(here.directory->lookup(io, PageId{7}), Location{});
  });
}

TEST(PageLock, ThatIsDroppedOrBrokenEndsTheProgram) {
  const auto run = [](auto body) {
    Job job(2, 1);
    assign(job, 4, 1, 1);
    job.on(1, [&](SimRank& here, comm::Blocking& io) {
      PageLock lock(*here.directory, PageId{4});
      if (lock.try_lock(io)) body(here, io, lock);
    });
  };
  EXPECT_DEATH(run([](SimRank&, comm::Blocking&, PageLock&) {}), "only who has a page's lock");
  EXPECT_DEATH(run([](SimRank& here, comm::Blocking& io, PageLock& lock) {
                 const Location back = lock.found();
                 here.directory->name_fresh(io, PageId{4}, 1, [](PageId) { return Rank{0}; });
                 lock.store(io, back);
               }),
               "only who has a page's lock");
}

// ---- from SSD --------------------------------------------------------------------------------------------

/// An owner that brings its page in, wholly, when it is asked.
struct BringsIn final : PageIn {
  void page_in(comm::Blocking& io, std::span<Request> requests) override {
    ++waits;
    largest = std::max(largest, requests.size());
    for (Request& s : requests) {
      ++roused;
      const Location l = here->directory->lookup(io, s.page);
      ASSERT_TRUE(here->directory->replace(io, s.page, l, in_tier(l, Tier::dram)));
      s.word = in_tier(l, Tier::dram).word();
      if (moved == s.page) s.word = Location{true, Rank{2}, Tier::dram, false, l.version + 1}.word();
    }
  }
  [[nodiscard]] std::size_t most_together() noexcept override { return most; }
  void send_for(PageId, Rank) noexcept override {}
  void hand_over(comm::Blocking&, std::span<HandOver>) override {}
  [[nodiscard]] bool counts(PageId) const noexcept override { return true; }
  void forget(std::uint64_t, std::uint64_t) noexcept override {}
  SimRank* here = nullptr;
  int waits = 0, roused = 0;
  std::size_t largest = 0, most = AddressCache::kMostLearnt;
  std::optional<PageId> moved;  ///< its owner answers that it is elsewhere by now
};

TEST(InPart, WhoNeedsNoBytesTakesAPageFromSsdButAsksForOneInPart) {
  for (const Tier tier : {Tier::ssd, Tier::partial}) {
    BringsIn page_in;
    Job job(3, 1, {}, mem::kPageBytes, {&page_in});
    page_in.here = &job[0];
    assign(job, 4, 1, 1);
    job.on(0, [&, tier](SimRank& here, comm::Blocking& io) {
      const Location l = here.directory->lookup(io, PageId{4});
      ASSERT_TRUE(here.directory->replace(io, PageId{4}, l, in_tier(l, tier)));
      ASSERT_TRUE(here.mover->bring(io, PageId{4}, {}).has_value());
      EXPECT_EQ(page_in.roused, tier == Tier::partial ? 1 : 0);
      EXPECT_EQ(here.directory->lookup(io, PageId{4}).owner, Rank{0});
      EXPECT_TRUE(readable(here.directory->lookup(io, PageId{4})));
    });
  }
}

void put_on_ssd(SimRank& here, comm::Blocking& io, std::span<const PageId> pages) {
  for (const PageId page : pages) {
    const Location l = here.directory->lookup(io, page);
    ASSERT_TRUE(here.directory->replace(io, page, l, in_tier(l, Tier::ssd)));
  }
}

// With one wait for all; and the owner's answer is as good as a look at the directory, unless the page has
// moved since this rank's bit was set.
TEST(InPart, PagesOnSsdComeTogetherAndAreKnownThen) {
  BringsIn page_in;
  Job job(3, 1, {}, mem::kPageBytes, {&page_in});
  page_in.here = &job[0];
  page_in.moved = PageId{5};
  assign(job, 3, 3, 1);
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    const std::array pages{PageId{3}, PageId{4}, PageId{5}};
    put_on_ssd(here, io, pages);
    here.addresses->learn(io, pages, true, AddressCache::PagesIn::none);
    EXPECT_EQ(page_in.roused, 0);
    here.addresses->learn(io, pages, true, AddressCache::PagesIn::all);
    EXPECT_EQ(page_in.waits, 1);
    EXPECT_EQ(page_in.roused, 3);
    for (const PageId page : pages) {
      const AddressCache::Put put(*here.addresses, io, page, AddressCache::kOnlyHere);
      EXPECT_EQ(put.owner(), page == PageId{5} ? kNoRank : Rank{1});
    }
  });
}

// A walk over pages on SSD has as many paged in at once as the budget bears, and looks for none where there
// are none.
TEST(InPart, AWalkAsksForNoMoreThanThereIsRoomFor) {
  constexpr std::uint64_t kFirst = 3, kRows = 6;
  for (const std::size_t most : {std::size_t{64}, std::size_t{2}, std::size_t{1}, std::size_t{0}}) {
    BringsIn page_in;
    Job job(3, 1, {}, mem::kPageBytes, {&page_in});
    page_in.here = &job[0];
    page_in.most = most;
    assign(job, kFirst, kRows, 1);
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      std::vector<PageId> pages;
      for (std::uint64_t p = kFirst; p < kFirst + kRows; ++p) pages.push_back(PageId{p});
      put_on_ssd(here, io, pages);
      const comm::Strides rows{
          .dimensions = 2, .count = {8, kRows}, .remote_stride = {mem::kPageBytes}, .local_stride = {8}};
      std::array<std::byte, 8 * kRows> got;
      ASSERT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                    return here.access->read(io, o, kFirst * mem::kPageBytes, got.data(), comm::Cursor(rows));
                  }).has_value());
      EXPECT_EQ(page_in.roused, static_cast<int>(kRows));
      EXPECT_EQ(page_in.largest, std::clamp<std::size_t>(most, 1, kRows));
    });
  }
}

// The owner hands it on without bytes, or makes it untouched, as one in DRAM: its own blocks yield, and no
// rank need be asked.
TEST(InPart, ItsOwnerHandsItOn) {
  BringsIn page_in;
  Job job(3, 1, {}, mem::kPageBytes, {nullptr, &page_in});
  page_in.here = &job[1];
  assign(job, 4, 1, 1);
  job.on(1, [&](SimRank& here, comm::Blocking& io) {
    Location l = here.directory->lookup(io, PageId{4});
    ASSERT_TRUE(here.directory->replace(io, PageId{4}, l, in_part(l)));
    ASSERT_TRUE(here.mover->assign_untouched(io, PageId{4}).has_value());
    EXPECT_EQ(here.directory->lookup(io, PageId{4}),
              (Location{true, Rank{1}, Tier::dram, false, l.version, true}));
    l = touched(here.directory->lookup(io, PageId{4}));
    ASSERT_TRUE(here.directory->replace(io, PageId{4}, here.directory->lookup(io, PageId{4}), in_part(l)));
    ASSERT_TRUE(here.mover->hand_back(io, PageId{4}, Rank{2}));
    EXPECT_EQ(here.directory->lookup(io, PageId{4}), (Location{true, Rank{2}, Tier::ssd, false, l.version}));
    EXPECT_EQ(page_in.roused, 0);
  });
}

// ---- fixed pages -----------------------------------------------------------------------------------------

TEST(Fixed, APageIsTheOwnersToMoveAlone) {
  const Location fixed = with_fixed(kInDram, true);
  EXPECT_EQ(Location::of(fixed.word()), fixed);
  EXPECT_EQ(begin_move(fixed, kOther).verdict, MoveVerdict::fixed);
  EXPECT_EQ(begin_move(fixed, kMe).verdict, MoveVerdict::already_there);  // to SSD
  EXPECT_EQ(begin_move(with_fixed(kOnSsd, true), kOther).verdict, MoveVerdict::fixed);
  EXPECT_EQ(begin_move(with_fixed(kInPart, true), kOther).verdict, MoveVerdict::fixed);
  EXPECT_EQ(eviction_kind(fixed, kMe), EvictionKind::spill);
  EXPECT_TRUE(end_evict(begin_evict(fixed)).fixed);
  EXPECT_TRUE(keepable(fixed));
}

TEST(Fixed, APageStaysUntilItIsAssignedAnew) {
  Job job(3, 1);
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, PageId{4}, Rank{1}, true).has_value());
  });
  job.on(2, [](SimRank& here, comm::Blocking& io) {
    const auto refusal = here.mover->bring_all(io, PageId{4}, 1);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->why, Errc::busy);
    EXPECT_FALSE(here.mover->pull(io, PageId{4}));
    EXPECT_EQ(here.claimed, (std::array<bool, kPages>{}));
  });
  EXPECT_EQ(raw(where(job, 4).owner), 1u);
  EXPECT_FALSE(where(job, 4).busy);
  // Allocated anew: fixed at another rank, then ordinary there.
  for (const bool fixed : {true, false}) {
    job.on(0, [fixed](SimRank& here, comm::Blocking& io) {
      ASSERT_TRUE(here.mover->assign(io, PageId{4}, Rank{2}, fixed).has_value());
    });
    EXPECT_EQ(raw(where(job, 4).owner), 2u);
    EXPECT_EQ(where(job, 4).fixed, fixed);
  }
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign_untouched(io, PageId{4}).has_value());
  });
  EXPECT_TRUE(where(job, 4).untouched);
}

// ---- refusals --------------------------------------------------------------------------------------------

TEST(Refusals, APageThatIsNotAllocatedStaysSo) {
  Job job(3, 1);
  assign(job, 2, 2, 1);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const auto refusal = here.mover->bring_all(io, PageId{2}, 4);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->why, Errc::out_of_range);
    EXPECT_EQ(raw(refusal->page), 4u);
    EXPECT_EQ(here.claimed, (std::array<bool, kPages>{}));
  });
  EXPECT_EQ(where(job, 4), Location{});
  EXPECT_EQ(raw(where(job, 3).owner), 0u);  // what could move did
}

TEST(Refusals, APinnedPageStaysWhereItIs) {
  Job job(3, 1);
  assign(job, 2, 2, 1);
  job[1].pinned = true;
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const auto refusal = here.mover->bring_all(io, PageId{2}, 2);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->why, Errc::busy);
    EXPECT_FALSE(here.mover->bring(io, PageId{3}, page_range(PageId{3})).has_value());
  });
  EXPECT_EQ(raw(where(job, 2).owner), 1u);
  EXPECT_FALSE(where(job, 2).busy);
}

// ---- give ------------------------------------------------------------------------------------------------

struct Gifts : testing::Test {
  /// body runs as a thread of the rank while every rank's service thread serves.
  void with_service(Job& job, std::uint32_t r, const std::function<void(SimRank&, comm::Blocking&)>& body) {
    bool ended = false;
    for (std::uint32_t s = 0; s < job.all.size(); ++s) {
      job.world.spawn(Rank{s}, [&job, &ended, s] {
        auto io = job[s].io();
        while (!ended) {
          if (!job[s].give_service->serve(io)) io.waiter().pause();
        }
      });
    }
    job.world.spawn(Rank{r}, [&] {
      auto io = job[r].io();
      body(job[r], io);
      ended = true;
    });
    job.run();
  }
};

TEST_F(Gifts, ArriveWithTheirBytes) {
  Job job(3, 1);
  assign(job, 3, 10, 1);
  with_service(job, 0, [](SimRank& here, comm::Blocking& io) {
    EXPECT_FALSE(here.give_service->give(io, PageId{3}, 4, Rank{2}).has_value());
    EXPECT_FALSE(here.give_service->give(io, PageId{7}, 2, Rank{0}).has_value());
    EXPECT_FALSE(here.give_service->give(io, PageId{3}, 4, Rank{2}).has_value());  // where it is already
    EXPECT_FALSE(here.give_service->give(io, PageId{9}, 0, Rank{2}).has_value());
  });
  for (std::uint64_t p = 3; p < 7; ++p) EXPECT_EQ(raw(where(job, p).owner), 2u);
  for (std::uint64_t p = 7; p < 9; ++p) EXPECT_EQ(raw(where(job, p).owner), 0u);
  EXPECT_EQ(raw(where(job, 9).owner), 1u);
  for (std::uint64_t p = 3; p < 7; ++p) EXPECT_EQ(job[2].frames[offset_of(PageId{p}) + 5], std::byte(p + 1));
}

TEST_F(Gifts, SayWhyAndWhichPageWasRefused) {
  Job job(3, 1);
  assign(job, 3, 2, 1);
  with_service(job, 0, [](SimRank& here, comm::Blocking& io) {
    const auto refusal = here.give_service->give(io, PageId{3}, 6, Rank{2});
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->why, Errc::out_of_range);
    EXPECT_EQ(raw(refusal->page), 5u);
  });
}

// Every rank gives and takes the same pages at once, in any order: there is no cycle of waits, and at the end
// each page is somewhere with its bytes.
TEST_F(Gifts, CrosswiseEndAndLoseNothing) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Job job(3, seed);
    assign(job, 0, 12, 1);
    std::uint32_t left = 6;
    for (std::uint32_t t = 0; t < 6; ++t) {
      job.world.spawn(Rank{t % 3}, [&, t] {
        SimRank& here = job[t % 3];
        auto io = here.io();
        std::mt19937_64 random(seed * 10 + t);
        for (int i = 0; i < 6; ++i) {
          const std::uint64_t first = random() % 12, pages = 1 + random() % (12 - first);
          here.refusals += random() % 4 == 0 ? 1 : 0;
          if (random() % 2 == 0) {
            EXPECT_FALSE(here.mover->bring_all(io, PageId{first}, pages).has_value());
          } else {
            EXPECT_FALSE(here.give_service
                             ->give(io, PageId{first}, pages, Rank{static_cast<std::uint32_t>(random() % 3)})
                             .has_value());
          }
        }
        --left;
      });
    }
    with_service(job, 0, [&](SimRank&, comm::Blocking& io) { io.waiter().until([&] { return left == 0; }); });
    for (std::uint64_t p = 0; p < 12; ++p) {
      const Location l = where(job, p);
      ASSERT_FALSE(l.busy);
      ASSERT_EQ(job[raw(l.owner)].frames[offset_of(PageId{p}) + 5], std::byte(p + 1));
    }
  }
}

}  // namespace
}  // namespace kasane::gas
