// SPDX-License-Identifier: Apache-2.0
// Sweeps over another rank's memory, upwards, downwards and with strides: few faults, and nothing comes that
// is not used. What is touched at random brings next to nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "multi/dsm/on_ranks.h"

namespace kasane {
namespace {

using test::RankMemory;

constexpr std::uint64_t kSwept = 512, kMost = dsm::Sweeps::kMost;

/// Each stride-th block, upwards from the first or downwards from the last.
struct Pattern {
  std::int64_t stride;
  std::vector<std::uint64_t> blocks;

  explicit Pattern(std::int64_t every) : stride(every) {
    constexpr std::int64_t kEnd = kSwept;
    for (std::int64_t b = stride > 0 ? 0 : kEnd - 1; b >= 0 && b < kEnd; b += stride)
      blocks.push_back(static_cast<std::uint64_t>(b));
  }
  /// A fault takes one block, then (with a stride, the third time) two, four, … up to 16, of a run as far as
  /// they lie in its window; from the third fault on also of other pages. If nothing is new about the sweep,
  /// as many at once.
  [[nodiscard]] std::uint64_t faults(std::uint64_t page_bytes, bool known) const {
    const std::uint64_t page = page_bytes / mem::kBlockBytes;
    const bool runs = std::abs(stride) == 1;
    std::uint64_t faults = 0, take = known ? kMost : 1;
    for (std::size_t i = 0; i < blocks.size(); ++faults) {
      if (!known && faults != 0 && (faults > 1 || runs)) take = std::min(2 * take, kMost);
      const bool leaves = known || faults > 1;
      const std::size_t first = i;
      const auto alike = [&](std::uint64_t together) {
        return blocks[i] / together == blocks[first] / together;
      };
      while (i < blocks.size() && i - first < take && (!runs || alike(dsm::kWindowBlocks)) &&
             (leaves || alike(page)))
        ++i;
    }
    return faults;
  }
};

constexpr std::int64_t kStrides[] = {1, -1, 2, 3, -3, 5, -5, 20, -30};

class Sweeps : public test::OnRanksAndPages {};
INSTANTIATE_TEST_SUITE_P(Pages, Sweeps,
                         testing::Combine(testing::Values(2),
                                          testing::Values(4096, mem::kPageBytes, 2 << 20)),
                         [](const auto& of) { return std::to_string(std::get<1>(of.param) / 1024) + "KiB"; });

struct Counts {
  std::uint64_t loads, stores, fetched, with_twins;
};
Counts counts(RankMemory& m) {
  std::uint64_t twins = 0;
  m.dirty->for_each([&](BlockId) { ++twins; });
  const Counters& c = m.context().counters;
  return {c.faults_read.load(), c.faults_write.load(), c.blocks_fetched.load(), twins};
}

/// Rank 1 works on rank 0's blocks, of which each holds its number; nothing else goes on. body(memory, what
/// an epoch costs, where they are).
template <class Body>
void on_blocks_of_another(test::RanksAndPages parameter, std::uint64_t blocks, const Body& body) {
  test::on_ranks(parameter, [&](RankMemory& m) {
    const std::uint64_t at =
        m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(blocks * mem::kBlockBytes) : 0);
    if (raw(m.rank()) == 0) {
      for (std::uint64_t b = 0; b < blocks; ++b) *m.at<std::uint64_t>(at + b * mem::kBlockBytes) = b;
    }
    m.collectives.barrier();
    if (raw(m.rank()) == 1) {
      const auto epoch = [&](const auto& work) {
        m.coherence->fences.acquire_all(m.context());
        const Counts before = counts(m);
        work();
        const Counts after = counts(m);
        return Counts{after.loads - before.loads, after.stores - before.stores,
                      after.fetched - before.fetched, after.with_twins - before.with_twins};
      };
      body(m, epoch, at);
    }
    m.collectives.barrier();
  });
}

TEST_P(Sweeps, LoadsTakeFewFaultsAndFetchWhatIsUsed) {
  for (const std::int64_t stride : kStrides) {
    const Pattern p(stride);
    on_blocks_of_another(GetParam(), kSwept, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
      for (int i = 0; i < 3; ++i) {
        const Counts cost = epoch([&] {
          for (const std::uint64_t b : p.blocks) ASSERT_EQ(*block(b), b);
        });
        EXPECT_EQ(cost.loads, p.faults(m.page_bytes, i != 0)) << stride << ", epoch " << i;
        EXPECT_EQ(cost.fetched, p.blocks.size()) << stride << ", epoch " << i;
      }
    });
  }
}

TEST_P(Sweeps, StoresTakeFewFaultsAndTwinsOfWhatIsChanged) {
  for (const std::int64_t stride : kStrides) {
    const Pattern p(stride);
    on_blocks_of_another(GetParam(), kSwept, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Counts cost = epoch([&] {
          for (const std::uint64_t b : p.blocks) block(b)[1] = b + i;
        });
        EXPECT_EQ(cost.stores, p.faults(m.page_bytes, i != 0)) << stride << ", epoch " << i;
        EXPECT_EQ(cost.with_twins, p.blocks.size()) << stride << ", epoch " << i;
        m.coherence->fences.release_all(m.context());
        const auto* owners = m.transport->mapped(Rank{0}, gas::kFrames);
        for (const std::uint64_t b : p.blocks) {
          std::uint64_t words[2];
          std::memcpy(words, owners + at + b * mem::kBlockBytes, sizeof words);
          ASSERT_EQ(words[0], b) << stride;
          ASSERT_EQ(words[1], b + i) << stride;
        }
      }
    });
  }
}

// Where it ends in the midst of the other rank's memory, the fault that was its last has brought up to 15
// blocks too many.
TEST_P(Sweeps, BringLittleBeyondTheirEnd) {
  constexpr std::uint64_t kApart = 300;  // blocks: more than any stride that is recognised
  for (const std::int64_t stride : {1, -1, 2, -3, 5}) {
    on_blocks_of_another(GetParam(), 10 * kApart, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      for (int i = 0; i < 2; ++i) {
        std::uint64_t first = stride > 0 ? kApart / 2 : 9 * kApart;
        for (const std::uint64_t length : {1, 2, 3, 4, 5, 8, 9, 30}) {
          const Counts cost = epoch([&] {
            for (std::uint64_t k = 0; k < length; ++k) {
              const std::uint64_t block = first + k * static_cast<std::uint64_t>(stride);
              static_cast<void>(*m.at<volatile std::uint64_t>(at + block * mem::kBlockBytes));
            }
          });
          EXPECT_GE(cost.fetched, length);
          EXPECT_LT(cost.fetched, length + kMost) << length << " with stride " << stride << ", epoch " << i;
          first += stride > 0 ? kApart : -kApart;
        }
      }
    });
  }
}

// Behind an array, in the direction of its sweep, lie pages of the rank that sweeps: nothing of them is
// fetched, and they keep what they hold.
TEST_P(Sweeps, EndWhereTheOwnPagesBegin) {
  for (const std::int64_t stride : kStrides) {
    const Pattern p(stride);
    on_blocks_of_another(GetParam(), 3 * kSwept, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
      for (const PageId page : m.pages().in(at + kSwept * mem::kBlockBytes, kSwept * mem::kBlockBytes)) {
        ASSERT_TRUE(m.mover->bring(m.context().io, page, {m.pages().offset_of(page), m.pages().end_of(page)})
                        .has_value());
      }
      const std::uint64_t first = stride > 0 ? 0 : 2 * kSwept;
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Counts loaded = epoch([&] {
          for (const std::uint64_t b : p.blocks) ASSERT_EQ(*block(first + b), first + b);
        });
        EXPECT_EQ(loaded.loads, p.faults(m.page_bytes, i != 0)) << stride << ", epoch " << i;
        EXPECT_EQ(loaded.fetched, p.blocks.size()) << stride << ", epoch " << i;
        const Counts stored = epoch([&] {
          for (const std::uint64_t b : p.blocks) block(first + b)[1] = i;
        });
        EXPECT_EQ(stored.with_twins, p.blocks.size()) << stride << ", epoch " << i;
        for (std::uint64_t b = kSwept; b < 2 * kSwept; ++b) ASSERT_EQ(*block(b), b);
        m.coherence->fences.release_all(m.context());
      }
    });
  }
}

// Behind what its owner has allocated nothing is to be had.
TEST_P(Sweeps, EndWithTheMemory) {
  for (const std::int64_t stride : kStrides) {
    if (stride < 0) continue;
    const Pattern p(stride);
    on_blocks_of_another(GetParam(), kSwept, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto is_allocated = [&](std::uint64_t offset) {
        return m.directory->lookup(m.context().io, m.pages().page_of(offset)).allocated;
      };
      std::uint64_t end = at;
      while (is_allocated(end)) end += m.page_bytes;
      ASSERT_LT(end + m.page_bytes, RankMemory::kSpaceBytes);
      const std::uint64_t first = end - kSwept * mem::kBlockBytes;
      for (std::uint64_t i = 0; i < 2; ++i) {
        const Counts cost = epoch([&] {
          for (const std::uint64_t b : p.blocks)
            static_cast<void>(*m.at<volatile std::uint64_t>(first + b * mem::kBlockBytes));
        });
        EXPECT_EQ(cost.loads, p.faults(m.page_bytes, i != 0)) << stride << ", epoch " << i;
        EXPECT_EQ(cost.fetched, p.blocks.size()) << stride << ", epoch " << i;
      }
    });
  }
}

TEST_P(Sweeps, WhatIsTouchedAtRandomBringsNextToNothing) {
  constexpr std::uint64_t kMany = 4096, kTouched = 400;
  std::vector<std::uint64_t> order(kMany);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  order.resize(kTouched);
  on_blocks_of_another(GetParam(), kMany, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
    const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
    for (int i = 0; i < 3; ++i) {
      const Counts cost = epoch([&] {
        for (const std::uint64_t b : order) ASSERT_EQ(*block(b), b);
      });
      EXPECT_LE(cost.loads, kTouched);
      EXPECT_LE(cost.fetched, kTouched + kTouched / 50) << "epoch " << i;
    }
  });
}

// More sweeps in turn than a thread keeps, as of a radix sort: what was stored to just below shows each of
// them again, in its page.
TEST_P(Sweeps, OfStoresAreKnownByTheBlocksBelow) {
  constexpr std::uint64_t kStreams = 12, kApart = 17 * dsm::kWindowBlocks, kLength = kMost - 1;
  static_assert(kApart > dsm::Sweeps::kMostStride);
  on_blocks_of_another(
      GetParam(), kStreams * kApart, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
        for (std::uint64_t i = 0; i < 2; ++i) {
          const Counts cost = epoch([&] {
            for (std::uint64_t k = 0; k < kLength; ++k) {
              for (std::uint64_t s = 0; s < kStreams; ++s)
                m.at<std::uint64_t>(at + (s * kApart + k) * mem::kBlockBytes)[1] = k + i;
            }
          });
          // of a stream 1, 2, 4 and 8 blocks
          EXPECT_EQ(cost.stores, kStreams * (m.page_bytes > mem::kBlockBytes ? 4 : kLength)) << i;
          EXPECT_EQ(cost.with_twins, kStreams * kLength) << i;
          m.coherence->fences.release_all(m.context());
          const auto* owners = m.transport->mapped(Rank{0}, gas::kFrames);
          for (std::uint64_t b = 0; b < kStreams * kApart; ++b) {
            std::uint64_t words[2];
            std::memcpy(words, owners + at + b * mem::kBlockBytes, sizeof words);
            ASSERT_EQ(words[0], b);
            if (b % kApart < kLength) {
              ASSERT_EQ(words[1], b % kApart + i);
            }
          }
        }
      });
}

TEST_P(Sweeps, WhatIsStoredToAtRandomBringsLittle) {
  constexpr std::uint64_t kMany = 4096, kStored = 400;
  std::vector<std::uint64_t> order(kMany);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  order.resize(kStored);
  on_blocks_of_another(GetParam(), kMany, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
    for (std::uint64_t i = 0; i < 2; ++i) {
      const Counts cost = epoch([&] {
        for (const std::uint64_t b : order) m.at<std::uint64_t>(at + b * mem::kBlockBytes)[1] = i;
      });
      EXPECT_LE(cost.stores, kStored);
      EXPECT_LE(cost.with_twins, kStored + kStored / 8) << "epoch " << i;
      m.coherence->fences.release_all(m.context());
    }
  });
}

// Two arrays are read and a third is written, one of them downwards.
TEST_P(Sweeps, OfAMergeGoOnBesideEachOther) {
  constexpr std::uint64_t kLength = 64,
                          kThird =
                              2 * kLength +
                              kMost;  // not beside the second: where one of them begins is no other's next
  on_blocks_of_another(GetParam(), kThird + kLength, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
    const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
    const Counts cost = epoch([&] {
      for (std::uint64_t i = 0; i < kLength; ++i) {
        ASSERT_EQ(*block(i), i);
        ASSERT_EQ(*block(2 * kLength - 1 - i), 2 * kLength - 1 - i);
        block(kThird + i)[1] = i;
      }
    });
    EXPECT_EQ(cost.loads + cost.stores, 3 * (kLength / kMost + 4));
    EXPECT_EQ(cost.fetched, 3 * kLength);
    EXPECT_EQ(cost.with_twins, kLength);
  });
}

}  // namespace
}  // namespace kasane
