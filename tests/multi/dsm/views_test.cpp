// SPDX-License-Identifier: Apache-2.0
// Ranges that are made present at once (Coherence::pin), over shm with real faults.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "multi/dsm/on_ranks.h"

namespace kasane {
namespace {

using dsm::Use;
using test::on_ranks;
using test::RankMemory;

class ViewTest : public test::OnRanksAndPages {};
KASANE_ON_RANKS_AND_PAGES(ViewTest);

/// The range pinned for the life of it.
class View {
 public:
  View(RankMemory& m, std::uint64_t offset, std::size_t bytes, Use use)
      : m_(m), offset_(offset), bytes_(bytes) {
    KASANE_CHECK(!m.coherence->views.pin(m.context(), offset, bytes, use));
  }
  ~View() { m_.coherence->views.unpin(m_.context(), offset_, bytes_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

 private:
  RankMemory& m_;
  std::uint64_t offset_;
  std::size_t bytes_;
};

std::uint64_t faults(RankMemory& m) {
  return m.context().counters.faults_read.load() + m.context().counters.faults_write.load();
}

void cross_all(RankMemory& m) {
  m.collectives.barrier();
  for (std::uint32_t r = 0; r < m.transport->ranks(); ++r) m.cross(Rank{r});
  m.collectives.barrier();
}

// Odd bounds: the first and the last block are only partly in the view, and hold others' bytes.
TEST_P(ViewTest, ComesAtOnceWithoutFaultsAndGoesBack) {
  on_ranks(GetParam(), [](RankMemory& m) {
    constexpr std::uint64_t kWords = 100'000, kFirst = 333, kEnd = 99'001;
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kWords * 8) : 0);
    auto* words = m.at<std::uint64_t>(data);
    if (raw(m.rank()) == 0) std::iota(words, words + kWords, 0);
    cross_all(m);
    for (std::uint32_t round = 0; round < 2 * ranks; ++round) {
      const std::uint64_t before = 1'000'000 * round, after = 1'000'000 * (round + 1);
      const bool write_only = round % 2 == 0;
      if (raw(m.rank()) == (round + 1) % ranks) {
        const std::uint64_t n = faults(m), fetched = m.context().counters.blocks_fetched.load();
        {
          const View in(m, data + kFirst * 8, (kEnd - kFirst) * 8,
                        write_only ? Use::write_only : Use::read_write);
          for (std::uint64_t i = kFirst; i < kEnd; ++i) {
            if (!write_only) {
              ASSERT_EQ(words[i], i + before);
            }
            words[i] = i + after;
          }
        }
        EXPECT_EQ(faults(m), n);
        if (write_only) {  // those at the edges
          EXPECT_LE(m.context().counters.blocks_fetched.load(), fetched + 2);
        }
      }
      cross_all(m);
      {
        const std::uint64_t n = faults(m);
        const View all(m, data, kWords * 8, Use::read);
        for (std::uint64_t i = 0; i < kWords; ++i)
          ASSERT_EQ(words[i], i >= kFirst && i < kEnd ? i + after : i) << "round " << round;
        EXPECT_EQ(faults(m), n);
      }
      m.collectives.barrier();
    }
  });
}

// Workers of all ranks write intervals that meet anywhere, read what others wrote, and take pages to
// themselves, while other workers make fences.
TEST_P(ViewTest, IntervalsThatMeetInOneBlockLoseNothing) {
  if (std::get<1>(GetParam()) > mem::kPageBytes) GTEST_SKIP() << "as with pages of 64 KiB";
  on_ranks(GetParam(), [](RankMemory& m) {
    constexpr std::uint64_t kWords = 40'000, kIntervals = 32;
    const auto ranks = m.transport->ranks();
    const std::uint64_t data =
        m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kWords * 8, gas::Placement::block) : 0);
    auto* words = m.at<std::uint64_t>(data);
    {
      const View all(m, data, kWords * 8, Use::read);
    }
    m.collectives.barrier();
    if (raw(m.rank()) == 0) std::fill_n(words, kWords, 0);
    cross_all(m);
    std::mt19937 shared(7);  // the same at all ranks
    for (std::uint64_t round = 1; round <= 12; ++round) {
      std::vector<std::uint64_t> bounds{0, kWords};
      for (std::uint64_t i = 1; i < kIntervals; ++i) bounds.push_back(shared() % kWords);
      std::sort(bounds.begin(), bounds.end());
      std::vector<std::uint32_t> worker(kIntervals);
      for (auto& w : worker) w = shared() % (2 * ranks);
      const auto work = [&](std::uint32_t me) {
        std::mt19937 random(static_cast<unsigned>(round * 100 + me));
        for (std::uint64_t i = 0; i < kIntervals; ++i) {
          const std::uint64_t first = bounds[i], n = bounds[i + 1] - first;
          if (worker[i] != me || n == 0) continue;
          const unsigned what = random() % 4;
          if (what == 3) {
            const PageId page = m.pages().page_of(data + first * 8);
            static_cast<void>(
                m.mover->bring(m.context().io, page, {m.pages().offset_of(page), m.pages().end_of(page)}));
          }
          const View view(m, data + first * 8, n * 8, what == 0 ? Use::read_write : Use::write_only);
          for (std::uint64_t k = first; k < first + n; ++k) {
            if (what == 0) {
              ASSERT_EQ(words[k], round - 1);
            }
            words[k] = round;
          }
          if (what == 1) m.coherence->fences.release_all(m.context());
          if (what == 2) m.coherence->fences.acquire_noticed(m.context());
        }
      };
      std::thread second([&] {
        m.enter();
        work(raw(m.rank()) * 2 + 1);
      });
      work(raw(m.rank()) * 2);
      second.join();
      cross_all(m);
      for (std::uint64_t k = 0; k < kWords; ++k) ASSERT_EQ(words[k], round) << "word " << k;
      m.collectives.barrier();
    }
  });
}

TEST_P(ViewTest, OfWhatIsNotAllocatedPinsNothing) {
  on_ranks(GetParam(), [](RankMemory& m) {
    const std::uint64_t data = m.allocate(m.page_bytes);
    const std::uint64_t beyond = m.pages().end_of(m.pages().page_of(data));
    for (std::uint64_t page = beyond; page < beyond + m.page_bytes; page += m.page_bytes) {
      if (m.directory->lookup(m.context().io, m.pages().page_of(page)).allocated) return;
    }
    const auto wild = m.coherence->views.pin(m.context(), data, m.page_bytes + 4096, Use::read_write);
    ASSERT_TRUE(wild.has_value());
    EXPECT_EQ(mem::offset_of(*wild), beyond);
    for (std::uint64_t at = data; at < beyond + 4096; at += 4096)
      EXPECT_EQ(m.coherence->blocks.state(mem::block_of(at)).pins, 0u);
  });
}

// What a rank has written as a whole, and not released, is as new after an acquire as before: it is neither
// sent nor fetched again.
TEST_P(ViewTest, WholeBlocksOutliveAnAcquire) {
  if (std::get<0>(GetParam()) == 1 || !RankMemory::classification_under_test()) GTEST_SKIP();
  on_ranks(GetParam(), [](RankMemory& m) {
    constexpr std::uint64_t kBlocks = 16, kBytes = kBlocks * mem::kBlockBytes;
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kBytes) : 0);
    auto* bytes = m.at<unsigned char>(data);
    if (raw(m.rank()) == 0) std::memset(bytes, 1, kBytes);
    m.collectives.barrier();
    const auto& counters = m.context().counters;
    if (raw(m.rank()) == 1) {
      {
        const View view(m, data, kBytes, Use::write_only);
        std::memset(bytes, 2, kBytes);
      }
      m.cross(Rank{0});  // which tells: it cannot know that it has stored nothing
      EXPECT_GT(counters.notices_taken.load(), 0u);
      EXPECT_EQ(counters.bytes_put.load(), 0u);
      for (std::uint64_t i = 0; i < kBytes; i += 64) ASSERT_EQ(bytes[i], 2);
      EXPECT_EQ(counters.blocks_fetched.load(), 0u);
    }
    m.collectives.barrier();
    if (raw(m.rank()) == 0) {
      m.cross(Rank{1});
      for (std::uint64_t i = 0; i < kBytes; i += 64) ASSERT_EQ(bytes[i], 2);
      bytes[5] = 3;
    }
    m.collectives.barrier();
    if (raw(m.rank()) == 1) {  // its copies are copies by now, of whose changes it is told
      m.cross(Rank{0});
      EXPECT_EQ(bytes[5], 3);
    }
    m.collectives.barrier();
  });
}

TEST_P(ViewTest, DiscardedBytesAreNotSent) {
  on_ranks(GetParam(), [](RankMemory& m) {
    constexpr std::uint64_t kBytes = 4 * 4096;
    const auto ranks = m.transport->ranks();
    const std::uint64_t data = m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(kBytes) : 0);
    auto* bytes = m.at<char>(data);
    if (raw(m.rank()) == 0) std::fill_n(bytes, kBytes, 'a');
    cross_all(m);
    if (raw(m.rank()) == ranks - 1) {
      {
        const View view(m, data, kBytes / 2, Use::write_only);
        std::fill_n(bytes, kBytes / 2, 'b');
      }
      std::fill_n(bytes + kBytes / 2, kBytes / 2, 'b');
      m.coherence->moves.discard(m.context().io, data + 4096,
                                 2 * 4096 + 100);  // a whole one of each kind, and a part of one with a twin
    }
    cross_all(m);
    const bool own = raw(m.rank()) == 0 && ranks == 1;
    for (std::uint64_t i = 0; i < kBytes; ++i) {
      const bool discarded = i >= 4096 && i < 3 * 4096 + 100;
      if (raw(m.rank()) == 0 && !own) {
        ASSERT_EQ(bytes[i], discarded ? 'a' : 'b') << i;
      }
    }
    m.collectives.barrier();
  });
}

}  // namespace
}  // namespace kasane
