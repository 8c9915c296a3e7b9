// SPDX-License-Identifier: Apache-2.0
// Sweeps over another rank's memory, upwards, downwards and with strides: few faults, and nothing comes that is not used. What is
// touched at random brings next to nothing.
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

constexpr std::uint64_t kBlocks = 512, kMost = dsm::Sweeps::kMost;

/// Each stride-th block, upwards from the first or downwards from the last.
struct Pattern {
  std::int64_t stride;
  std::vector<std::uint64_t> blocks;

  explicit Pattern(std::int64_t every) : stride(every) {
    constexpr std::int64_t kEnd = kBlocks;
    for (std::int64_t b = stride > 0 ? 0 : kEnd - 1; b >= 0 && b < kEnd; b += stride) blocks.push_back(static_cast<std::uint64_t>(b));
  }
  /// A fault takes one block, then (with a stride, the third time) two, four, … up to 16 of its page, and of its window if it is a run;
  /// if nothing is new about the sweep, as many at once.
  [[nodiscard]] std::uint64_t faults(std::uint64_t page_bytes, bool known) const {
    const std::uint64_t page = page_bytes / mem::kBlockBytes, together = std::abs(stride) == 1 ? std::min(page, dsm::kWindowBlocks) : page;
    std::uint64_t faults = 0, take = known ? kMost : 1;
    for (std::size_t i = 0; i < blocks.size(); ++faults) {
      if (!known && faults != 0 && (faults > 1 || std::abs(stride) == 1)) take = std::min(2 * take, kMost);
      const std::size_t first = i;
      while (i < blocks.size() && i - first < take && blocks[i] / together == blocks[first] / together) ++i;
    }
    return faults;
  }
};

constexpr std::int64_t kStrides[] = {1, -1, 2, 3, -3, 5, -5, 20, -40};

class Sweeps : public test::OnRanksAndPages {};
INSTANTIATE_TEST_SUITE_P(Pages, Sweeps, testing::Combine(testing::Values(2), testing::Values(4096, mem::kPageBytes, 2 << 20)),
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

/// Rank 1 works on rank 0's blocks, of which each holds its number; nothing else goes on. body(memory, what an epoch costs, where they are).
template <class Body>
void on_blocks_of_another(test::RanksAndPages parameter, std::uint64_t blocks, const Body& body) {
  test::on_ranks(parameter, [&](RankMemory& m) {
    const std::uint64_t at = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(blocks * mem::kBlockBytes) : 0);
    if (raw(m.rank()) == 0) {
      for (std::uint64_t b = 0; b < blocks; ++b) *m.at<std::uint64_t>(at + b * mem::kBlockBytes) = b;
    }
    m.coherence->set_write_buffer(0);   // twins stay until they are counted
    m.collectives.barrier();
    if (raw(m.rank()) == 1) {
      const auto epoch = [&](const auto& work) {
        m.coherence->acquire_all(m.context());
        const Counts before = counts(m);
        work();
        const Counts after = counts(m);
        return Counts{after.loads - before.loads, after.stores - before.stores, after.fetched - before.fetched, after.with_twins - before.with_twins};
      };
      body(m, epoch, at);
    }
    m.collectives.barrier();
  });
}

TEST_P(Sweeps, LoadsTakeFewFaultsAndFetchWhatIsUsed) {
  for (const std::int64_t stride : kStrides) {
    const Pattern p(stride);
    on_blocks_of_another(GetParam(), kBlocks, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
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
    on_blocks_of_another(GetParam(), kBlocks, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Counts cost = epoch([&] {
          for (const std::uint64_t b : p.blocks) block(b)[1] = b + i;
        });
        EXPECT_EQ(cost.stores, p.faults(m.page_bytes, i != 0)) << stride << ", epoch " << i;
        EXPECT_EQ(cost.with_twins, p.blocks.size()) << stride << ", epoch " << i;
        m.coherence->release_all(m.context());
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

// Two arrays are read and a third is written, one of them downwards.
TEST_P(Sweeps, OfAMergeGoOnBesideEachOther) {
  constexpr std::uint64_t kLength = 64, kThird = 2 * kLength + kMost;   // not beside the second: where one of them begins is no other's next
  on_blocks_of_another(GetParam(), kThird + kLength, [&](RankMemory& m, const auto& epoch, std::uint64_t at) {
      const auto block = [&](std::uint64_t b) { return m.at<std::uint64_t>(at + b * mem::kBlockBytes); };
    const bool pages_have_windows = m.page_bytes >= mem::kPageBytes;
    const Counts cost = epoch([&] {
      for (std::uint64_t i = 0; i < kLength; ++i) {
        ASSERT_EQ(*block(i), i);
        ASSERT_EQ(*block(2 * kLength - 1 - i), 2 * kLength - 1 - i);
        block(kThird + i)[1] = i;
      }
    });
    EXPECT_EQ(cost.loads + cost.stores, pages_have_windows ? 3 * (kLength / kMost + 4) : 3 * kLength);
    EXPECT_EQ(cost.fetched, 3 * kLength);
    EXPECT_EQ(cost.with_twins, kLength);
  });
}

}  // namespace
}  // namespace kasane
