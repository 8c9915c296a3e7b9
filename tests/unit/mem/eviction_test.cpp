// SPDX-License-Identifier: Apache-2.0
// Eviction policies: what each of them promises, and which pages they keep, on the traces of kasane bench
// eviction.
#include "mem/eviction_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "eviction_policies.h"
#include "page_traces.h"

namespace kasane::mem {
namespace {

using bench::PageTrace;

class PolicyTest : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Policies, PolicyTest, ::testing::ValuesIn(bench::eviction_policies()),
                         [](const auto& policy) {
                           std::string name(policy.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// Random answers.
struct RandomProbe final : PageProbe {
  explicit RandomProbe(std::uint64_t seed) : random(seed) {}
  void arm(PageId, std::uint32_t) noexcept override {}
  bool touched(PageId) noexcept override { return random.one_in(2); }
  Random random;
};

// Pages come, leave by themselves, are evicted, or cannot be: a page that is evicted was in, and every page
// that is in can be evicted.
TEST_P(PolicyTest, EvictsWhatIsIn) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    RandomProbe probe(seed);
    const auto most = static_cast<std::uint32_t>(1 + random.below(60));
    const auto policy = bench::make_eviction_policy(GetParam(), most, probe);
    std::set<PageId> in;
    const auto evict = [&] {
      const auto page = policy->evict();
      EXPECT_EQ(page.has_value(), !in.empty());
      EXPECT_TRUE(!page || in.erase(*page) == 1) << raw(*page) << " was not in";
      return page;
    };
    for (int step = 0; step < 3000 && !HasFailure(); ++step) {
      const PageId page{random.below(3 * most)};
      if (random.one_in(10)) {
        policy->leave(page);
        in.erase(page);
      } else if (random.one_in(8)) {
        if (const auto pinned = evict(); pinned && random.one_in(2))
          policy->keep(*pinned), in.insert(*pinned);
      } else if (!in.contains(page)) {
        if (in.size() == most) evict();
        policy->enter(page);
        in.insert(page);
      }
    }
    while (evict()) {
    }
    EXPECT_TRUE(in.empty());
  }
}

// Where all other pages are pinned, the few that can leave are named, however new and few they are.
TEST_P(PolicyTest, NamesEachPageWhereNothingElseCanGo) {
  struct Probe final : PageProbe {
    void arm(PageId, std::uint32_t) noexcept override {}
    bool touched(PageId) noexcept override { return all; }
    bool all = false;
  } probe;
  for (const bool touched : {false, true}) {
    probe.all = touched;
    for (const std::uint32_t n : {1u, 2u, 10u, 100u, 200u}) {
      SCOPED_TRACE(std::to_string(n) + (touched ? " pages, in use" : " pages, not in use"));
      const auto policy = bench::make_eviction_policy(GetParam(), n, probe);
      for (std::uint64_t page = 0; page + n / 20 + 1 < n; ++page) policy->enter(PageId{page});
      const auto name_all_and_keep = [&] {
        std::set<PageId> named;
        for (std::uint32_t look = 0; look < 20 * n; ++look) {
          const auto page = policy->evict();
          if (!page) break;
          named.insert(*page);
          policy->keep(*page);
        }
        return named.size();
      };
      name_all_and_keep();
      for (std::uint64_t page = n - std::min(n, n / 20 + 1); page < n; ++page) policy->enter(PageId{page});
      EXPECT_EQ(name_all_and_keep(), n);
    }
  }
}

// Even where the program touches all pages faster than they are examined.
TEST_P(PolicyTest, EndsWhereEverythingIsInUse) {
  struct Busy final : PageProbe {
    void arm(PageId, std::uint32_t) noexcept override {}
    bool touched(PageId) noexcept override { return true; }
  } probe;
  const auto policy = bench::make_eviction_policy(GetParam(), 100, probe);
  for (std::uint64_t p = 0; p < 1000; ++p) {
    ASSERT_TRUE(p < 100 || policy->evict());
    policy->enter(PageId{p});
  }
}

/// The most hits that a memory of three pages can have, by trying everything.
std::uint64_t most_hits(const std::vector<std::uint32_t>& pages, std::size_t at, std::set<std::uint32_t> in) {
  if (at == pages.size()) return 0;
  if (in.contains(pages[at])) return 1 + most_hits(pages, at + 1, in);
  if (in.size() < 3) {
    in.insert(pages[at]);
    return most_hits(pages, at + 1, in);
  }
  std::uint64_t most = 0;
  for (const std::uint32_t out : std::set<std::uint32_t>(in)) {
    std::set<std::uint32_t> next = in;
    next.erase(out);
    next.insert(pages[at]);
    most = std::max(most, most_hits(pages, at + 1, next));
  }
  return most;
}

TEST(PageTraces, TheBestIsTheBest) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    PageTrace trace{"random", {}};
    for (int i = 0; i < 14; ++i) trace.pages.push_back(static_cast<std::uint32_t>(random.below(6)));
    ASSERT_EQ(bench::best_hits(trace, 3), most_hits(trace.pages, 0, {})) << "seed " << seed;
  }
}

// Hits as shares of the best possible, while a 16th of memory leaves at once, as in the runtime. The bounds
// of steady include what it gives up where recent pages are the right ones. s3-fifo, which the runtime uses,
// must reach its measured share less a hundredth. (At least one bound fails if s3-fifo loses its memory of
// pages that are out, its test of new pages, their tenth of memory, or second chance in its main list.)
TEST(Eviction, KeepsTheRightPages) {
  struct Least {
    double steady, s3_fifo;
  };
  const std::map<std::string, Least> least{{"loop-1.25", {0.84, 0.69}},
                                           {"loop-4", {0.84, 0}},
                                           {"back-and-forth", {0.6, 0.2}},
                                           {"stride", {0.9, 0.8}},
                                           {"zipf", {0.85, 0.83}},
                                           {"phases", {0.75, 0.52}},
                                           {"zipf-and-sweeps", {0.79, 0.79}},
                                           {"sort", {0.8, 0.93}},
                                           {"stencil", {0.95, 0.8}},
                                           {"stencil-tb", {0.5, 0.57}}};
  constexpr std::uint32_t kPages = 1024;
  const auto traces = bench::page_traces(kPages, false);
  ASSERT_EQ(traces.size(), least.size());
  for (const PageTrace& t : traces) {
    const auto best = static_cast<double>(bench::best_hits(t, kPages));
    const auto keeps = [&](const char* policy, double share) {
      const auto hits = static_cast<double>(bench::replay(t, kPages, policy).hits);
      EXPECT_GE(hits, share * best) << policy << " " << t.name << " " << hits / best;
      EXPECT_LE(hits, best) << policy << " " << t.name;
    };
    keeps("steady", least.at(t.name).steady);
    keeps("s3-fifo", least.at(t.name).s3_fifo);
  }
}

TEST(Eviction, SteadyBeatsSecondChanceWhereSweepsPass) {
  constexpr std::uint32_t kPages = 256;
  for (const PageTrace& t : bench::page_traces(kPages, true)) {
    if (t.name != "zipf-and-sweeps" && t.name != "loop-4" && t.name != "stencil") continue;
    EXPECT_GT(bench::replay(t, kPages, "steady").hits, bench::replay(t, kPages, "clock").hits) << t.name;
  }
}

TEST(PageLists, MatchAnOracle) {
  constexpr std::uint32_t kPages = 50;
  Random random(7);
  PageLists lists(kPages);
  std::array<std::list<std::uint64_t>, PageLists::kLists> oracle;  // newest first
  const auto list_of = [&](std::uint64_t page) {
    for (std::uint32_t l = 0; l < PageLists::kLists; ++l)
      if (std::find(oracle[l].begin(), oracle[l].end(), page) != oracle[l].end()) return l;
    return PageLists::kNone;
  };
  for (int step = 0; step < 50'000; ++step) {
    const std::uint64_t page = random.below(120) << (random.one_in(2) ? 32 : 0);
    const auto to = static_cast<PageLists::List>(random.below(PageLists::kLists));
    const PageLists::List from = list_of(page);
    ASSERT_EQ(lists.list_of(PageId{page}), from) << step;
    if (from == PageLists::kNone) {
      if (lists.full()) continue;
      lists.add(to, PageId{page});
      ASSERT_FALSE(lists.armed(PageId{page}));
      oracle[to].push_front(page);
    } else {
      oracle[from].remove(page);
      if (random.one_in(3)) {
        lists.remove(PageId{page});
      } else {
        lists.set_armed(PageId{page}, true);
        lists.move(PageId{page}, to);
        ASSERT_TRUE(lists.armed(PageId{page}));
        oracle[to].push_front(page);
      }
    }
    for (std::uint32_t l = 0; l < PageLists::kLists; ++l) {
      ASSERT_EQ(lists.size(l), oracle[l].size());
      ASSERT_TRUE(oracle[l].empty() || raw(lists.oldest(l)) == oracle[l].back());
    }
  }
}

}  // namespace
}  // namespace kasane::mem
