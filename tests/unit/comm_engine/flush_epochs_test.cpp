// SPDX-License-Identifier: Apache-2.0
// Two counters tell when everything posted before a flush has completed: walked through every reachable state
// against a list of the operations themselves, and the atomic word under every interleaving.
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "comm/engine/flush_epochs.h"
#include "support/interleave.h"

namespace kasane::comm {
namespace {

/// What the counters represent: each outstanding operation, and each flush with the operations that were
/// outstanding when it came.
struct Model {
  struct Flush {
    std::uint32_t generation;
    std::vector<int> before;  ///< operations that must be over
    auto operator<=>(const Flush&) const = default;
  };
  std::vector<std::pair<int, std::uint32_t>> operations;  ///< number, epoch
  std::vector<Flush> flushes;
  std::uint64_t word = 0;
  auto operator<=>(const Model&) const = default;
};

class Walk {
 public:
  void from(const Model& m, int posts, int flushes) {
    if (!seen_.insert({m, posts, flushes}).second || ::testing::Test::HasFailure()) return;
    check(m);
    const FlushState s = unpack(m.word);
    if (posts > 0) {
      const FlushStep step = next(s, FlushEvent::post);
      Model after = m;
      after.word = pack(step.state);
      after.operations.emplace_back(posts, step.value);
      from(after, posts - 1, flushes);
    }
    if (flushes > 0) {
      const FlushStep step = next(s, FlushEvent::flush);
      Model after = m;
      after.word = pack(step.state);
      Model::Flush f{step.value, {}};
      for (const auto& op : m.operations) f.before.push_back(op.first);
      after.flushes.push_back(f);
      from(after, posts, flushes - 1);
    }
    for (std::size_t i = 0; i < m.operations.size(); ++i) {  // they complete in any order
      const FlushStep step = next(s, FlushEvent::complete, m.operations[i].second);
      Model after = m;
      after.word = pack(step.state);
      const int over = m.operations[i].first;
      after.operations.erase(after.operations.begin() + static_cast<std::ptrdiff_t>(i));
      for (auto& f : after.flushes) std::erase(f.before, over);
      EXPECT_EQ(step.finished, step.state.finished() != s.finished());
      from(after, posts, flushes);
    }
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  static void check(const Model& m) {
    const FlushState s = unpack(m.word);
    EXPECT_EQ(pack(s), m.word);
    for (const auto& f : m.flushes) {
      const bool over = generation_over(s.finished(), f.generation);
      EXPECT_TRUE(!over || f.before.empty()) << "a flush is over before what it flushes";
      EXPECT_TRUE(over || !m.operations.empty()) << "a flush waits for nothing";
    }
    if (!s.draining) {
      EXPECT_EQ(s.count[s.old()], 0);
      EXPECT_FALSE(s.again);
    }
  }
  std::set<std::tuple<Model, int, int>> seen_;
};

TEST(FlushEpochs, EveryReachableState) {
  Walk walk;
  walk.from({}, 4, 3);
  EXPECT_GT(walk.states(), 500u);
  // And where the generation wraps.
  Model m;
  m.word = pack({.generation = kGenerationMask, .draining = false, .again = false, .count = {0, 0}});
  Walk wrapping;
  wrapping.from(m, 3, 3);
}

// A flusher puts itself on the list and then looks; the thread that ends a generation looks at the list. In
// every interleaving one of them sees the other.
TEST(FlushEpochs, NoFlushIsForgotten) {
  using kasane::test::InterleavedAtomics;
  const auto runs = kasane::test::explore(kasane::test::Reduction::commuting, [](kasane::test::Schedule& s) {
    FlushEpochs<InterleavedAtomics> epochs;
    InterleavedAtomics::Atomic<int> waiting{0};
    int resumed = 0;
    const std::uint32_t first = epochs.post();
    const auto resume = [&](std::uint32_t generation) {
      while (waiting.exchange(0, std::memory_order_seq_cst) != 0) {
        if (epochs.over(generation)) {
          ++resumed;
          return;
        }
        waiting.store(1, std::memory_order_seq_cst);  // not yet: back on the list, then look once more
        if (!epochs.over(generation)) return;
      }
    };
    std::uint32_t wanted = 0;
    s.thread([&] {
      wanted = epochs.flush();
      if (epochs.over(wanted)) {
        ++resumed;
        return;
      }
      waiting.store(1, std::memory_order_seq_cst);
      if (epochs.over(wanted)) resume(wanted);
    });
    s.thread([&] {
      if (epochs.complete(first)) resume(wanted);
    });
    s.thread([&] {  // another thread's operation, posted at any time
      const std::uint32_t epoch = epochs.post();
      if (epochs.complete(epoch)) resume(wanted);
    });
    s.run();
    EXPECT_EQ(resumed, 1);
    EXPECT_EQ(epochs.outstanding(), 0u);
    EXPECT_TRUE(epochs.idle());
  });
  EXPECT_GT(runs, 20u);
}

// A thread that finds nothing outstanding sees the effects of what has completed. The walk above knows no
// weak orders; the thread sanitizer does.
TEST(FlushEpochs, IdleMeansThatTheEffectsAreVisible) {
  for (int round = 0; round < 200; ++round) {
    FlushEpochs<> epochs;
    int effects[2] = {0, 0};  // plain: ordered by the counter, or a race
    const std::uint32_t epoch[2] = {epochs.post(), epochs.post()};
    std::thread one([&] {
      effects[0] = 1;
      (void)epochs.complete(epoch[0]);
    });
    std::thread two([&] {
      effects[1] = 1;
      (void)epochs.complete(epoch[1]);
    });
    while (!epochs.idle()) std::this_thread::yield();
    EXPECT_EQ(effects[0] + effects[1], 2);
    one.join();
    two.join();
  }
}

}  // namespace
}  // namespace kasane::comm
