// SPDX-License-Identifier: Apache-2.0
// The explorer finds a lost exclusion, a deadlock and a wrong load; counts states exactly; and says so when a
// bound kept it from looking at everything.
#include "model/explorer.h"

#include <gtest/gtest.h>

namespace kasane::model {
namespace {

// Peterson's algorithm for two threads: exclusion holds if the turn is given away after the flag is raised.
struct Peterson {
  bool turn_first = false;
  struct State {
    std::uint8_t pc[2], flag[2], turn;
  };
  State initial() const { return {}; }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t me = 0; me < 2; ++me) {
      State n = s;
      const std::uint8_t other = 1 - me;
      switch (s.pc[me]) {
        case 0:
        case 1:
          if ((s.pc[me] == 0) != turn_first)
            n.flag[me] = 1;
          else
            n.turn = other;
          break;
        case 2:
          if (s.flag[other] && s.turn == other) continue;
          break;
        case 3: n.flag[me] = 0; break;
        default: continue;
      }
      ++n.pc[me];
      emit(n, Step{s.pc[me], me, 0});
    }
  }
  const char* violation(const State& s) const {
    return s.pc[0] == 3 && s.pc[1] == 3 ? "both are inside" : nullptr;
  }
  bool finished(const State& s) const { return s.pc[0] == 4 && s.pc[1] == 4; }
  std::string name(const Step& s) const {
    return "thread " + std::to_string(s.actor) + " step " + std::to_string(s.kind);
  }
  std::string show(const State& s) const { return std::to_string(s.pc[0]) + "/" + std::to_string(s.pc[1]); }
};

TEST(Explorer, PetersonHolds) {
  const Outcome o = explore(Peterson{});
  EXPECT_TRUE(o.ok()) << o.report();
  EXPECT_GE(o.endings, 1u);
}

TEST(Explorer, FindsTheShortestWayIntoTheBrokenOne) {
  const Outcome o = explore(Peterson{.turn_first = true});
  ASSERT_EQ(o.verdict, Verdict::counterexample) << o.report();
  EXPECT_EQ(o.length, 6u) << o.report();
  EXPECT_EQ(o.trace.size(), 7u);
}

// Two threads take two locks in opposite order.
struct Locks {
  bool same_order = false;
  bool tries = false;  ///< again and again, instead of waiting
  struct State {
    std::uint8_t pc[2], held[2];
  };
  State initial() const { return {}; }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t me = 0; me < 2; ++me) {
      State n = s;
      const std::uint8_t first = same_order ? 0 : me;
      if (s.pc[me] < 2) {
        const std::uint8_t lock = s.pc[me] == 0 ? first : 1 - first;
        if (s.held[lock] && tries) emit(s, Step{s.pc[me], me, 1});
        if (s.held[lock]) continue;
        n.held[lock] = static_cast<std::uint8_t>(me + 1);
      } else if (s.pc[me] == 2) {
        for (auto& h : n.held)
          if (h == me + 1) h = 0;
      } else {
        continue;
      }
      ++n.pc[me];
      emit(n, Step{s.pc[me], me, 0});
    }
  }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State& s) const { return s.pc[0] == 3 && s.pc[1] == 3; }
  bool circles() const { return tries; }
  std::string name(const Step& s) const { return std::to_string(s.actor); }
  std::string show(const State&) const { return ""; }
};

TEST(Explorer, FindsADeadlock) {
  const Outcome o = explore(Locks{});
  ASSERT_EQ(o.verdict, Verdict::deadlock) << o.report();
  EXPECT_EQ(o.length, 2u);
  EXPECT_TRUE(explore(Locks{.same_order = true}).ok());
}

TEST(Explorer, FindsACircleWithoutAWayOut) {
  const Outcome o = explore(Locks{.tries = true});
  ASSERT_EQ(o.verdict, Verdict::trapped) << o.report();
  EXPECT_TRUE(o.refuted());
  EXPECT_EQ(o.length, 2u);
  const Outcome good = explore(Locks{.same_order = true, .tries = true});
  EXPECT_TRUE(good.ok()) << good.report();
  EXPECT_EQ(good.endings, 1u);
}

// A counter in three bytes: 2^k states exactly.
struct Counter {
  std::uint32_t limit;
  struct State {
    std::uint32_t n;
  };
  State initial() const { return {}; }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    if (s.n < limit) emit(State{s.n + 1}, Step{});
    emit(State{s.n / 2}, Step{});
    if (s.n == 1000 && limit == 1001) emit(State{0}, Step{}, "a step's own error");
  }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State&) const { return true; }
  std::string name(const Step&) const { return "step"; }
  std::string show(const State& s) const { return std::to_string(s.n); }
};

TEST(Explorer, CountsEveryStateOnce) {
  const Outcome o = explore(Counter{200'000});
  EXPECT_TRUE(o.ok());
  EXPECT_EQ(o.states, 200'001u);
  EXPECT_EQ(o.depth, 200'000u);
}

TEST(Explorer, ReportsTheErrorOfAStep) {
  const Outcome o = explore(Counter{1001});
  ASSERT_EQ(o.verdict, Verdict::counterexample);
  EXPECT_EQ(o.length, 1001u);
}

TEST(Explorer, ABoundIsNotAProof) {
  const Outcome o = explore(Counter{1'000'000'000}, Bounds{.states = 100'000, .bytes = 1u << 30});
  EXPECT_EQ(o.verdict, Verdict::bounded);
  EXPECT_FALSE(o.ok());
  EXPECT_NE(o.report().find("NOT EXHAUSTIVE"), std::string::npos);
}

}  // namespace
}  // namespace kasane::model
