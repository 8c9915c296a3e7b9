// SPDX-License-Identifier: Apache-2.0
// The allocator over the simulated network, without coherence: traces of several ranks against an oracle, how
// many round trips allocations and frees at other ranks cost, what is reported when memory runs out and when
// it is misused. (Every interleaving of the stacks: tests/model.)
#include "gas/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/assert.h"
#include "support/sanitized.h"
#include "support/sim/sim.h"
#include "unit/gas/counting_transport.h"
#include "unit/gas/sim_job.h"

namespace kasane::gas {
namespace {

constexpr std::uint64_t kHeapOffset = 1 << 20;

using test::TurnWaiter;

/// A rank with a heap and without coherence: the memory is never accessed. Notes what the heap asks of
/// coherence.
struct SimRank final : PageBlocks, HeapHooks {
  SimRank(comm::sim::World& world, Rank rank, std::uint32_t ranks, std::uint64_t heap_bytes)
      : transport(world.transport(rank)),
        waiter(world, transport),
        pages(mem::Pages::uniform(kHeapOffset + heap_bytes).value()),
        entries(Directory::region_bytes(pages, ranks) / 8) {
    const Heap::Config config{kHeapOffset, heap_bytes, 4, 0x7000'0000'0000};
    words.resize(Heap::region_bytes(config, ranks) / 8);
    KASANE_CHECK(
        transport.attach(kDirectory, -1, reinterpret_cast<std::byte*>(entries.data()), entries.size() * 8)
            .has_value());
    KASANE_CHECK(transport.attach(kHeap, -1, reinterpret_cast<std::byte*>(words.data()), words.size() * 8)
                     .has_value());
    directory.emplace(transport, pages);
    addresses = AddressCache::create({transport, *directory}).value();
    mover.emplace(transport, *addresses, *this);
    heap.emplace(transport, config, *directory, *mover, *this);
  }
  comm::Blocking io() { return {transport, waiter, &counters}; }

  YieldAnswer yield(PageId) noexcept override { return YieldAnswer::yielded; }
  Claim claim(PageId, ClaimFor, comm::Blocking* waits) override {
    if (waits != nullptr) waits->waiter().until([this] { return !claimed; });
    if (claimed) return Claim::in_use;
    claimed = true;
    return Claim::taken;
  }
  void merge(comm::Blocking&, std::span<const Arrival>) override {}
  void settle(PageId, Settled, mem::BlockRange) override { claimed = false; }
  void arm_owned(comm::Blocking&, std::uint64_t, std::size_t) override {}
  void take(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override {
    taken.push_back({offset, offset + bytes});
  }
  void discard(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override {
    discarded.push_back({offset, offset + bytes});
  }

  test::CountingTransport transport;
  TurnWaiter waiter;
  Counters counters;
  mem::Pages pages;
  std::vector<std::uint64_t> entries, words;
  std::optional<Directory> directory;
  std::unique_ptr<AddressCache> addresses;
  std::optional<Mover> mover;
  std::optional<Heap> heap;
  std::vector<ByteRange> taken, discarded;
  bool claimed = false;
};

struct Job {
  Job(std::uint32_t ranks, std::uint64_t seed, std::uint64_t share_bytes = 64 << 20) : world(ranks, seed) {
    for (std::uint32_t r = 0; r < ranks; ++r) all.emplace_back(world, Rank{r}, ranks, share_bytes * ranks);
  }
  SimRank& operator[](std::uint32_t r) { return all[r]; }
  void spawn(std::uint32_t r, std::function<void(SimRank&, comm::Blocking&)> body) {
    world.spawn(Rank{r}, [this, r, body = std::move(body)] {
      auto io = all[r].io();
      body(all[r], io);
    });
  }
  void run() {
    const auto ended = world.run();
    ASSERT_TRUE(ended.has_value()) << ended.error().message;
  }
  void on(std::uint32_t r, std::function<void(SimRank&, comm::Blocking&)> body) {
    spawn(r, std::move(body));
    run();
  }
  comm::sim::World world;
  std::deque<SimRank> all;
};

/// What is allocated, by anybody.
class Oracle {
 public:
  void add(std::uint64_t offset, std::size_t bytes, std::size_t align) {
    EXPECT_EQ(offset % align, 0u);
    const auto after = live_.lower_bound(offset);
    EXPECT_TRUE(after == live_.end() || offset + bytes <= after->first) << "two allocations overlap";
    EXPECT_TRUE(after == live_.begin() || std::prev(after)->second <= offset) << "two allocations overlap";
    live_[offset] = offset + bytes;
  }
  void remove(std::uint64_t offset) { EXPECT_EQ(live_.erase(offset), 1u); }
  [[nodiscard]] bool empty() const { return live_.empty(); }

 private:
  std::map<std::uint64_t, std::uint64_t> live_;
};

// ---- traces ----------------------------------------------------------------------------------------------

struct Piece {
  std::uint64_t offset;
  std::size_t bytes;
};

/// Threads on every rank allocate anywhere and free what any thread allocated, in random order; in the end
/// everything is free again. Returns how many allocations were refused.
std::uint32_t random_trace(std::uint64_t seed, std::uint64_t share_bytes, std::size_t largest_run) {
  constexpr std::uint32_t kRanks = 3;
  Job job(kRanks, seed, share_bytes);
  Oracle oracle;
  std::vector<Piece> pool;
  std::uint32_t failed = 0;
  for (std::uint32_t t = 0; t < 6; ++t) {
    job.spawn(t % kRanks, [&, t](SimRank& here, comm::Blocking& io) {
      std::mt19937_64 random(seed * 100 + t);
      const std::uint32_t cache = t < 3 ? Heap::kShared : t / 3;
      for (int i = 0; i < 120; ++i) {
        if (random() % 2 != 0 || pool.empty()) {
          const std::size_t bytes = random() % 8 != 0 ? random() % (std::size_t{16} << (random() % 12))
                                                      : 40'000 + random() % largest_run;
          const std::size_t align = random() % 4 != 0 ? 16 : std::size_t{1} << (random() % 17);
          const Placement where = random() % 3 == 0 ? Placement::local
                                  : random() % 8 == 0
                                      ? Placement::cyclic
                                      : Placement::on(Rank{static_cast<std::uint32_t>(random() % kRanks)});
          const auto got = here.heap->allocate(io, cache, bytes, align, where);
          if (!got) {
            ++failed;
            continue;
          }
          const std::size_t usable = here.heap->usable_size(io, *got);
          EXPECT_GE(usable, bytes);
          EXPECT_TRUE(where.kind != Placement::Kind::one_rank || here.heap->share_of(*got) == where.rank);
          oracle.add(*got, usable, align);
          pool.push_back({*got, usable});
        } else {
          std::swap(pool[random() % pool.size()], pool.back());
          const Piece piece = pool.back();
          pool.pop_back();
          oracle.remove(piece.offset);
          here.heap->free(io, cache, piece.offset);
        }
      }
    });
  }
  job.run();
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (const Piece& piece : pool) here.heap->free(io, 0, piece.offset);
  });
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    job.on(r, [](SimRank& here, comm::Blocking& io) {
      for (std::uint32_t c : {0u, 1u, 2u, 3u, Heap::kShared}) here.heap->flush(io, c);
    });
  }
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const HeapStatistics s = here.heap->statistics(io, Rank{r});
      EXPECT_EQ(s.runs, 0u);
      EXPECT_EQ(s.slab_free_bytes, s.slab_bytes) << "objects are lost";
    }
  });
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    job.on(r, [](SimRank& here, comm::Blocking& io) {
      here.heap->for_each_live(io, [](std::uint64_t offset, std::size_t bytes) {
        ADD_FAILURE() << offset << " of " << bytes << " bytes is lost";
      });
    });
  }
  // All slabs are free, so all pages are.
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint32_t r = 0; r < kRanks; ++r)
      EXPECT_TRUE(here.heap->allocate(io, 0, share_bytes, 16, Placement::on(Rank{r})).has_value());
  });
  return failed;
}

TEST(Heap, RandomTracesOfThreeRanksNeverOverlapAndLoseNothing) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(40) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_LT(random_trace(seed, 8 << 20, 300'000), 100u);
  }
}

// So little room that requests are refused, and slabs are collected again and again while other threads take
// and give groups.
TEST(Heap, RandomTracesWhereMemoryIsScarce) {
  std::uint32_t failed = 0;
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(12) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    failed += random_trace(seed, 1 << 20, 100'000);
  }
  EXPECT_GT(failed, fewer_if_sanitized(100)) << "it is not scarce";
}

// Another rank has read what the pages were, and must not take them for that when they are slabs of another
// size.
TEST(Heap, FreeSlabsBecomePagesAgainForEveryRank) {
  constexpr std::uint64_t kShare = 4 << 20;
  Job job(3, 29, kShare);
  for (const std::size_t bytes : {16u, 1000u, 30'000u, 48u, 12'000u, 17'000u}) {
    std::vector<std::uint64_t> all;
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      for (;;) {
        const auto got = here.heap->allocate(io, 0, bytes, 16, Placement::local);
        if (!got) break;
        all.push_back(*got);
      }
      EXPECT_GE(all.size() * here.heap->usable_size(io, all[0]), kShare / 4 * 3);
      here.heap->flush(io, 0);
    });
    job.on(1, [&](SimRank& here, comm::Blocking& io) {
      for (const auto offset : all) {
        EXPECT_GE(here.heap->usable_size(io, offset), bytes);
        here.heap->free(io, 0, offset);
      }
      EXPECT_FALSE(here.heap->allocate(io, 0, kShare, 16, Placement::on(Rank{0})).has_value())
          << "this worker keeps some";
      here.heap->flush(io, 0);
    });
    job.on(2, [&](SimRank& here, comm::Blocking& io) {
      const auto whole = here.heap->allocate(io, 0, kShare, 16, Placement::on(Rank{0}));
      ASSERT_TRUE(whole.has_value()) << bytes << ": " << whole.error().message;
      here.heap->free(io, 0, *whole);
    });
  }
}

// One rank allocates, all others free: objects must be returned, or the allocating rank's share would run
// out.
TEST(Heap, WhatOthersFreeIsAllocatedAgain) {
  Job job(3, 7, 4 << 20);
  std::vector<std::uint64_t> pool;
  for (int round = 0; round < 40; ++round) {
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      for (int i = 0; i < 100; ++i) {
        const auto got = here.heap->allocate(io, 0, 20'000, 16, Placement::local);
        ASSERT_TRUE(got.has_value()) << "round " << round << ": " << got.error().message;
        pool.push_back(*got);
      }
    });
    for (std::uint32_t r = 1; r < 3; ++r) {
      job.on(r, [&](SimRank& here, comm::Blocking& io) {
        for (std::size_t i = r - 1; i < pool.size(); i += 2) here.heap->free(io, 1, pool[i]);
      });
    }
    pool.clear();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Heap, RunsAreSplitAndJoinedAgain) {
  Job job(2, 3, 16 << 20);
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const auto at0 = Placement::on(Rank{0});
    const auto pages = [&](std::uint64_t n) {
      return here.heap->allocate(io, 0, n * kHeapPageBytes, 16, at0);
    };
    std::vector<std::uint64_t> runs;
    for (int i = 0; i < 25; ++i) runs.push_back(pages(10).value());  // 250 of 256 pages
    EXPECT_FALSE(pages(10).has_value());
    for (std::size_t i = 0; i < runs.size(); i += 2) here.heap->free(io, 0, runs[i]);
    EXPECT_FALSE(pages(20).has_value()) << "no two of the free runs are neighbours";
    for (std::size_t i = 1; i < runs.size(); i += 2) here.heap->free(io, 0, runs[i]);
    const auto whole = pages(256);  // with the pages behind that were never used
    ASSERT_TRUE(whole.has_value()) << whole.error().message;
    here.heap->free(io, 0, *whole);
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(pages(1).has_value()) << i;
  });
}

// All that is free is one run, of which every thread wants a part: none is refused while another holds the
// rest of it.
TEST(Heap, NobodyIsRefusedWhileTheRestOfARunIsInAnotherHand) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(3, seed, 4 << 20);
    job.on(0, [](SimRank& here, comm::Blocking& io) {
      here.heap->free(io, 0, here.heap->allocate(io, 0, 4 << 20, 16, Placement::local).value());
    });
    std::uint64_t got = 0;
    bool refused = false;
    for (std::uint32_t t = 0; t < 6; ++t) {
      job.spawn(t % 3, [&, t](SimRank& here, comm::Blocking& io) {
        for (;;) {
          const bool after_refusal = refused;
          if (!here.heap->allocate(io, t / 3, kHeapPageBytes, 16, Placement::on(Rank{0}))) break;
          EXPECT_FALSE(after_refusal) << "there was something after all, seed " << seed;
          ++got;
        }
        refused = true;
      });
    }
    job.run();
    EXPECT_EQ(got, 64u) << "seed " << seed;
  }
}

TEST(Heap, RunsGrowAndShrinkWhereTheyAre) {
  Job job(1, 1, 16 << 20);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const std::uint64_t a = here.heap->allocate(io, 0, 4 * kHeapPageBytes, 16, Placement::local).value();
    EXPECT_TRUE(here.heap->resize(io, a, 9 * kHeapPageBytes));  // nothing was ever behind it
    EXPECT_EQ(here.heap->usable_size(io, a), 9 * kHeapPageBytes);
    const std::uint64_t b = here.heap->allocate(io, 0, kHeapPageBytes, 16, Placement::local).value();
    EXPECT_EQ(b, a + 9 * kHeapPageBytes);
    EXPECT_FALSE(here.heap->resize(io, a, 10 * kHeapPageBytes));
    EXPECT_TRUE(here.heap->resize(io, a, 3 * kHeapPageBytes));
    EXPECT_EQ(here.heap->allocate(io, 0, 6 * kHeapPageBytes, 16, Placement::local).value(),
              a + 3 * kHeapPageBytes);
    EXPECT_FALSE(here.heap->resize(io, a, 100)) << "a run for a small object";
    const std::uint64_t small = here.heap->allocate(io, 0, 1000, 16, Placement::local).value();
    EXPECT_TRUE(here.heap->resize(io, small, 1020));
    EXPECT_FALSE(here.heap->resize(io, small, 1025));
    EXPECT_FALSE(here.heap->resize(io, small, 100));
  });
}

// ---- placements ------------------------------------------------------------------------------------------

TEST(Heap, PagesAreOwnedAsAsked) {
  Job job(3, 5);
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const auto owners = [&](Placement where) {
      const std::uint64_t at = here.heap->allocate(io, 0, 9 * kHeapPageBytes, 16, where).value();
      std::string text;
      for (std::uint64_t i = 0; i < 9; ++i)
        text += std::to_string(
            raw(here.directory->lookup(io, here.pages.page_of(at + i * kHeapPageBytes)).owner));
      here.heap->free(io, 0, at);
      return text;
    };
    for (int round = 0; round < 3; ++round) {  // fresh at first, then pages that had other owners
      EXPECT_EQ(owners(Placement::local), "111111111");
      EXPECT_EQ(owners(Placement::block), "000111222");
      EXPECT_EQ(owners(Placement::cyclic), "012012012");
      EXPECT_EQ(owners(Placement::block_cyclic(2 * kHeapPageBytes)), "001122001");
      EXPECT_EQ(owners(Placement::on(Rank{2})), "222222222");
    }
    EXPECT_FALSE(here.heap->allocate(io, 0, 8, 16, Placement::on(Rank{3})).has_value());
    EXPECT_FALSE(here.heap->allocate(io, 0, 8, 16, Placement::block_cyclic(100)).has_value());
    EXPECT_FALSE(here.heap->allocate(io, 0, 8, 24, Placement::local).has_value());
  });
}

// ---- round trips -----------------------------------------------------------------------------------------

struct Cost {
  double allocate, free;
};

/// The pattern of ACP's data library: 100 allocations of random size 1 … 32768 at another rank, frees in
/// random order, again and again.
Cost paper_pattern(std::uint32_t target, std::uint32_t rounds) {
  Job job(3, 11);
  Cost cost{};
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> all(100);
    std::uint64_t allocate = 0, free = 0;
    here.transport.trips();
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (auto& offset : all)
        offset = here.heap->allocate(io, 0, 1 + random() % 32768, 16, Placement::on(Rank{target})).value();
      allocate += here.transport.trips();
      std::shuffle(all.begin(), all.end(), random);
      for (const auto offset : all) here.heap->free(io, 0, offset);
      free += here.transport.trips();
    }
    cost = {static_cast<double>(allocate) / (100.0 * rounds), static_cast<double>(free) / (100.0 * rounds)};
    EXPECT_EQ(here.transport.requests, 0u);
    EXPECT_EQ(here.counters.remote_operations_allocate.load() != 0, target != 0);
  });
  return cost;
}

TEST(HeapTrips, ThePatternOfThePaperAtAnotherRank) {
  const Cost first = paper_pattern(1, 1), steady = paper_pattern(1, 50);
  std::printf("first round: %.2f trips an allocation, %.2f a free; over 50 rounds %.2f and %.2f\n",
              first.allocate, first.free, steady.allocate, steady.free);
  EXPECT_LE(first.allocate, 3.0);
  EXPECT_LE(first.free, 2.0);
  EXPECT_LE(steady.allocate, 1.0);
  EXPECT_LE(steady.free, 1.0);
}

// The worst case for caches: everything is allocated by one rank and freed by another, so nothing that is
// freed is taken from the own cache.
TEST(HeapTrips, AllocatedByOneRankFreedByAnother) {
  Job job(3, 13);
  std::mt19937_64 random(5);
  std::uint64_t allocate = 0, free = 0, operations = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> all(100);
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      here.transport.trips();
      for (auto& offset : all)
        offset = here.heap->allocate(io, 0, 1 + random() % 32768, 16, Placement::on(Rank{1})).value();
      allocate += here.transport.trips();
    });
    std::shuffle(all.begin(), all.end(), random);
    job.on(2, [&](SimRank& here, comm::Blocking& io) {
      here.transport.trips();
      for (const auto offset : all) here.heap->free(io, 0, offset);
      free += here.transport.trips();
    });
    operations += 100;
  }
  std::printf("%.2f trips an allocation, %.2f a free\n", static_cast<double>(allocate) / operations,
              static_cast<double>(free) / operations);
  EXPECT_LE(static_cast<double>(allocate) / operations, 3.0);
  EXPECT_LE(static_cast<double>(free) / operations, 2.0);
}

constexpr std::uint64_t kStrided = 40;  ///< groups of 64 objects

/// Objects at rank 1, in the order in which neighbours lie in different groups.
std::vector<std::uint64_t> strided(Job& job) {
  std::vector<std::uint64_t> all, by_group;
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint64_t i = 0; i < kStrided * 64; ++i)
      by_group.push_back(here.heap->allocate(io, 0, 1024, 16, Placement::on(Rank{1})).value());
  });
  std::sort(by_group.begin(), by_group.end());
  for (std::uint64_t i = 0; i < by_group.size(); ++i)
    all.push_back(by_group[i % kStrided * 64 + i / kStrided]);
  return all;
}

// Groups that leave a worker are returned together: their round trips are as many as ever, but few are waited
// for in a row. Nothing is lost.
TEST(HeapTrips, GroupsGoBackTogether) {
  Job job(3, 31);
  const auto all = strided(job);
  job.on(2, [&](SimRank& here, comm::Blocking& io) {
    for (const auto offset : all) (void)here.heap->usable_size(io, offset);  // hears what the pages are
    here.transport.trips();
    here.transport.chain();
    for (const auto offset : all) here.heap->free(io, 0, offset);
    here.heap->flush(io, 0);
    const std::uint32_t trips = here.transport.trips(), chain = here.transport.chain().all();
    EXPECT_EQ(here.counters.remote_operations_free.load(), trips);
    // one for each group that leaves, two for each that is pushed
    EXPECT_LE(trips, all.size() + 2 * kStrided);
    EXPECT_LE(chain * 8, trips) << "they were waited for one by one";
  });
  job.on(0, [](SimRank& here, comm::Blocking& io) { here.heap->flush(io, 0); });
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const HeapStatistics s = here.heap->statistics(io, Rank{1});
    EXPECT_EQ(s.slab_free_bytes, s.slab_bytes);
    EXPECT_GE(s.slab_bytes, kStrided * 65536);
  });
}

TEST(HeapTrips, LocalOnesAskNobody) {
  const Cost steady = paper_pattern(0, 20);
  EXPECT_LE(steady.allocate, 0.1);  // the directory entries of new pages
  EXPECT_EQ(steady.free, 0.0);
}

// ---- rule 7 ----------------------------------------------------------------------------------------------

TEST(Heap, DiscardsBeforeOthersMayHaveItAndDropsBeforeUse) {
  Job job(2, 17);
  std::uint64_t at = 0;
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    at = here.heap->allocate(io, 0, 5000, 16, Placement::local).value();
  });
  job.on(1, [&](SimRank& here, comm::Blocking& io) {
    here.heap->free(io, 0, at);
    ASSERT_EQ(here.discarded.size(), 1u) << "this worker may be given it again at once";
    EXPECT_EQ(here.discarded[0].begin, at);
    EXPECT_GE(here.discarded[0].end, at + 5000);
    here.heap->flush(io, 0);
  });
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    here.heap->flush(io, 0);
    here.taken.clear();
    const std::uint64_t again = here.heap->allocate(io, 0, 5000, 16, Placement::local).value();
    const bool dropped = std::any_of(here.taken.begin(), here.taken.end(), [&](const ByteRange& r) {
      return r.begin <= again && again + 5000 <= r.end;
    });
    EXPECT_TRUE(dropped);
  });
}

// ---- exhaustion and misuse -------------------------------------------------------------------------------

TEST(Heap, AnExhaustedShareSaysWhichAndTheOthersGoOn) {
  Job job(2, 19, 4 << 20);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    std::vector<std::uint64_t> all;
    std::string message;
    for (;;) {
      auto got = here.heap->allocate(io, 0, 30'000, 16, Placement::on(Rank{1}));
      if (!got) {
        EXPECT_EQ(got.error().code, Errc::out_of_memory);
        message = got.error().message;
        break;
      }
      all.push_back(*got);
    }
    EXPECT_GE(all.size(), 120u);
    for (const char* part : {"rank 1", "30000", "262144 bytes", "4194304", "are free", "--space"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
    const auto large = here.heap->allocate(io, 0, 100 << 20, 16, Placement::on(Rank{1}));
    ASSERT_FALSE(large.has_value());
    EXPECT_NE(large.error().message.find("104857600"), std::string::npos) << large.error().message;
    EXPECT_TRUE(here.heap->allocate(io, 0, 30'000, 16, Placement::local).has_value());
    // Slabs of which one object is in use stay slabs: their free objects serve smaller requests, too.
    EXPECT_FALSE(here.heap->allocate(io, 0, 1000, 16, Placement::on(Rank{1})).has_value());
    here.heap->free(io, 0, all.back());
    const auto smaller = here.heap->allocate(io, 0, 1000, 1024, Placement::on(Rank{1}));
    ASSERT_TRUE(smaller.has_value()) << smaller.error().message;
    EXPECT_EQ(*smaller, all.back());
    EXPECT_GE(here.heap->usable_size(io, *smaller), 30'000u);
    for (const auto offset : all) here.heap->free(io, 0, offset);
    EXPECT_TRUE(here.heap->allocate(io, 0, 30'000, 16, Placement::on(Rank{1})).has_value());
  });
}

using HeapDeath = testing::Test;

/// Runs body on rank 0 of two, in the child that is to die.
void on_rank_0(const std::function<void(Heap&, comm::Blocking&)>& body) {
  Job job(2, 23);
  job.on(0, [&](SimRank& here, comm::Blocking& io) { body(*here.heap, io); });
}

TEST(HeapDeath, FreedTwice) {
  const auto twice = [](std::size_t bytes, Placement where) {
    on_rank_0([&](Heap& heap, comm::Blocking& io) {
      const std::uint64_t at = heap.allocate(io, 0, bytes, 16, where).value();
      heap.free(io, 0, at);
      heap.free(io, 0, at);
    });
  };
  EXPECT_DEATH(twice(100, Placement::local), "the pointer 0x7[0-9a-f]+ was freed twice");
  EXPECT_DEATH(twice(100, Placement::on(Rank{1})), "the pointer 0x7[0-9a-f]+ was freed twice");
  EXPECT_DEATH(twice(100'000, Placement::local), "the pointer 0x7[0-9a-f]+ is free already");
  EXPECT_DEATH(twice(100'000, Placement::on(Rank{1})), "the pointer 0x7[0-9a-f]+ is free already");
}

TEST(HeapDeath, FreedByTwoWorkers) {
  EXPECT_DEATH(on_rank_0([](Heap& heap, comm::Blocking& io) {
                 const std::uint64_t at = heap.allocate(io, 0, 100, 16, Placement::on(Rank{1})).value();
                 heap.free(io, 0, at);
                 heap.free(io, 1, at);
                 heap.flush(io, 0);
                 heap.flush(io, 1);
               }),
               "the pointer 0x7[0-9a-f]+ was freed twice");
}

// The object's group has left its bin, and waits to go back with others; or it has gone back already.
TEST(HeapDeath, FreedTwiceWithOthersInBetween) {
  const auto twice = [](std::size_t others) {
    Job job(3, 37);
    const auto all = strided(job);
    job.on(2, [&](SimRank& here, comm::Blocking& io) {
      for (std::size_t i = 0; i <= others; ++i) here.heap->free(io, 0, all[i]);
      here.heap->free(io, 0, all[0]);
      here.heap->flush(io, 0);
    });
  };
  EXPECT_DEATH(twice(12), "the pointer 0x7[0-9a-f]+ was freed twice");
  EXPECT_DEATH(twice(39), "the pointer 0x7[0-9a-f]+ was freed twice");
}

TEST(HeapDeath, NeverAllocated) {
  EXPECT_DEATH(
      on_rank_0([](Heap& heap, comm::Blocking& io) { heap.free(io, 0, kHeapOffset + 5 * kHeapPageBytes); }),
      "the pointer 0x7[0-9a-f]+ was never allocated");
  EXPECT_DEATH(on_rank_0([](Heap& heap, comm::Blocking& io) {
                 heap.free(io, 0, heap.allocate(io, 0, 100, 16, Placement::local).value() + 16);
               }),
               "is not the start of an allocation");
  EXPECT_DEATH(on_rank_0([](Heap& heap, comm::Blocking& io) {
                 heap.free(io, 0, heap.allocate(io, 0, 100'000, 16, Placement::local).value() + 16);
               }),
               "is not the start of an allocation");
  EXPECT_DEATH(on_rank_0([](Heap& heap, comm::Blocking& io) {
                 heap.free(io, 0,
                           heap.allocate(io, 0, 200'000, 16, Placement::local).value() + kHeapPageBytes);
               }),
               "is not the start of an allocation");
}

TEST(SizeClasses, NumbersOfObjectsAreExact) {
  for (unsigned c = 0; c < kSizeClasses; ++c) {
    for (std::uint64_t n = 0; n < slab_pages(c) * kHeapPageBytes; n += 16)
      ASSERT_EQ(object_at(n, c), n / class_bytes(c)) << class_bytes(c);
    EXPECT_GE(slab_pages(c) * kHeapPageBytes / class_bytes(c), 8u);
  }
  for (std::uint64_t pages = 1; pages < 100'000; ++pages) {
    EXPECT_LE(run_class_pages(run_class(pages)), pages);
    EXPECT_GT(run_class_pages(run_class(pages) + 1), pages);
    EXPECT_GE(run_class_pages(run_class_for(pages)), pages);
  }
}

}  // namespace
}  // namespace kasane::gas
