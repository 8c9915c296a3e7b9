// SPDX-License-Identifier: Apache-2.0
// A block to which several ranks store in each epoch costs no fault from some epoch on, and what each of them
// stores reaches the others.
#include <gtest/gtest.h>

#include "multi/dsm/on_ranks.h"

namespace kasane {
namespace {

using test::RankMemory;

class Rewritten : public test::OnRanksAndPages {};
KASANE_ON_RANKS_AND_PAGES(Rewritten);

/// As a barrier of the program does: one release and one acquire a rank.
void cross_each_other(RankMemory& m) {
  m.coherence->fences.release_all(m.context());
  m.collectives.barrier();
  m.coherence->fences.acquire_noticed(m.context());
  m.collectives.barrier();
}

std::uint64_t faults_so_far(RankMemory& m) {
  return m.context().counters.faults_write.load() + m.context().counters.faults_read.load();
}

TEST_P(Rewritten, WordsOfSeveralRanksInOneBlock) {
  test::on_ranks(GetParam(), [](RankMemory& m) {
    const std::uint32_t me = raw(m.rank()), ranks = m.transport->ranks();
    const std::uint64_t at = m.broadcast(Rank{0}, me == 0 ? m.allocate(m.page_bytes) : 0);
    auto* const words = m.at<std::uint32_t>(at);  // two of them are one word of a diff
    constexpr std::uint32_t kEpochs = 40;
    std::uint64_t before = 0;
    for (std::uint32_t epoch = 1; epoch <= kEpochs; ++epoch) {
      if (epoch == kEpochs / 2) before = faults_so_far(m);
      for (std::uint32_t w = me; w < mem::kBlockBytes / sizeof *words; w += ranks) words[w] = epoch * (w + 1);
      cross_each_other(m);
      for (std::uint32_t w = 0; w < mem::kBlockBytes / sizeof *words; ++w)
        ASSERT_EQ(words[w], epoch * (w + 1)) << "epoch " << epoch << " word " << w << " rank " << me;
      cross_each_other(m);
    }
    // without classification an acquire drops all that is cached
    if (me != 0 && RankMemory::classification_under_test()) {
      EXPECT_EQ(faults_so_far(m), before);
    }
    m.collectives.barrier();
  });
}

TEST_P(Rewritten, WhoStopsIsProtectedAgainAndTellsOfALaterStore) {
  test::on_ranks(GetParam(), [](RankMemory& m) {
    const std::uint32_t me = raw(m.rank()), ranks = m.transport->ranks();
    const std::uint64_t at = m.broadcast(Rank{0}, me == 0 ? m.allocate(m.page_bytes) : 0);
    auto* const word = m.at<std::uint64_t>(at);
    std::uint64_t value = 0;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 8; ++i) {
        ++value;
        if (me == ranks - 1) *word = value;
        cross_each_other(m);
        ASSERT_EQ(*word, value) << "rank " << me;
        cross_each_other(m);
      }
      for (int i = 0; i < 8; ++i) {
        cross_each_other(m);
        ASSERT_EQ(*word, value) << "rank " << me;
      }
      m.collectives.barrier();
      if (me != 0) {
        EXPECT_NE(m.coherence->blocks.state(mem::block_of(at)).access, mem::Access::write);
      }
    }
    m.collectives.barrier();
  });
}

}  // namespace
}  // namespace kasane
