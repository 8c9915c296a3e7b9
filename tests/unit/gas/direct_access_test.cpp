// SPDX-License-Identifier: Apache-2.0
// Direct access over the simulated network: what each form does, how many round trips it costs, and that
// random mixes of all forms agree with an oracle while pages move. A seed replays its history.
#include "gas/direct_access.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/sanitized.h"
#include "unit/gas/sim_job.h"

namespace kasane::gas {
namespace {

using comm::AtomicOp, comm::Cursor, comm::Element, comm::Piece, comm::Strides, comm::Width;
using test::Job, test::kPages, test::SimRank;

constexpr std::uint64_t kPage = mem::kPageBytes;
constexpr std::uint64_t kAll = kPages * kPage;

/// Page p at rank p mod ranks.
void assign_all(Job& job, std::uint32_t ranks) {
  job.on(0, [&](SimRank& here, comm::Blocking& io) {
    for (std::uint32_t p = 0; p < kPages; ++p)
      ASSERT_TRUE(here.mover->assign(io, PageId{p}, Rank{p % ranks}).has_value());
  });
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed) + 1);
  std::vector<std::byte> v(bytes);
  for (std::byte& b : v) b = static_cast<std::byte>(random());
  return v;
}

#define ASSERT_OK(expr)                                                   \
  do {                                                                    \
    const auto ok_ = (expr);                                              \
    ASSERT_TRUE(ok_.has_value()) << #expr << ": " << ok_.error().message; \
  } while (0)

// ---- staging ---------------------------------------------------------------------------------------------

TEST(StagingRuns, AreDisjointAndComeBack) {
  std::array<std::atomic<std::uint64_t>, 2> words{};
  std::array<std::byte, 128 * 16> memory;
  Staging staging(words.data(), 2, memory.data(), 16);
  EXPECT_EQ(staging.take(0).units, 0u);
  EXPECT_EQ(staging.take(64 * 16 + 1).units, 0u);
  std::mt19937 random(5);
  std::vector<Staging::Run> out;
  std::array<bool, 128> used{};
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const auto run = staging.take(1 + random() % (20 * 16));
      for (std::uint32_t u = run.first; u < run.first + run.units; ++u) {
        ASSERT_FALSE(used[u]);
        used[u] = true;
      }
      if (run.units != 0) {
        ASSERT_EQ(run.first / 64, (run.first + run.units - 1) / 64);
        out.push_back(run);
      }
    } else if (!out.empty()) {
      const std::size_t k = random() % out.size();
      for (std::uint32_t u = out[k].first; u < out[k].first + out[k].units; ++u) used[u] = false;
      staging.put(out[k]);
      out[k] = out.back();
      out.pop_back();
    }
  }
  for (const auto& run : out) staging.put(run);
  EXPECT_EQ(staging.take(64 * 16).units, 64u);  // a whole word: nothing was lost
  EXPECT_EQ(staging.take(64 * 16).units, 64u);
  EXPECT_EQ(staging.take(1).units, 0u);
}

// ---- forms -----------------------------------------------------------------------------------------------

struct Forms : testing::Test {
  Forms() : job(3, 11) { assign_all(job, 3); }
  Job job;
};

TEST_F(Forms, ARangeOverAllPagesIsWrittenAndRead) {
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    const auto bytes = pattern(kAll - 200, 1);
    for (const Source source : {Source::kept, Source::copied}) {
      ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
        return here.access->write(io, o, 100, bytes.data(), bytes.size(), source);
      }));
      std::vector<std::byte> got(bytes.size());
      ASSERT_OK(get(io, *here.access, got.data(), 100, got.size()));
      EXPECT_TRUE(got == bytes);
    }
  });
}

TEST_F(Forms, ACopiedSourceMayBeUsedAgainAtOnce) {
  job.on(1, [](SimRank& here, comm::Blocking& io) {
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{128}, std::size_t{129}, std::size_t{100'000}}) {
      const auto expected = pattern(bytes, bytes);
      auto source = expected;
      Outstanding o;
      ASSERT_OK(here.access->write(io, o, kPage * 2 + 40, source.data(), bytes, Source::copied));
      std::fill(source.begin(), source.end(), std::byte{0});
      io.waiter().until([&] { return o.done(); });
      std::vector<std::byte> got(bytes);
      ASSERT_OK(get(io, *here.access, got.data(), kPage * 2 + 40, bytes));
      EXPECT_TRUE(got == expected) << bytes;
    }
  });
}

TEST_F(Forms, PatchesAndPieces) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const auto zeros = std::vector<std::byte>(3 * kPage);
    ASSERT_OK(put(io, *here.access, kPage, zeros.data(), zeros.size()));
    // 100 rows of 24 bytes, 2000 bytes apart there (over three pages) and dense here.
    const auto rows = pattern(24 * 100, 3);
    const Strides shape{.dimensions = 2, .count = {24, 100}, .remote_stride = {1800}, .local_stride = {24}};
    ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
      return here.access->write(io, o, kPage + 16, rows.data(), Cursor(shape), Source::copied);
    }));
    std::vector<std::byte> all(3 * kPage), back(rows.size());
    ASSERT_OK(get(io, *here.access, all.data(), kPage, all.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t row = (i - 16) / 1800, in_row = (i - 16) % 1800;
      const std::byte expected = i >= 16 && row < 100 && in_row < 24 ? rows[row * 24 + in_row] : std::byte{0};
      ASSERT_EQ(all[i], expected) << i;
    }
    ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
      return here.access->read(io, o, kPage + 16, back.data(), Cursor(shape));
    }));
    EXPECT_TRUE(back == rows);
    // The same by pieces, the last first.
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < 100; ++i) pieces.push_back({(99 - i) * 1800, i * 24, 24});
    ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
      return here.access->read(io, o, kPage + 16, back.data(), Cursor(std::span<const Piece>(pieces)));
    }));
    for (std::size_t i = 0; i < 100; ++i)
      ASSERT_EQ(std::memcmp(&back[i * 24], &rows[(99 - i) * 24], 24), 0) << i;
  });
}

TEST_F(Forms, AccumulateAddsOverPages) {
  job.on(2, [](SimRank& here, comm::Blocking& io) {
    constexpr std::size_t n = 20'000;
    std::vector<double> zeros(n), x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i);
    const Cursor all(Strides{.dimensions = 1, .count = {n * 8}});
    ASSERT_OK(put(io, *here.access, 8, zeros.data(), n * 8));
    for (const Source source : {Source::kept, Source::copied}) {
      ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
        return here.access->accumulate(io, o, Element::float64, {0.5, 0}, 8,
                                       reinterpret_cast<const std::byte*>(x.data()), all, source);
      }));
    }
    ASSERT_OK(get(io, *here.access, y.data(), 8, n * 8));
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], x[i]) << i;
  });
}

TEST_F(Forms, AtomicsReturnTheOldValue) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    for (const Width width : {Width::four, Width::eight}) {
      const std::uint64_t at = kPage * 4 + 16;  // rank 1's
      std::uint64_t word = 0, old = 99;
      ASSERT_OK(put(io, *here.access, at, &word, 8));
      const auto rmw = [&](AtomicOp op, std::uint64_t operand, std::uint64_t compare = 0) {
        EXPECT_TRUE(await(io, *here.access, [&](Outstanding& o) {
                      return here.access->atomic(io, o, op, width, at, operand, compare, &old);
                    }).has_value());
        return old;
      };
      EXPECT_EQ(rmw(AtomicOp::fetch_add, 5), 0u);
      EXPECT_EQ(rmw(AtomicOp::fetch_or, 8), 5u);
      EXPECT_EQ(rmw(AtomicOp::fetch_and, 12), 13u);
      EXPECT_EQ(rmw(AtomicOp::fetch_xor, 1), 12u);
      EXPECT_EQ(rmw(AtomicOp::compare_swap, 7, 12), 13u);
      EXPECT_EQ(rmw(AtomicOp::compare_swap, 7, 13), 13u);
      EXPECT_EQ(rmw(AtomicOp::swap, 1), 7u);
      ASSERT_OK(get(io, *here.access, &word, at, 8));
      EXPECT_EQ(word, 1u);
    }
  });
}

TEST_F(Forms, CopiesBetweenAnyTwoRanks) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    const auto bytes = pattern(kPage + 5000, 9);
    for (const std::uint64_t from : {std::uint64_t{0}, kPage + 100, 2 * kPage}) {
      for (const std::uint64_t to : {3 * kPage, 3 * kPage + 777, 4 * kPage - 8, 5 * kPage - 6000}) {
        const std::size_t n = std::min<std::uint64_t>({bytes.size(), kAll - to, 3 * kPage - from});
        ASSERT_OK(put(io, *here.access, from, bytes.data(), n));
        ASSERT_OK(
            await(io, *here.access, [&](Outstanding& o) { return here.access->copy(io, o, from, to, n); }));
        std::vector<std::byte> got(n);
        ASSERT_OK(get(io, *here.access, got.data(), to, n));
        EXPECT_EQ(std::memcmp(got.data(), bytes.data(), n), 0) << from << " to " << to;
      }
    }
  });
}

TEST_F(Forms, WrongPlacesAreRefusedAndNamed) {
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    std::uint64_t word = 0;
    const auto message = [&](const Result<void>& r) {
      return r ? std::string("nothing") : r.error().message;
    };
    EXPECT_NE(message(get(io, *here.access, &word, kAll - 4, 8)).find("not in global memory"),
              std::string::npos);
    EXPECT_NE(message(await(io, *here.access,
                            [&](Outstanding& o) {
                              return here.access->atomic(io, o, AtomicOp::swap, Width::eight, 12, 0, 0,
                                                         nullptr);
                            }))
                  .find("multiple of 8"),
              std::string::npos);
    EXPECT_NE(message(await(io, *here.access,
                            [&](Outstanding& o) {
                              return here.access->accumulate(io, o, Element::int64, 1.0, 4,
                                                             reinterpret_cast<std::byte*>(&word),
                                                             Cursor(Strides{.dimensions = 1, .count = {8}}));
                            }))
                  .find("multiples of 8"),
              std::string::npos);
    // A complex number across the border of two pages.
    const std::array<double, 4> z{};
    EXPECT_NE(message(await(io, *here.access,
                            [&](Outstanding& o) {
                              return here.access->accumulate(io, o, Element::complex128, 1.0, kPage - 8,
                                                             reinterpret_cast<const std::byte*>(z.data()),
                                                             Cursor(Strides{.dimensions = 1, .count = {32}}));
                            }))
                  .find("border of two pages"),
              std::string::npos);
  });
}

TEST(Wild, WhatIsNotAllocatedIsNamedAndTheRestArrives) {
  Job job(2, 3);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    ASSERT_TRUE(here.mover->assign(io, PageId{1}, Rank{1}).has_value());
    std::vector<std::byte> two(2 * kPage, std::byte{1});
    const auto put_both = put(io, *here.access, kPage, two.data(), two.size());
    ASSERT_FALSE(put_both.has_value());
    EXPECT_NE(put_both.error().message.find("0x20000 is not allocated"), std::string::npos)
        << put_both.error().message;
    EXPECT_FALSE(get(io, *here.access, two.data(), kPage, two.size()).has_value());
    EXPECT_FALSE(await(io, *here.access, [&](Outstanding& o) {
                   return here.access->copy(io, o, kPage, 3 * kPage, 8);
                 }).has_value());
    EXPECT_FALSE(await(io, *here.access, [&](Outstanding& o) {
                   return here.access->copy(io, o, 3 * kPage, kPage, 8);
                 }).has_value());
    ASSERT_TRUE(here.mover->bring(io, PageId{1}, {kPage, 2 * kPage}).has_value());  // no use was left behind
    EXPECT_EQ(here.frames[kPage], std::byte{1});
  });
}

// ---- round trips -----------------------------------------------------------------------------------------

// Rank 0 of three uses pages 2 and 5 (at rank 2, managed by it) and 4 (at rank 1).
TEST(AccessTrips, OneAPageWhereItIsKnown) {
  Job job(3, 1);
  assign_all(job, 3);
  job.on(0, [](SimRank& here, comm::Blocking& io) {
    std::uint64_t word = 7, old = 0;
    here.transport.trips();
    const auto atomic = [&] {
      ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
        return here.access->atomic(io, o, AtomicOp::fetch_add, Width::eight, 2 * kPage, 1, 0, &old);
      }));
    };
    atomic();
    EXPECT_EQ(here.transport.trips(), 3u);  // the bit and word 0, then the atomic
    atomic();
    EXPECT_EQ(here.transport.trips(), 1u);
    ASSERT_OK(put(io, *here.access, 2 * kPage, &word, 8));
    EXPECT_EQ(here.transport.trips(), 1u);
    ASSERT_OK(get(io, *here.access, &old, 2 * kPage, 8));
    EXPECT_EQ(here.transport.trips(), 1u);
    std::vector<std::byte> many(2 * kPage);
    ASSERT_OK(get(io, *here.access, many.data(), kPage + 100, kPage));  // pages 1 (not known yet) and 2
    EXPECT_EQ(here.transport.trips(), 4u);
    ASSERT_OK(get(io, *here.access, many.data(), kPage + 100, kPage));
    EXPECT_EQ(here.transport.trips(), 2u);
    here.transport.requests = 0;
    // rank 1 is asked, and writes to rank 2
    ASSERT_OK(await(io, *here.access,
                    [&](Outstanding& o) { return here.access->copy(io, o, kPage, 2 * kPage, 64); }));
    EXPECT_EQ(here.transport.trips(), 0u);
    EXPECT_EQ(here.transport.requests, 1u);
  });
}

// A range over many pages that are not known is two round trips long, not three a page.
TEST(AccessTrips, AreUnderWayTogether) {
  for (const bool writes : {false, true}) {
    comm::sim::SimOptions never_full;
    never_full.again_permille = 0;
    never_full.operation_capacity = 1000;
    Job job(3, 1, never_full);
    assign_all(job, 3);
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      std::vector<std::byte> bytes(kAll - 100);
      here.transport.trips();
      here.waiter.waits = 0;
      ASSERT_OK(writes ? put(io, *here.access, 50, bytes.data(), bytes.size())
                       : get(io, *here.access, bytes.data(), 50, bytes.size()));
      // Every third page is its own and near. A write asks for those, too: its own directory words cost no
      // trip.
      constexpr std::uint64_t foreign = kPages - (kPages + 2) / 3;
      EXPECT_EQ(here.transport.trips(), foreign * 3);
      EXPECT_LE(here.waiter.waits, 2u);
      here.waiter.waits = 0;
      ASSERT_OK(get(io, *here.access, bytes.data(), 50, bytes.size()));
      EXPECT_EQ(here.transport.trips(), foreign);
      EXPECT_EQ(here.waiter.waits, 1u);
    });
  }
}

// ---- a page that leaves during a read --------------------------------------------------------------------

// Rank 0 reads page 2 by every form while rank 1 takes it from rank 2, which then overwrites its old frame,
// as one that is punched would read as zeros: each read finds only what the page held.
TEST(LeavingUnderARead, NobodyFindsWhatCameIntoTheOldFrame) {
  // what is read lies there; each move of it is many steps of the simulator
  constexpr std::uint64_t kAt = 2 * kPage, kLive = 4096;
  std::uint64_t again = 0;
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(100); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Job job(3, seed);
    assign_all(job, 3);
    const auto expected = pattern(kLive, seed);
    job.on(2, [&](SimRank& here, comm::Blocking&) {
      std::copy(expected.begin(), expected.end(), here.frames.begin() + kAt);
    });
    if (seed % 2 == 0) {  // else the location is not known to rank 0
      job.on(0, [&](SimRank& here, comm::Blocking& io) {
        std::byte byte;
        ASSERT_OK(get(io, *here.access, &byte, kAt, 1));
      });
    }
    job.world.spawn(Rank{0}, [&] {
      SimRank& here = job[0];
      auto io = here.io();
      for (int i = 0; i < 4; ++i) {
        std::vector<std::byte> whole(500), rows(100), copied(200);
        Outstanding o;
        ASSERT_OK(here.access->read(io, o, kAt + 100, whole.data(), whole.size()));
        const Strides shape{.dimensions = 2, .count = {10, 10}, .remote_stride = {300}, .local_stride = {10}};
        ASSERT_OK(here.access->read(io, o, kAt, rows.data(), Cursor(shape)));
        ASSERT_OK(here.access->copy(io, o, kAt + 1000, 0, copied.size()));
        await(io, io, *here.access, o);
        EXPECT_FALSE(o.failed());
        EXPECT_TRUE(std::equal(whole.begin(), whole.end(), expected.begin() + 100));
        for (std::size_t row = 0; row < 10; ++row)
          EXPECT_EQ(std::memcmp(&rows[row * 10], &expected[row * 300], 10), 0);
        EXPECT_EQ(std::memcmp(here.frames.data(), &expected[1000], copied.size()), 0);
      }
    });
    job.world.spawn(Rank{1}, [&] {
      SimRank& here = job[1];
      auto io = here.io();
      for (std::uint32_t n = job.world.random(40); n != 0; --n) job.world.yield_point();
      ASSERT_TRUE(here.mover->bring(io, PageId{2}, {kAt, kAt + kLive}).has_value());
      std::fill_n(job[2].frames.begin() + kAt, kLive, std::byte{0xEE});
    });
    job.run();
    again += job[0].counters.reads_again.load();
  }
  EXPECT_GT(again, fewer_if_sanitized(100));  // of 1200
}

// ---- everything at once ----------------------------------------------------------------------------------

/// Each thread owns a slice that crosses page borders, changes it by random forms, and compares it with its
/// oracle. All add to shared words and numbers, and move pages.
struct Mix {
  static constexpr std::uint64_t kShared = kAll - 4096;  // 32 words, then 32 numbers
  static constexpr std::uint32_t kThreads = 5;
  static constexpr std::uint64_t kSlice = kShared / kThreads;

  Mix(std::uint32_t ranks_, std::uint64_t seed_) : ranks(ranks_), seed(seed_), job(ranks_, seed_) {
    assign_all(job, ranks_);
  }

  void thread(std::uint32_t t, int rounds) {
    SimRank& here = job[t % ranks];
    auto io = here.io();
    std::mt19937_64 random(seed * 1000 + t);
    const std::uint64_t base = t * kSlice;
    std::vector<std::byte> oracle(kSlice);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    ASSERT_OK(put(io, *here.access, base, oracle.data(), kSlice));
    for (int i = 0; i < rounds; ++i) {
      const std::uint64_t at = below(kSlice - 4096), n = 1 + below(below(8) == 0 ? 4096 : 64);
      switch (below(8)) {
        case 0: {  // three puts at once, whose sources are used again before they have completed
          Outstanding o;
          const std::uint64_t apart = kSlice / 3;
          for (std::uint64_t k = 0; k < 3; ++k) {
            auto bytes = pattern(n, random());
            const std::uint64_t to = k * apart + at % (apart - n);
            std::copy(bytes.begin(), bytes.end(), oracle.begin() + static_cast<long>(to));
            ASSERT_OK(here.access->write(io, o, base + to, bytes.data(), n, Source::copied));
          }
          io.waiter().until([&] { return o.done(); });
          break;
        }
        case 1: {  // a patch
          const std::uint64_t rows = 1 + below(40), row = 1 + below(24), stride = row + below(40);
          const auto bytes = pattern(rows * row, random());
          for (std::uint64_t r = 0; r < rows; ++r)
            std::copy_n(&bytes[r * row], row, &oracle[at + r * stride]);
          const Strides shape{
              .dimensions = 2, .count = {row, rows}, .remote_stride = {stride}, .local_stride = {row}};
          ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
            return here.access->write(io, o, base + at, bytes.data(), Cursor(shape),
                                      below(2) == 0 ? Source::kept : Source::copied);
          }));
          break;
        }
        case 2: {  // from one half of the slice to the other
          const std::uint64_t from = at % (kSlice / 2 - n), to = kSlice / 2 + from;
          std::copy_n(&oracle[from], n, &oracle[to]);
          ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
            return here.access->copy(io, o, base + from, base + to, n);
          }));
          break;
        }
        case 3: {  // a word that all threads add to
          std::uint64_t old = 0;
          ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
            return here.access->atomic(io, o, AtomicOp::fetch_add, Width::eight, kShared + below(32) * 8, 1,
                                       0, below(2) == 0 ? nullptr : &old);
          }));
          ++added;
          break;
        }
        case 4: {
          const std::array<std::int64_t, 3> x{1, 2, 3};
          ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
            return here.access->accumulate(io, o, Element::int64, 2.0, kShared + 2048 + below(29) * 8,
                                           reinterpret_cast<const std::byte*>(x.data()),
                                           Cursor(Strides{.dimensions = 1, .count = {24}}),
                                           below(2) == 0 ? Source::kept : Source::copied);
          }));
          accumulated += 12;
          break;
        }
        case 5: {
          here.refusals += below(4) == 0 ? 1 : 0;
          const std::uint64_t page = below(kPages);
          ASSERT_OK(here.mover->bring(io, PageId{page}, {page * kPage, (page + 1) * kPage}));
          break;
        }
        case 6: {  // a patch back
          const Strides shape{.dimensions = 2, .count = {8, 32}, .remote_stride = {100}, .local_stride = {8}};
          std::array<std::byte, 256> got;
          ASSERT_OK(await(io, *here.access, [&](Outstanding& o) {
            return here.access->read(io, o, base + at, got.data(), Cursor(shape));
          }));
          for (std::uint64_t r = 0; r < 32; ++r)
            ASSERT_EQ(std::memcmp(&got[r * 8], &oracle[at + r * 100], 8), 0)
                << "thread " << t << " round " << i << " row " << r;
          break;
        }
        default: {
          std::vector<std::byte> got(n);
          ASSERT_OK(get(io, *here.access, got.data(), base + at, n));
          ASSERT_EQ(std::memcmp(got.data(), &oracle[at], n), 0) << "thread " << t << " round " << i;
        }
      }
    }
    std::vector<std::byte> got(kSlice);
    ASSERT_OK(get(io, *here.access, got.data(), base, kSlice));
    ASSERT_TRUE(got == oracle) << "thread " << t;
  }

  void run(int rounds) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (std::uint32_t t = 0; t < kThreads; ++t)
      job.world.spawn(Rank{t % ranks}, [this, t, rounds] { thread(t, rounds); });
    job.run();
    if (testing::Test::HasFatalFailure()) return;
    job.on(0, [&](SimRank& here, comm::Blocking& io) {
      std::array<std::uint64_t, 512> shared{};
      ASSERT_OK(get(io, *here.access, shared.data(), kShared, 4096));
      EXPECT_EQ(std::accumulate(shared.begin(), shared.begin() + 256, std::uint64_t{0}), added);
      EXPECT_EQ(std::accumulate(shared.begin() + 256, shared.end(), std::uint64_t{0}), accumulated);
    });
  }

  std::uint32_t ranks;
  std::uint64_t seed;
  Job job;
  std::uint64_t added = 0, accumulated = 0;
};

TEST(EveryForm, AgreesWithItsOracleWhilePagesMove) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(60) && !testing::Test::HasFailure(); ++seed)
    Mix(1 + seed % 4, seed).run(40);
}

}  // namespace
}  // namespace kasane::gas
