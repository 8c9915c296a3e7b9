// SPDX-License-Identifier: Apache-2.0
// Address caches over the simulated network: how many round trips a get and a put cost, and that puts and
// moves of a page lose nothing under seeded delays, reorders and tears, in small jobs and in some of more
// than 64 ranks. (Every interleaving of the protocol: tests/model.)
#include "gas/address_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <vector>

#include "support/sanitized.h"
#include "unit/gas/sim_job.h"

namespace kasane::gas {
namespace {

using test::Job, test::kPages, test::page_range, test::SimRank;

// ---- round trips -----------------------------------------------------------------------------------------

// Page 1 of three ranks: rank 1 manages it, rank 2 owns it, rank 0 uses it.
struct Trips : testing::Test {
  Trips() : job(3, 1) {
    job.on(2, [](SimRank& here, comm::Blocking& io) {
      ASSERT_TRUE(here.mover->assign(io, kPage, Rank{2}).has_value());
    });
  }
  static constexpr PageId kPage{1};
  static constexpr std::uint64_t kAt = mem::kPageBytes;
  Job job;
};

TEST_F(Trips, APutCostsThreeOfWhichTwoAtOnceThenOne) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const char byte = 'x';
    here.transport.trips();
    here.transport.chain();
    ASSERT_TRUE(put(io, *here.access, kAt, &byte, 1).has_value());
    EXPECT_EQ(here.transport.trips(), 3u);  // the bit and word 0, then the put
    EXPECT_EQ(here.transport.chain().all(), 2u);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(put(io, *here.access, kAt + 1, &byte, 1).has_value());
      EXPECT_EQ(here.transport.trips(), 1u);
    }
    EXPECT_EQ(here.counters.address_misses.load(), 1u);
    EXPECT_EQ(here.counters.address_hits.load(), 5u);
  });
  EXPECT_EQ(job[2].frames[kAt], std::byte{'x'});
}

TEST_F(Trips, AGetCostsThreeOfWhichTwoAtOnceThenOneAndServesPuts) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    char byte = 'x';
    here.transport.trips();
    here.transport.chain();
    ASSERT_TRUE(get(io, *here.access, &byte, kAt, 1).has_value());
    EXPECT_EQ(here.transport.trips(), 3u);
    EXPECT_EQ(here.transport.chain().all(), 2u);
    EXPECT_EQ(byte, 0);
    ASSERT_TRUE(get(io, *here.access, &byte, kAt, 1).has_value());
    EXPECT_EQ(here.transport.trips(), 1u);
    ASSERT_TRUE(put(io, *here.access, kAt, "y", 1).has_value());
    EXPECT_EQ(here.transport.trips(), 1u);
  });
}

TEST_F(Trips, WhereTheDirectoryIsHereAReadLooksThereAndLeavesNoHolder) {
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    char byte = 'x';
    here.transport.trips();
    ASSERT_TRUE(get(io, *here.access, &byte, kAt, 1).has_value());
    EXPECT_EQ(here.transport.trips(), 1u);
  });
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->bring(io, kPage, page_range(kPage)).has_value());
    EXPECT_EQ(here.counters.address_recalls.load(), 0u);
  });
}

TEST_F(Trips, AMoveTakesTheLocationBack) {
  const auto put_one = [](SimRank& here, comm::Blocking& io, char byte) {
    here.transport.trips();
    ASSERT_TRUE(put(io, *here.access, kAt, &byte, 1).has_value());
  };
  job.on(0, [&](SimRank& here, comm::Blocking& io) { put_one(here, io, 'a'); });
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    here.transport.requests = 0;
    ASSERT_TRUE(here.mover->bring(io, kPage, page_range(kPage)).has_value());
    EXPECT_EQ(here.transport.requests, 2u);  // the owner's yield, the holder's recall
    EXPECT_EQ(here.counters.address_recalls.load(), 1u);
  });
  EXPECT_EQ(job[1].frames[kAt], std::byte{'a'});
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    here.transport.chain();
    put_one(here, io, 'b');
    EXPECT_EQ(here.transport.trips(), 3u);
    EXPECT_EQ(here.transport.chain().all(), 2u);
    put_one(here, io, 'c');
    EXPECT_EQ(here.transport.trips(), 1u);
  });
  EXPECT_EQ(job[1].frames[kAt], std::byte{'c'});
}

TEST_F(Trips, AGetAfterARecallIsAFirstOne) {
  const auto get_one = [](SimRank& here, comm::Blocking& io) {
    char byte = 0;
    here.transport.trips();
    ASSERT_TRUE(get(io, *here.access, &byte, kAt, 1).has_value());
  };
  job.on(0, [&](SimRank& here, comm::Blocking& io) { get_one(here, io); });
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->bring(io, kPage, page_range(kPage)).has_value());
  });
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    get_one(here, io);
    EXPECT_EQ(here.transport.trips(), 3u);  // the bit and word 0, then the byte
    get_one(here, io);
    EXPECT_EQ(here.transport.trips(), 1u);
  });
}

// Rule 9: whatever way the page was found, bytes that come after it has left do not count.
TEST_F(Trips, AReadKnowsWhetherItsPageStood) {
  AddressCache::Found by_entry, by_word;
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    by_entry = here.addresses->find(io, kPage);
    EXPECT_TRUE(by_entry.by_entry);
    EXPECT_TRUE(here.addresses->stood(io, kPage, by_entry));
  });
  job.on(1, [&](SimRank& here, comm::Blocking& io) {
    by_word = here.addresses->find(io, kPage);
    EXPECT_FALSE(by_word.by_entry);
    EXPECT_TRUE(here.addresses->stood(io, kPage, by_word));
    ASSERT_TRUE(here.mover->bring(io, kPage, page_range(kPage)).has_value());
    EXPECT_FALSE(here.addresses->stood(io, kPage, by_word));
  });
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    EXPECT_FALSE(here.addresses->stood(io, kPage, by_entry));
    char byte = 0;
    ASSERT_TRUE(get(io, *here.access, &byte, kAt, 1).has_value());
    EXPECT_FALSE(here.addresses->stood(io, kPage, by_entry));  // the entry is valid again, but another one
  });
}

// The owner marks the page as leaving for SSD in word 0 before it punches: a read by word 0 sees that.
TEST_F(Trips, AReadByTheDirectorySeesAnEvictionBegin) {
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const auto found = here.addresses->find(io, kPage);
    PageLock lock(*here.directory, kPage);
    ASSERT_TRUE(lock.try_lock(io));
    ASSERT_EQ(begin_move(lock.found(), lock.found().owner).verdict, MoveVerdict::already_there);
    EXPECT_FALSE(PageLock(*here.directory, kPage).try_lock(io));
    EXPECT_TRUE(here.addresses->stood(io, kPage, found));  // busy alone moves no byte
    lock.store(io, begin_evict(lock.now()));
    EXPECT_FALSE(here.addresses->stood(io, kPage, found));
    EXPECT_TRUE(lock.held());
    lock.store(io, end_evict(lock.now()));
    EXPECT_FALSE(lock.held());
    const Location evicted = here.directory->lookup(io, kPage);
    EXPECT_EQ(evicted, lock.now());
    EXPECT_FALSE(readable(evicted));
    EXPECT_EQ(begin_move(evicted, Rank{0}).verdict, MoveVerdict::on_ssd);
    ASSERT_TRUE(here.directory->replace(io, kPage, evicted, end_page_in(evicted)));
    EXPECT_FALSE(here.addresses->stood(io, kPage, found));
    EXPECT_TRUE(readable(here.directory->lookup(io, kPage)));
  });
}

TEST_F(Trips, WhatIsNotAllocatedIsNotCached) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    char byte = 0;
    EXPECT_FALSE(get(io, *here.access, &byte, 4 * mem::kPageBytes, 1).has_value());
    EXPECT_FALSE(put(io, *here.access, 4 * mem::kPageBytes, &byte, 1).has_value());
    ASSERT_TRUE(here.mover->assign(io, PageId{4}, Rank{2}).has_value());
    EXPECT_TRUE(put(io, *here.access, 4 * mem::kPageBytes, &byte, 1).has_value());
  });
}

// Wherever the version goes on, the stamp of word 2 does: else no location could be kept any more.
TEST_F(Trips, ALocationIsKeptWhateverHasHappenedToThePage) {
  const auto kept_by_one_put = [this] {
    job.on(0, [](SimRank& here, comm::Blocking& io) {
      char byte = 'x';
      ASSERT_TRUE(put(io, *here.access, kAt, &byte, 1).has_value());
      EXPECT_EQ(here.addresses->find_here(io, kPage).owner, here.directory->lookup(io, kPage).owner);
    });
  };
  job.on(2, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign_untouched(io, kPage).has_value());
  });
  kept_by_one_put();  // which is a touch
  job.on(2, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign_untouched(io, kPage).has_value());
  });
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    here.mover->touch(io, kPage, here.directory->pages().blocks_of(kPage));
  });
  kept_by_one_put();
  // it is there
  job.on(2, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, kPage, Rank{1}).has_value());
  });
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, kPage, Rank{2}).has_value());
  });
  kept_by_one_put();
}

// Of another rank, of the mover's own, of the owner's.
TEST(Moves, WaitForPutsUnderWay) {
  constexpr PageId kPage{1};
  for (std::uint32_t holder = 0; holder < 3; ++holder) {
    SCOPED_TRACE("holder " + std::to_string(holder));
    Job job(3, 7);
    job.on(2, [&](SimRank& here, comm::Blocking& io) {
      ASSERT_TRUE(here.mover->assign(io, kPage, Rank{2}).has_value());
    });
    bool began = false, ended = false;
    job.world.spawn(Rank{holder}, [&] {
      auto io = job[holder].io();
      const AddressCache::Put put(*job[holder].addresses, io, kPage);
      began = true;
      for (int i = 0; i < 200; ++i) io.waiter().pause();  // as if the bytes took so long
      ended = true;
    });
    job.world.spawn(Rank{1}, [&] {
      auto io = job[1].io();
      io.waiter().until([&] { return began; });
      ASSERT_TRUE(job[1].mover->bring(io, kPage, page_range(kPage)).has_value());
      EXPECT_TRUE(ended);
    });
    job.run();
    EXPECT_TRUE(ended);
  }
}

TEST(OneRank, LooksAtItsDirectoryAndCachesNothing) {
  Job job(1, 1);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, PageId{3}, Rank{0}).has_value());
    ASSERT_TRUE(put(io, *here.access, 3 * mem::kPageBytes, "z", 1).has_value());
    EXPECT_EQ(here.transport.trips(), 0u);  // its own memory
    EXPECT_EQ(here.frames[3 * mem::kPageBytes], std::byte{'z'});
    EXPECT_EQ(here.counters.address_hits.load() + here.counters.address_misses.load(), 0u);
  });
}

// ---- puts, gets and moves at once ------------------------------------------------------------------------

/// Each thread has a byte of its own in each page and puts growing numbers there, reads other threads' bytes,
/// which must not go back, and moves pages.
void hammer(std::uint32_t ranks, std::uint32_t threads, std::uint32_t pages, int rounds, std::uint64_t seed,
            std::uint64_t page_bytes = mem::kPageBytes, const comm::sim::SimOptions& options = {}) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", pages of " + std::to_string(page_bytes));
  Job job(ranks, seed, options, page_bytes);
  for (SimRank& rank : job.all) rank.never_lands = &rank == &job[1] && seed % 2 == 0;
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint32_t p = 0; p < pages; ++p)
      ASSERT_TRUE(here.mover->assign(io, PageId{p}, Rank{p % ranks}).has_value());
  });
  std::vector<std::array<std::uint8_t, 64>> complete(pages);  // what has been put and completed, or was read
  for (auto& of_page : complete) of_page.fill(0);
  for (std::uint32_t t = 0; t < threads; ++t) {
    const std::uint32_t r = t % ranks == 0 ? 0 : (t * 37) % ranks;
    job.world.spawn(Rank{r}, [&, t, r] {
      SimRank& here = job[r];
      auto io = here.io();
      std::mt19937_64 random(seed * 100 + t);
      for (int i = 1; i <= rounds; ++i) {
        for (std::uint32_t p = 0; p < pages; ++p) {
          const auto value = static_cast<std::uint8_t>(i);
          ASSERT_TRUE(put(io, *here.access, p * page_bytes + t, &value, 1).has_value());
          complete[p][t] = value;
        }
        const auto p = static_cast<std::uint32_t>(random() % pages);
        const auto floor = complete[p];
        std::array<std::uint8_t, 64> got{};
        ASSERT_TRUE(get(io, *here.access, got.data(), p * page_bytes, got.size()).has_value());
        for (std::uint32_t k = 0; k < threads; ++k) {
          ASSERT_GE(got[k], floor[k]) << "byte " << k << " of page " << p << " goes back";
          complete[p][k] = std::max(complete[p][k], got[k]);
        }
        if (random() % 3 == 0) {
          const PageId page{random() % pages};
          here.refusals += random() % 4 == 0 ? 1 : 0;
          // All that is used lies in the first block; whole pages, which are many steps of the simulator, now
          // and then.
          gas::ByteRange live = page_range(page, page_bytes);
          if (random() % 8 != 0) live.end = live.begin + std::min<std::uint64_t>(page_bytes, 4096);
          ASSERT_TRUE(here.mover->bring(io, page, live).has_value());
        }
      }
    });
  }
  job.run();
  if (testing::Test::HasFatalFailure()) return;
  for (std::uint32_t p = 0; p < pages; ++p) {
    Rank owner{0};
    job.on(0,
           [&](SimRank& here, comm::Blocking& io) { owner = here.directory->lookup(io, PageId{p}).owner; });
    for (std::uint32_t t = 0; t < threads; ++t)
      ASSERT_EQ(job[raw(owner)].frames[p * page_bytes + t], std::byte(rounds))
          << "byte " << t << " of page " << p;
  }
}

TEST(PutsAndMoves, LoseNothing) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(400); ++seed) hammer(2 + seed % 3, 6, 2, 12, seed);
}

TEST(PutsAndMoves, LoseNothingWithSmallAndLargePages) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(60); ++seed)
    hammer(2 + seed % 3, 6, 2, 12, seed, 4096);
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(20); ++seed)
    hammer(2 + seed % 3, 6, 2, 12, seed, 2 << 20);
}

// Where operations are messages: managers take the holders with the mark, owners' answers bring small pages
// along, or forget to.
TEST(PutsAndMoves, LoseNothingByMessages) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(200); ++seed)
    hammer(2 + seed % 3, 6, 2, 12, seed, 4096, {.says_by_messages = true, .answer_alone_permille = 300});
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(50); ++seed)
    hammer(2 + seed % 3, 6, 2, 12, seed, 65536, {.says_by_messages = true});
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(2); ++seed)
    hammer(65 + static_cast<std::uint32_t>(seed) * 30, 12, 1, 6, seed, 4096, {.says_by_messages = true});
}

// A put and a get go through every page that their range touches, each to and from its owner.
TEST(Ranges, OverSeveralPagesGoToTheirOwners) {
  for (const std::uint64_t page_bytes : {4096, 65536, 2 << 20}) {
    SCOPED_TRACE("pages of " + std::to_string(page_bytes));
    Job job(3, 5, {}, page_bytes);
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      for (std::uint32_t p = 0; p < 5; ++p)
        ASSERT_TRUE(here.mover->assign(io, PageId{p}, Rank{p % 3}).has_value());
      std::vector<std::byte> bytes(3 * page_bytes + 20);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(1 + i % 251);
      ASSERT_TRUE(put(io, *here.access, page_bytes - 10, bytes.data(), bytes.size()).has_value());
      std::vector<std::byte> got(bytes.size());
      ASSERT_TRUE(get(io, *here.access, got.data(), page_bytes - 10, got.size()).has_value());
      EXPECT_TRUE(got == bytes);
      for (std::size_t i = 0; i < bytes.size(); i += 509) {
        const std::uint64_t at = page_bytes - 10 + i;
        for (std::uint32_t r = 0; r < 3; ++r)
          EXPECT_EQ(job[r].frames[at], at / page_bytes % 3 == r ? bytes[i] : std::byte{0}) << at;
      }
      EXPECT_FALSE(put(io, *here.access, 5 * page_bytes - 1, bytes.data(), 2).has_value())
          << "page 5 is not allocated";
      EXPECT_FALSE(get(io, *here.access, got.data(), kPages * page_bytes, 1).has_value())
          << "beyond the space";
      EXPECT_FALSE(get(io, *here.access, got.data(), ~std::uint64_t{0} - 5, 1).has_value());
    });
  }
}

TEST(PutsAndMoves, LoseNothingWhereABitStandsForSeveralRanks) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(4); ++seed)
    hammer(65 + static_cast<std::uint32_t>(seed) * 30, 12, 1, 6, seed);
}

}  // namespace
}  // namespace kasane::gas
