// SPDX-License-Identifier: Apache-2.0
// Notices name blocks: what no rank has changed of a page stays where it is cached, whichever rank changes
// the rest, and is not fetched again.
//
// A round: every rank reads each block of the page; some rank changes one byte; an edge from it to all
// others; every rank reads again. Quiet rounds come before, in which nobody changes anything, so that the
// owner has found out to which blocks it does not store (docs/design/dsm.md, "The owner's stores").
#include <gtest/gtest.h>

#include <vector>

#include "gas/direct_access.h"
#include "gas/page_parts.h"
#include "multi/dsm/on_ranks.h"

namespace kasane {
namespace {

using test::RankMemory;

class Notices : public test::OnRanksAndPages {};
KASANE_ON_RANKS_AND_PAGES(Notices);

/// A page of rank 0 that all ranks read.
class Watched {
 public:
  explicit Watched(RankMemory& m)
      : m_(m), at_(m.broadcast(Rank{0}, raw(m.rank()) == 0 ? m.allocate(m.page_bytes) : 0)) {
    if (raw(m_.rank()) == 0) {
      for (std::uint64_t b = 0; b < blocks(); ++b) *block(b) = 0;
    }
    values_.assign(blocks(), 0);
  }

  [[nodiscard]] std::uint64_t blocks() const { return m_.page_bytes / mem::kBlockBytes; }
  [[nodiscard]] std::uint64_t* block(std::uint64_t b) const {
    return m_.at<std::uint64_t>(at_ + b * mem::kBlockBytes);
  }
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t b) const { return at_ + b * mem::kBlockBytes; }
  /// Blocks of the part in which b lies: what a notice of b is about.
  [[nodiscard]] std::uint64_t blocks_of_part(std::uint64_t b) const {
    const mem::BlockRange all{mem::block_of(at_), blocks()};
    std::uint64_t n = 0;
    for (std::uint64_t i = 0; i < blocks(); ++i)
      n += gas::part_of(all, BlockId{raw(all.first) + i}) == gas::part_of(all, BlockId{raw(all.first) + b});
    return n;
  }

  /// Every rank changes what it has to, all cross all others, every rank reads all. Returns how many blocks
  /// this rank has fetched for that.
  template <class Change>
  std::uint64_t round(const Change& change) {
    m_.collectives.barrier();
    change();
    m_.collectives.barrier();
    for (std::uint32_t r = 0; r < m_.transport->ranks(); ++r) {
      if (Rank{r} != m_.rank()) m_.cross(Rank{r});
    }
    m_.collectives.barrier();
    const std::uint64_t before = m_.context().counters.blocks_fetched.load();
    for (std::uint64_t b = 0; b < blocks(); ++b) EXPECT_EQ(*block(b), values_[b]) << "block " << b;
    return m_.context().counters.blocks_fetched.load() - before;
  }
  void quiet_rounds() {
    for (int i = 0; i < 5; ++i) round([] {});
    EXPECT_EQ(round([] {}), 0u);
  }
  /// By every rank: one of them changes block b next.
  std::uint64_t next_value(std::uint64_t b) { return ++values_[b]; }

 private:
  RankMemory& m_;
  const std::uint64_t at_;
  std::vector<std::uint64_t> values_;
};

template <class Body>
void on_watched_pages(test::RanksAndPages parameter, const Body& body) {
  if (!RankMemory::classification_under_test()) GTEST_SKIP() << "nobody is told of anything";
  test::on_ranks(parameter, [&](RankMemory& m) {
    Watched page(m);
    page.quiet_rounds();
    body(m, page, raw(m.rank()), m.transport->ranks());
  });
}

TEST_P(Notices, WhatTheOwnerStoresToIsFetchedAgainAndNothingElse) {
  on_watched_pages(GetParam(), [](RankMemory&, Watched& page, std::uint32_t me, std::uint32_t) {
    for (std::uint64_t b = 0; b < page.blocks(); b += page.blocks() / 4 + 1) {
      const std::uint64_t value = page.next_value(b);
      const std::uint64_t fetched = page.round([&] {
        if (me == 0) *page.block(b) = value;
      });
      EXPECT_EQ(fetched, me == 0 ? 0 : page.blocks_of_part(b)) << "block " << b;
      page.quiet_rounds();
    }
  });
}

TEST_P(Notices, WhatAThirdRankChangesIsFetchedAgainAndNothingElse) {
  on_watched_pages(GetParam(), [](RankMemory&, Watched& page, std::uint32_t me, std::uint32_t ranks) {
    for (std::uint64_t b = 0; b < page.blocks(); b += page.blocks() / 4 + 1) {
      const std::uint64_t value = page.next_value(b);
      const std::uint64_t fetched = page.round([&] {
        if (me == ranks - 1) *page.block(b) = value;
      });
      EXPECT_EQ(fetched, me == 0 || me == ranks - 1 ? 0 : page.blocks_of_part(b)) << "block " << b;
    }
  });
}

TEST_P(Notices, WhatTheOwnerAndAThirdRankChangeIsFetchedAgainAndNothingElse) {
  on_watched_pages(GetParam(), [](RankMemory&, Watched& page, std::uint32_t me, std::uint32_t ranks) {
    if (page.blocks() == 1 || ranks == 1) return;
    const std::uint64_t stored = 0, put = page.blocks() - 1, by_owner = page.next_value(stored),
                        by_other = page.next_value(put);
    const std::uint64_t fetched = page.round([&] {
      if (me == 0) *page.block(stored) = by_owner;
      if (me == ranks - 1) *page.block(put) = by_other;
    });
    EXPECT_EQ(fetched, (me == 0 ? 0 : page.blocks_of_part(stored)) +
                           (me == 0 || me == ranks - 1 ? 0 : page.blocks_of_part(put)));
  });
}

TEST_P(Notices, WhatIsPutDirectlyIsFetchedAgainAndNothingElse) {
  on_watched_pages(GetParam(), [](RankMemory& m, Watched& page, std::uint32_t me, std::uint32_t ranks) {
    for (std::uint64_t b = 0; b < page.blocks(); b += page.blocks() / 4 + 1) {
      const std::uint64_t value = page.next_value(b);
      const std::uint64_t fetched = page.round([&] {
        if (me != ranks - 1) return;
        EXPECT_TRUE(gas::put(m.context().io, *m.access, page.offset_of(b), &value, sizeof value));
      });
      EXPECT_EQ(fetched, me == 0 ? 0 : page.blocks_of_part(b)) << "block " << b;
    }
  });
}

// A page that two ranks write in different blocks, each its own: neither fetches again what it alone writes.
TEST_P(Notices, WritersOfDifferentBlocksKeepTheirOwn) {
  on_watched_pages(GetParam(), [](RankMemory&, Watched& page, std::uint32_t me, std::uint32_t ranks) {
    if (page.blocks() != 16 || ranks == 1) return;  // a part a block, and a block a rank
    for (int epoch = 0; epoch < 6; ++epoch) {
      std::vector<std::uint64_t> values(ranks);
      for (std::uint32_t r = 0; r < ranks; ++r) values[r] = page.next_value(r);
      const std::uint64_t fetched = page.round([&] { *page.block(me) = values[me]; });
      // one that a fault made writable beside its own in each epoch stays open, and is merged instead
      EXPECT_LE(fetched, me == 0 ? 0 : ranks - 1);
      if (epoch == 0) {
        EXPECT_EQ(fetched, me == 0 ? 0 : ranks - 1);
      }
    }
  });
}

}  // namespace
}  // namespace kasane
