// SPDX-License-Identifier: Apache-2.0
// gas and dsm over shm with real faults, at 1, 2 and 4 ranks and pages of 4 KiB, 64 KiB and 2 MiB: what one
// rank wrote and released, another that acquires reads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "multi/dsm/on_ranks.h"
#include "support/counting_waiter.h"

namespace kasane {
namespace {

using test::CountingWaiter;
using test::on_ranks;
using test::RankMemory;

class CoherenceTest : public test::OnRanksAndPages {};
KASANE_ON_RANKS_AND_PAGES(CoherenceTest);

TEST_P(CoherenceTest, WhatOneRankWritesTheOthersReadAfterAnEdge) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(64 * 1024) : 0);
    auto* words = m.at<std::uint64_t>(data);
    for (std::uint32_t round = 0; round < 3 * ranks; ++round) {
      const Rank writer{round % ranks};
      if (m.rank() == writer) {
        for (std::uint64_t i = 0; i < 8192; ++i) words[i] = round * 10'000 + i;
      }
      m.collectives.barrier();  // the fact: no memory effect of its own
      if (m.rank() != writer) {
        m.cross(writer);
        for (std::uint64_t i = 0; i < 8192; i += 37)
          ASSERT_EQ(words[i], round * 10'000 + i) << "round " << round;
      }
      m.collectives.barrier();
      if (m.rank() == Rank{(round + 1) % ranks} && ranks > 1) m.cross(writer);
      m.collectives.barrier();
    }
  });
}

TEST_P(CoherenceTest, FalselySharedBytesOfOneBlockAllSurvive) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(4096) : 0);
    auto* bytes = m.at<unsigned char>(data);
    for (unsigned round = 1; round <= 20; ++round) {
      for (std::size_t i = raw(m.rank()); i < 4096; i += ranks)
        bytes[i] = static_cast<unsigned char>(round + i);
      m.collectives.barrier();
      for (std::uint32_t r = 0; r < ranks; ++r) m.coherence->fences.ask_release(m.context(), Rank{r});
      m.coherence->fences.acquire_noticed(m.context());
      m.collectives.barrier();
      for (std::size_t i = 0; i < 4096; ++i)
        ASSERT_EQ(bytes[i], static_cast<unsigned char>(round + i)) << "byte " << i << " round " << round;
      m.collectives.barrier();
    }
  });
}

/// What four workers count that ask for the fence while block `b` is held: the first is in its round, and the
/// others wait, when it is let go.
template <class Fence, class Led, class Combined>
std::pair<std::uint64_t, std::uint64_t> fences_of_four(RankMemory& m, BlockId b, const Fence& fence, Led led,
                                                       Combined combined) {
  constexpr unsigned kWorkers = 4;
  std::atomic<std::uint32_t>& word = (*m.table)[b];
  while ((word.fetch_or(1u) & 1u) != 0) std::this_thread::yield();  // the busy bit
  CountingWaiter waiter;
  Counters counters[kWorkers];
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      m.enter();
      dsm::ThreadContext context(*m.transport, waiter, counters[w]);
      fence(context);
    });
    while (w == 0 && waiter.waiting.load() == 0) std::this_thread::yield();  // the first leads
  }
  while (waiter.waiting.load() != kWorkers) std::this_thread::yield();
  word.fetch_and(~1u);
  workers.clear();
  std::pair<std::uint64_t, std::uint64_t> sums;
  for (const Counters& c : counters) {
    sums.first += (c.*led).load();
    sums.second += (c.*combined).load();
  }
  return sums;
}

// Workers of a rank share its cache and its fences: a round that is under way does not serve the three
// workers that ask meanwhile, and one more serves all of them.
TEST_P(CoherenceTest, FencesOfTheWorkersOfARankCombine) {
  const auto [ranks_here, page_bytes] = GetParam();
  if (ranks_here == 1 || page_bytes != mem::kPageBytes) GTEST_SKIP() << "once for each number of ranks";
  on_ranks(GetParam(), [](RankMemory& m) {
    using Sums = std::pair<std::uint64_t, std::uint64_t>;
    const std::uint32_t ranks = m.transport->ranks(), me = raw(m.rank()), next = (me + 1) % ranks;
    const std::uint64_t data =
        m.broadcast(Rank{0}, me == 0 ? m.allocate(ranks * mem::kPageBytes, gas::Placement::cyclic) : 0);
    const std::uint64_t at = data + next * mem::kPageBytes;  // the neighbour's: nobody else writes there
    auto* theirs = m.at<unsigned char>(at);
    for (unsigned epoch = 1; epoch <= 10; ++epoch) {
      theirs[me] = static_cast<unsigned char>(epoch);
      if (!m.dirty->contains(mem::block_of(at))) {
        ADD_FAILURE() << "nothing to release";
      } else {
        const Sums releases = fences_of_four(
            m, mem::block_of(at), [&](dsm::ThreadContext& c) { m.coherence->fences.release_all(c); },
            &Counters::releases, &Counters::releases_combined);
        EXPECT_EQ(releases, Sums(2, 2)) << "led, combined";
      }
      m.collectives.barrier();
      if (!m.cached->contains(mem::block_of(at))) {
        ADD_FAILURE() << "nothing to drop";
      } else {
        const Sums acquires = fences_of_four(
            m, mem::block_of(at), [&](dsm::ThreadContext& c) { m.coherence->fences.acquire_all(c); },
            &Counters::acquires, &Counters::acquires_combined);
        EXPECT_EQ(acquires, Sums(2, 2)) << "led, combined";
      }
      for (std::uint32_t r = 0; r < ranks; ++r) {
        if ((r + 1) % ranks != me) continue;
        EXPECT_EQ(m.at<unsigned char>(data + me * mem::kPageBytes)[r], epoch)
            << "a store that was released and not seen";
      }
      m.collectives.barrier();
    }
  });
}

// An epoch's sweeps are those of the epoch before: from the third on each takes one fault, not one a window
// that grows again. A window ends early where a block cannot be had at that moment, and when the owner's
// blocks are first protected is not fixed: some epochs may take more, most may not.
TEST_P(CoherenceTest, SweepsThatComeAgainFaultOnce) {
  if (std::get<0>(GetParam()) == 1 || std::get<1>(GetParam()) < mem::kPageBytes)
    GTEST_SKIP() << "what an owner faults on ends with the page";
  on_ranks(GetParam(), [](RankMemory& m) {
    constexpr std::uint64_t kBlocks = 16, kEpochs = 14;
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(mem::kPageBytes) : 0);
    std::uint64_t longer = 0;
    auto* words = m.at<std::uint64_t>(data);
    const auto& counters = m.context().counters;
    constexpr std::uint64_t kWords = mem::kBlockBytes / 8;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::uint64_t before = counters.faults_read.load() + counters.faults_write.load();
      if (raw(m.rank()) < 2) {
        for (std::uint64_t b = 0; b < kBlocks; ++b) words[b * kWords + 8 * raw(m.rank())] = epoch + b;
      }
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      if (raw(m.rank()) < 2) {
        for (std::uint64_t b = 0; b < kBlocks; ++b)
          ASSERT_EQ(words[b * kWords + 8 * (1 - raw(m.rank()))], epoch + b);
        longer += epoch >= 2 && counters.faults_read.load() + counters.faults_write.load() - before > 2;
      }
      m.collectives.barrier();
    }
    EXPECT_LE(longer, (kEpochs - 2) / 2);
  });
}

// Of two pages one is written, by its owner and by the others in turn: the other's copies stay, after the
// owner was sure that it does not store to it.
TEST_P(CoherenceTest, AnEdgeDropsOnlyWhatOthersHaveChanged) {
  if (std::get<0>(GetParam()) == 1 || !RankMemory::classification_under_test()) return;
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(2 * m.page_bytes) : 0);
    const std::uint64_t changing = data, standing = data + m.page_bytes;
    if (raw(m.rank()) == 0) *m.at<std::uint64_t>(standing) = 42;
    m.collectives.barrier();
    std::uint64_t fetched = 0;
    for (std::uint64_t round = 0; round < 12; ++round) {
      const Rank writer{static_cast<std::uint32_t>(round % ranks)};
      if (m.rank() == writer) *m.at<std::uint64_t>(changing) = round;
      m.collectives.barrier();
      m.cross(writer);
      ASSERT_EQ(*m.at<std::uint64_t>(changing), round);
      const std::uint64_t before = m.context().counters.blocks_fetched.load();
      ASSERT_EQ(*m.at<std::uint64_t>(standing), 42u);
      if (round >= 6) fetched += m.context().counters.blocks_fetched.load() - before;
      m.collectives.barrier();
      m.cross(Rank{0});  // the owner looks at what was fetched
      m.collectives.barrier();
    }
    EXPECT_EQ(fetched, 0u);
  });
}

// A direct put: each rank that has a copy gets a notice of it over an edge, and so does the rank that put.
TEST_P(CoherenceTest, ADirectPutIsTold) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(m.page_bytes) : 0);
    auto* word = m.at<std::uint64_t>(data);
    if (raw(m.rank()) == 0) *word = 1'000;
    m.coherence->fences.release_all(m.context());
    m.collectives.barrier();
    for (std::uint64_t round = 0; round < 8; ++round) {
      const Rank putter{static_cast<std::uint32_t>(round % ranks)};
      ASSERT_EQ(*word, 1'000 + round);
      m.collectives.barrier();
      if (m.rank() == putter) {
        const std::uint64_t value = 1'001 + round;
        ASSERT_TRUE(gas::put(m.context().io, *m.access, data, &value, sizeof value).has_value());
        m.coherence->fences.acquire_noticed(m.context());
        ASSERT_EQ(*word, value);
      }
      m.collectives.barrier();
      m.cross(putter);
      ASSERT_EQ(*word, 1'001 + round);
      m.collectives.barrier();
    }
  });
}

TEST_P(CoherenceTest, PlacementsAreOwnedAsAsked) {
  on_ranks(GetParam(), [](RankMemory& m) {
    for (const auto placement : {gas::Placement::block, gas::Placement::cyclic}) {
      const std::uint64_t pages = m.page_bytes > mem::kPageBytes ? 4 : 8;
      const std::uint64_t data =
          m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(pages * m.page_bytes, placement) : 0);
      for (std::uint64_t i = 0; i < pages; ++i) {
        const auto where = m.directory->lookup(m.context().io, m.pages().page_of(data + i * m.page_bytes));
        const auto ranks = m.transport->ranks();
        EXPECT_EQ(raw(where.owner), placement == gas::Placement::cyclic ? i % ranks : i * ranks / pages);
      }
      // Each writes its part, everybody reads all.
      auto* words = m.at<std::uint32_t>(data);
      const std::size_t n = pages * m.page_bytes / 4;
      for (std::size_t i = raw(m.rank()); i < n; i += m.transport->ranks())
        words[i] = static_cast<std::uint32_t>(i * 7);
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(words[i], i * 7);
      m.collectives.barrier();
      if (raw(m.rank()) == m.transport->ranks() - 1) m.heap->free(m.context().io, gas::Heap::kShared, data);
      m.collectives.barrier();
    }
  });
}

// Where entries are mapped the mover takes the location back by itself: the rank that has a put under way
// serves nobody, and is waited for all the same.
TEST_P(CoherenceTest, AMoveWaitsForThePutOfARankThatIsNotAsked) {
  if (std::get<0>(GetParam()) < 4) GTEST_SKIP() << "an owner, a mover and a holder";
  on_ranks(GetParam(), [](RankMemory& m) {
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(64) : 0);
    const PageId page = m.pages().page_of(data);
    auto& io = m.context().io;
    if (raw(m.rank()) == 0) {
      ASSERT_TRUE(m.mover->bring(io, page, {}).has_value());
    }
    m.collectives.barrier();
    if (raw(m.rank()) == 2) {
      const gas::AddressCache::Put put(*m.addresses, io, page);
      EXPECT_EQ(raw(put.owner()), 0u);
      m.collectives.barrier();
      while (m.addresses->recalled(page, 0)) relax();
      const char byte = 'p';
      io.write({put.owner(), gas::kFrames, data + 5}, &byte, 1);
    } else {
      m.collectives.barrier();
    }
    if (raw(m.rank()) == 1) {
      ASSERT_TRUE(m.mover->bring(io, page, {m.pages().offset_of(page), m.pages().end_of(page)}).has_value());
      EXPECT_EQ(m.space.a(data)[5], std::byte{'p'});
    }
    m.collectives.barrier();
  });
}

// Rank 1 works on rank 0's array: its pages come, and then a round costs no fault and no fetch.
TEST_P(CoherenceTest, AnArrayThatOneRankUsesBecomesItsOwn) {
  if (std::get<1>(GetParam()) > mem::kPageBytes)
    GTEST_SKIP() << "the space of these tests has no room for so many large pages";
  if (std::get<0>(GetParam()) == 1) return;
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        constexpr std::uint64_t kPages = 8, kWords = kPages * mem::kPageBytes / 8;
        const std::uint64_t data =
            m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kPages * mem::kPageBytes) : 0);
        auto* words = m.at<std::uint64_t>(data);
        if (raw(m.rank()) == 0) std::fill_n(words, kWords, 7);
        m.coherence->fences.release_all(m.context());
        m.collectives.barrier();
        std::uint64_t rounds = 0;
        if (raw(m.rank()) == 1) {
          const auto faults = [&] {
            return m.context().counters.faults_read.load() + m.context().counters.faults_write.load();
          };
          for (std::uint64_t before = ~std::uint64_t{0}; before != faults() && rounds < 100'000;
               ++rounds) {  // until one costs nothing
            before = faults();
            m.coherence->fences.acquire_all(m.context());
            for (std::uint64_t i = 0; i < kWords; ++i) words[i] += 1;
            m.coherence->fences.release_all(m.context());
          }
          EXPECT_LT(rounds, 100'000u);
          for (std::uint64_t p = 0; p < kPages; ++p)
            EXPECT_EQ(
                raw(m.directory->lookup(m.context().io, m.pages().page_of(data + p * mem::kPageBytes)).owner),
                1u);
        }
        rounds = m.broadcast(Rank{1}, rounds);
        m.coherence->fences.acquire_all(m.context());
        for (std::uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], 7 + rounds);
        m.collectives.barrier();
      },
      4);
}

// Rank 0 writes its pages in every round, and rank 1 reads them: the reader sees that they change, so they
// stay where they are written.
TEST_P(CoherenceTest, AnArrayThatItsOwnerWritesStaysThoughAnotherReadsIt) {
  if (std::get<1>(GetParam()) > mem::kPageBytes)
    GTEST_SKIP() << "the space of these tests has no room for so many large pages";
  if (std::get<0>(GetParam()) == 1) return;
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        constexpr std::uint64_t kPages = 4, kWords = kPages * mem::kPageBytes / 8, kRounds = 30;
        const std::uint64_t data =
            m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kPages * mem::kPageBytes) : 0);
        auto* words = m.at<std::uint64_t>(data);
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          if (raw(m.rank()) == 0) std::fill_n(words, kWords, round);
          m.collectives.barrier();
          if (raw(m.rank()) == 1) {
            m.cross(Rank{0});
            for (std::uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], round);
          }
          m.collectives.barrier();
        }
        for (std::uint64_t p = 0; p < kPages; ++p)
          EXPECT_EQ(
              raw(m.directory->lookup(m.context().io, m.pages().page_of(data + p * mem::kPageBytes)).owner),
              0u);
        EXPECT_EQ(m.context().counters.diffs.load(), 0u) << "the owner's stores went to somebody else";
        m.collectives.barrier();
      },
      4);
}

// All ranks work on the same array in turn, with every use drawing its page: nothing is lost, and the pages
// move ever less.
TEST_P(CoherenceTest, RanksThatTakeTurnsLoseNothingToPagesThatMove) {
  on_ranks(
      GetParam(),
      [](RankMemory& m) {
        constexpr std::uint64_t kPages = 4, kWords = kPages * mem::kPageBytes / 8;
        const auto ranks = m.transport->ranks();
        const std::uint64_t data =
            m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kPages * mem::kPageBytes) : 0);
        auto* words = m.at<std::uint64_t>(data);
        if (raw(m.rank()) == 0) std::fill_n(words, kWords, 0);
        m.coherence->fences.release_all(m.context());
        m.collectives.barrier();
        for (std::uint64_t round = 0; round < 40 * ranks; ++round) {
          m.coherence->fences.acquire_all(m.context());
          if (round % ranks == raw(m.rank())) {
            for (std::uint64_t i = 0; i < kWords; i += 64) {
              ASSERT_EQ(words[i], round);
              ++words[i];
            }
          }
          m.coherence->fences.release_all(m.context());
          m.collectives.barrier();
        }
      },
      1);
}

// Rank r touches page r first: by a store, a load, a pin, a direct put (which leaves it with the provisional
// owner) in turn; then all of it is rewritten and done again.
TEST_P(CoherenceTest, UntouchedPagesBelongToWhoeverTouchesThemFirst) {
  if (std::get<1>(GetParam()) > mem::kPageBytes)
    GTEST_SKIP() << "the space of these tests has no room for so many large pages";
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint32_t me = raw(m.rank());
    const std::uint64_t pages = 4 * ranks;
    const std::uint64_t data =
        m.broadcast(Rank{0}, me == 0 ? m.allocate(pages * mem::kPageBytes, gas::Placement::block) : 0);
    for (unsigned round = 1; round <= 3; ++round) {
      const std::uint32_t allocator = round % ranks;
      if (me == allocator) {
        m.heap_take(data, pages * mem::kPageBytes);
        for (std::uint64_t p = 0; p < pages; ++p)
          ASSERT_TRUE(
              m.mover
                  ->assign_untouched(m.context().io, m.directory->pages().page_of(data + p * mem::kPageBytes))
                  .has_value());
      }
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t p = me; p < pages; p += ranks) {
        const std::uint64_t at = data + p * mem::kPageBytes + 128;
        auto* word = m.at<std::uint64_t>(at);
        const std::uint64_t value = p * 10 + round;
        switch (p / ranks) {
          case 0: *word = value; break;
          case 1:
            static_cast<void>(*static_cast<volatile std::uint64_t*>(word));
            *word = value;
            break;
          case 2:
            ASSERT_TRUE(!m.coherence->views.pin(m.context(), at, 8, dsm::Use::read_write));
            *word = value;
            m.coherence->views.unpin(m.context(), at, 8);
            break;
          default: ASSERT_TRUE(gas::put(m.context().io, *m.access, at, &value, sizeof value).has_value());
        }
      }
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t p = 0; p < pages; ++p) {
        const std::uint64_t at = data + p * mem::kPageBytes + 128;
        const auto where = m.directory->lookup(m.context().io, m.directory->pages().page_of(at));
        EXPECT_EQ(raw(where.owner), p / ranks == 3 ? allocator : p % ranks) << "page " << p;
        EXPECT_FALSE(where.busy ||
                     (where.untouched && ranks > 1));  // with one rank a put leaves that to the next fault
        std::uint64_t direct = 0;
        ASSERT_TRUE(gas::get(m.context().io, *m.access, &direct, at, sizeof direct).has_value());
        ASSERT_EQ(direct, p * 10 + round);
        ASSERT_EQ(*m.at<std::uint64_t>(at), p * 10 + round);
      }
      m.collectives.barrier();
    }
  });
}

// Everybody runs for the same pages: each has one owner, and nobody's word is lost.
TEST_P(CoherenceTest, ManyMayTouchAPageFirst) {
  if (std::get<1>(GetParam()) > mem::kPageBytes)
    GTEST_SKIP() << "the space of these tests has no room for so many large pages";
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint32_t me = raw(m.rank());
    const std::uint64_t data =
        m.broadcast(Rank{0}, me == 0 ? m.allocate(16 * mem::kPageBytes, gas::Placement::block) : 0);
    for (unsigned round = 1; round <= 6; ++round) {
      if (me == 0) {
        m.heap_take(data, 16 * mem::kPageBytes);
        for (std::uint64_t p = 0; p < 16; ++p)
          ASSERT_TRUE(
              m.mover
                  ->assign_untouched(m.context().io, m.directory->pages().page_of(data + p * mem::kPageBytes))
                  .has_value());
      }
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t p = 0; p < 16; ++p) {
        const std::uint64_t at = data + p * mem::kPageBytes + me * 8;
        const std::uint64_t value = p * 100 + round;
        if ((p + me) % 2 == 0) {
          *m.at<std::uint64_t>(at) = value;
        } else {
          ASSERT_TRUE(gas::put(m.context().io, *m.access, at, &value, sizeof value).has_value());
        }
      }
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t p = 0; p < 16; ++p) {
        for (std::uint32_t r = 0; r < ranks; ++r)
          ASSERT_EQ(*m.at<std::uint64_t>(data + p * mem::kPageBytes + r * 8), p * 100 + round)
              << "page " << p << " rank " << r;
      }
      m.collectives.barrier();
    }
  });
}

TEST_P(CoherenceTest, APageMovesWithItsUnreleasedNeighboursBytes) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(2 * m.page_bytes) : 0);
    auto* bytes = m.at<unsigned char>(data);
    for (unsigned round = 1; round <= 12; ++round) {
      bytes[raw(m.rank())] =
          static_cast<unsigned char>(round);  // dirty here, maybe unreleased when the page moves
      if (raw(m.rank()) == round % ranks) {
        ASSERT_TRUE(
            m.mover->bring(m.context().io, m.pages().page_of(data), {data, data + m.page_bytes}).has_value());
      }
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      EXPECT_EQ(raw(m.directory->lookup(m.context().io, m.pages().page_of(data)).owner), round % ranks);
      m.coherence->fences.acquire_all(m.context());
      for (std::uint32_t r = 0; r < ranks; ++r) ASSERT_EQ(bytes[r], round) << "byte of rank " << r;
      m.collectives.barrier();
    }
  });
}

/// Which blocks have a twin here when the page arrives is the mover's business: the others come in runs,
/// those byte by byte.
TEST_P(CoherenceTest, APageArrivesInRunsBetweenBlocksThatAreDirtyHere) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t blocks =
        2 * std::max<std::uint64_t>(m.page_bytes / mem::kBlockBytes, 16);  // two pages or more
    const std::uint64_t data =
        m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(blocks * mem::kBlockBytes) : 0);
    auto* bytes = m.at<unsigned char>(data);
    const auto dirty = [](std::uint64_t block, unsigned round) {
      return block % 7 == round % 7 || block % 11 < 3;
    };
    for (unsigned round = 1; round <= 3 * ranks; ++round) {
      const auto mark = static_cast<unsigned char>(round);
      if (raw(m.rank()) == (round - 1) % ranks) {
        for (std::uint64_t b = 0; b < blocks; ++b)
          bytes[b * mem::kBlockBytes + 50 + b % 50] = mark;  // the owner's
      }
      m.collectives.barrier();
      if (raw(m.rank()) == round % ranks) {
        for (std::uint64_t b = 0; b < blocks; ++b) {
          if (dirty(b, round)) bytes[b * mem::kBlockBytes + 100] = mark;
        }
        const gas::ByteRange live{
            data + 50, data + blocks * mem::kBlockBytes - 50};  // its ends need not be those of blocks
        for (const PageId page : m.pages().in(data, blocks * mem::kBlockBytes))
          ASSERT_TRUE(m.mover->bring(m.context().io, page, live).has_value());
      }
      m.collectives.barrier();
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t b = 0; b < blocks; ++b) {
        ASSERT_EQ(bytes[b * mem::kBlockBytes + 50 + b % 50], mark) << "block " << b << " round " << round;
        if (!dirty(b, round)) continue;
        ASSERT_EQ(bytes[b * mem::kBlockBytes + 100], mark) << "block " << b << " round " << round;
      }
      for (const PageId page : m.pages().in(data, blocks * mem::kBlockBytes)) {
        ASSERT_EQ(raw(m.directory->lookup(m.context().io, page).owner), round % ranks);
      }
      m.collectives.barrier();
    }
  });
}

/// Pages that were given to a rank before it touched them are armed by its first fault there, while others
/// take them away.
TEST_P(CoherenceTest, PagesMoveWhileTheirOwnersTouchThemForTheFirstTime) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t bytes = ranks * std::max<std::uint64_t>(m.page_bytes, 32768),
                        blocks = bytes / mem::kBlockBytes;
    for (unsigned round = 1; round <= 10; ++round) {
      const std::uint64_t data =
          m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(bytes, gas::Placement::cyclic) : 0);
      const auto cell = [&](std::uint64_t block, unsigned worker) {
        return m.at<unsigned char>(data + block * mem::kBlockBytes + 2 * worker);
      };
      const auto work = [&](unsigned worker) {  // numbered over the job
        m.enter();
        std::mt19937 random(round * 100 + worker);
        for (std::uint64_t i = 0; i < blocks; ++i) {
          const std::uint64_t block = (i * 7 + worker * blocks / 5) %
                                      blocks;  // 7: no divisor of the number of blocks, a power of two
          *cell(block, worker) = static_cast<unsigned char>(round);
          if (random() % std::max<std::uint64_t>(16, m.page_bytes / mem::kBlockBytes) != 0) continue;
          const PageId page = m.pages().page_of(data + random() % blocks * mem::kBlockBytes);
          ASSERT_TRUE(
              m.mover->bring(m.context().io, page, {m.pages().offset_of(page), m.pages().end_of(page)})
                  .has_value());
        }
      };
      std::thread second(work, 2 * raw(m.rank()) + 1);
      work(2 * raw(m.rank()));
      second.join();
      m.collectives.barrier();
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      for (std::uint64_t b = 0; b < blocks; ++b) {
        for (unsigned worker = 0; worker < 2 * ranks; ++worker)
          ASSERT_EQ(*cell(b, worker), round) << "block " << b << " worker " << worker;
      }
      m.collectives.barrier();
      if (raw(m.rank()) == round % ranks) m.heap->free(m.context().io, gas::Heap::kShared, data);
      m.collectives.barrier();
    }
  });
}

TEST_P(CoherenceTest, PinnedBlocksStayThroughFencesAndSeeOthersBytes) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(8192) : 0);
    auto* bytes = m.at<unsigned char>(data);
    ASSERT_TRUE(!m.coherence->views.pin(m.context(), data, 8192, dsm::Use::read_write));
    for (unsigned round = 1; round <= 10; ++round) {
      for (std::size_t i = raw(m.rank()); i < 8192; i += ranks)
        bytes[i] = static_cast<unsigned char>(round * 3 + i);
      m.coherence->fences.release_all(m.context());
      m.collectives.barrier();
      m.coherence->fences.acquire_all(m.context());
      EXPECT_EQ(m.context().counters.faults_write.load(), 0u);
      for (std::size_t i = 0; i < 8192; ++i) ASSERT_EQ(bytes[i], static_cast<unsigned char>(round * 3 + i));
      m.collectives.barrier();
    }
    m.coherence->views.unpin(m.context(), data, 8192);
  });
}

TEST_P(CoherenceTest, MemoryFreedHereIsReusedThereWithoutOldBytes) {
  if (std::get<1>(GetParam()) > mem::kPageBytes) GTEST_SKIP() << "a heap of large pages has no small objects";
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    // Rank r's object is written and freed by its neighbour, unreleased; then r takes it again.
    for (unsigned round = 0; round < 20; ++round) {
      std::uint64_t mine = m.allocate(48);
      std::vector<std::uint64_t> all(ranks);
      m.collectives.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
      const std::uint64_t other = all[(raw(m.rank()) + 1) % ranks];
      std::memset(m.at<char>(other), 'x', 48);
      if (ranks > 1) m.heap->free(m.context().io, gas::Heap::kShared, other);
      m.heap->flush(m.context().io, gas::Heap::kShared);
      m.collectives.barrier();
      const std::uint64_t again = m.allocate(48);
      if (ranks > 1) {
        ASSERT_EQ(again, mine);
      }
      std::memset(m.at<char>(again), 'n', 48);
      m.collectives.barrier();
      m.coherence->fences.release_all(m.context());  // of an old 'x', if it were still there
      m.collectives.barrier();
      for (int i = 0; i < 48; ++i) ASSERT_EQ(m.at<char>(again)[i], 'n');
      m.collectives.barrier();
    }
  });
}

TEST_P(CoherenceTest, DirectAccessReadsAndWritesTheOwnersCopy) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const std::uint64_t data =
        m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(3 * m.page_bytes, gas::Placement::cyclic) : 0);
    const std::vector<char> text(1000, static_cast<char>('a' + raw(m.rank())));
    const std::uint64_t at = data + m.page_bytes - 500 + raw(m.rank()) * 1000;
    ASSERT_TRUE(gas::put(m.context().io, *m.access, at, text.data(), text.size()).has_value());
    m.collectives.barrier();
    for (std::uint32_t r = 0; r < m.transport->ranks(); ++r) {
      std::vector<char> got(1000);
      ASSERT_TRUE(gas::get(m.context().io, *m.access, got.data(), data + m.page_bytes - 500 + r * 1000, 1000)
                      .has_value());
      EXPECT_EQ(got, std::vector<char>(1000, static_cast<char>('a' + r)));
    }
    EXPECT_FALSE(gas::get(m.context().io, *m.access, nullptr, 0, 1).has_value());
  });
}

TEST_P(CoherenceTest, PutsLoseNothingWhileTheirPagesMove) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(2 * m.page_bytes) : 0);
    constexpr std::uint32_t kRounds = 2000;
    const auto cell = [&](std::uint64_t owner, std::uint64_t page) {
      return data + page * m.page_bytes + owner * 4;
    };
    const auto work = [&](unsigned worker) {
      m.enter();
      std::mt19937 random(raw(m.rank()) * 10 + worker);
      auto& io = m.context().io;
      for (std::uint32_t i = 1; i <= kRounds; ++i) {
        for (std::uint64_t page = 0; page < 2; ++page) {
          const std::uint64_t at = cell(raw(m.rank()) * 2 + worker, page);
          ASSERT_TRUE(gas::put(io, *m.access, at, &i, sizeof i).has_value());
          if (random() % 100 == 0) {
            const std::uint64_t begin = m.pages().offset_of(m.pages().page_of(at));
            ASSERT_TRUE(m.mover->bring(io, m.pages().page_of(at), {begin, begin + m.page_bytes}).has_value());
          }
          std::uint32_t got = 0;
          ASSERT_TRUE(gas::get(io, *m.access, &got, at, sizeof got).has_value());
          ASSERT_EQ(got, i);
        }
      }
    };
    std::thread second(work, 1);
    work(0);
    second.join();
    m.collectives.barrier();
    for (std::uint64_t owner = 0; owner < 2 * ranks; ++owner) {
      for (std::uint64_t page = 0; page < 2; ++page) {
        std::uint32_t got = 0;
        ASSERT_TRUE(gas::get(m.context().io, *m.access, &got, cell(owner, page), sizeof got).has_value());
        EXPECT_EQ(got, kRounds);
      }
    }
  });
}

/// Two workers a rank hammer falsely shared cells while pages move about, with locks played by a ticket in
/// the directory's atomics.
TEST_P(CoherenceTest, CountersUnderALockSurviveMovesOfTheirPage) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(2 * 65536) : 0);
    // Words at the end of rank 0's directory header play the lock: ticket and serving, then the last holder.
    const comm::RegionWords words(*m.transport, gas::kDirectory);
    const int rounds =
        m.page_bytes > mem::kPageBytes ? 50 : 150;  // each move copies the page, while all others wait
    const auto work = [&](unsigned worker) {
      m.enter();
      std::mt19937 random(raw(m.rank()) * 10 + worker);
      auto& io = m.context().io;
      for (int i = 0; i < rounds; ++i) {
        const std::uint64_t ticket = words.fetch_add(io, Rank{0}, 4072, 1);
        io.waiter().until([&] { return words.load(io, Rank{0}, 4080) == ticket; });
        const auto last = words.load(io, Rank{0}, 4088);
        if (last != 0 && Rank{static_cast<std::uint32_t>(last - 1)} != m.rank())
          m.cross(Rank{static_cast<std::uint32_t>(last - 1)});
        auto* counters = m.at<std::uint64_t>(data);
        for (int k = 0; k < 4; ++k) ++counters[(k * 2048) % 16384 / 2];
        if (random() % 8 == 0) {
          const PageId page = m.pages().page_of(data + random() % 4 * 8192);  // a counter's
          ASSERT_TRUE(
              m.mover->bring(io, page, {m.pages().offset_of(page), m.pages().end_of(page)}).has_value());
        }
        words.store(io, Rank{0}, 4088, raw(m.rank()) + 1);
        words.fetch_add(io, Rank{0}, 4080, 1);
      }
    };
    std::thread second(work, 1);
    work(0);
    second.join();
    m.collectives.barrier();
    for (std::uint32_t r = 0; r < ranks; ++r) m.coherence->fences.ask_release(m.context(), Rank{r});
    m.coherence->fences.acquire_all(m.context());
    for (int k = 0; k < 4; ++k)
      EXPECT_EQ(m.at<std::uint64_t>(data)[(k * 2048) % 16384 / 2], rounds * 2u * ranks);
    m.collectives.barrier();
  });
}

}  // namespace
}  // namespace kasane
