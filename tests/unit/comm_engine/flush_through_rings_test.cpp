// SPDX-License-Identifier: Apache-2.0
// Offloaded, an operation is counted by its executor, and a flush goes through every ring behind what was posted before it. Walked over the shipping steps
// of the counters (FlushEpochs' next): two executors with a ring each, a transport that says again whenever it likes, room to hold one command. In every
// reachable state no flush is over before what was posted before it; and what is broken is found.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

#include "comm/engine/flush_epochs.h"

namespace kasane::comm {
namespace {

constexpr int kRings = 2;
constexpr std::size_t kRoomToHold = 1;
constexpr int kUncounted = -1;

/// Rules of Engine::Core (core.cpp) that can be left out.
enum class Broken { nothing, flush_past_the_rings, flush_through_one_ring, held_uncounted, counted_twice };

/// A command in a ring or held; kFlush: the flush.
struct Queued {
  int operation = 0;
  int epoch = kUncounted;
  auto operator<=>(const Queued&) const = default;
};
constexpr int kFlush = 0;

struct State {
  std::vector<Queued> ring[kRings], held[kRings];
  std::vector<Queued> under_way;
  std::uint64_t word = 0;
  int posted = 0;
  bool flushed = false;                      ///< the flush was posted
  std::vector<int> before;                   ///< and must wait for these
  std::optional<std::uint32_t> generation;   ///< it is through the rings, and waits for this
  auto operator<=>(const State&) const = default;
};

class Walk {
 public:
  explicit Walk(Broken broken) : broken_(broken) {}

  /// What is wrong in a reachable state; null: nothing.
  const char* find(int posts) {
    posts_ = posts;
    std::vector<State> todo{State{}};
    while (!todo.empty()) {
      State s = std::move(todo.back());
      todo.pop_back();
      if (!seen_.insert(s).second) continue;
      if (const char* wrong = check(s)) return wrong;
      successors(s, todo);
    }
    return nullptr;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  static bool over(const State& s) { return s.generation && generation_over(unpack(s.word).finished(), *s.generation); }
  static bool idle(const State& s) {
    for (int r = 0; r < kRings; ++r)
      if (!s.ring[r].empty() || !s.held[r].empty()) return false;
    return s.under_way.empty();
  }
  static const char* check(const State& s) {
    if (over(s) && !s.before.empty()) return "a flush is over before what was posted before it";
    const FlushState counts = unpack(s.word);
    if (idle(s) && counts.count[0] + counts.count[1] != 0) return "nothing is under way, but counts";
    if (idle(s) && s.flushed && !over(s)) return "a flush waits for nothing";
    return nullptr;
  }

  void successors(const State& s, std::vector<State>& todo) const {
    for (int r = 0; r < kRings; ++r) {
      if (s.posted < posts_) {
        State after = s;
        after.ring[r].push_back({++after.posted, kUncounted});
        todo.push_back(std::move(after));
      }
      if (!s.ring[r].empty()) take(s, r, todo);
      if (!s.held[r].empty()) retry(s, r, todo);
    }
    if (!s.flushed) post_flush(s, todo);
    for (std::size_t i = 0; i < s.under_way.size(); ++i) {
      State after = s;
      const Queued done = s.under_way[i];
      after.under_way.erase(after.under_way.begin() + static_cast<std::ptrdiff_t>(i));
      std::erase(after.before, done.operation);
      after.word = step(after.word, FlushEvent::complete, done.epoch).word;
      todo.push_back(std::move(after));
    }
  }

  void post_flush(const State& s, std::vector<State>& todo) const {
    State after = s;
    after.flushed = true;
    for (int r = 0; r < kRings; ++r) {
      for (const auto* queue : {&s.ring[r], &s.held[r]})
        for (const Queued& q : *queue) after.before.push_back(q.operation);
    }
    for (const Queued& q : s.under_way) after.before.push_back(q.operation);
    if (broken_ == Broken::flush_past_the_rings) {
      ask(after);
    } else {
      after.ring[0].push_back({kFlush, kUncounted});
    }
    todo.push_back(std::move(after));
  }

  /// The executor looks at its oldest command: it is issued; or held; or there is no room to hold it, and it stays.
  void take(const State& s, int r, std::vector<State>& todo) const {
    State popped = s;
    const Queued command = s.ring[r].front();
    popped.ring[r].erase(popped.ring[r].begin());
    if (command.operation == kFlush) {
      const bool last = r + 1 == kRings || broken_ == Broken::flush_through_one_ring;
      if (last) {
        ask(popped);
      } else {
        popped.ring[r + 1].push_back(command);
      }
      todo.push_back(std::move(popped));
      return;
    }
    if (s.held[r].empty()) issue(popped, command, todo);
    if (s.held[r].size() < kRoomToHold) {
      Queued kept = command;
      if (broken_ != Broken::held_uncounted) {
        const auto [word, epoch] = step(popped.word, FlushEvent::post, 0);
        popped.word = word;
        kept.epoch = epoch;
      }
      popped.held[r].push_back(kept);
      todo.push_back(std::move(popped));
    }
  }
  void retry(const State& s, int r, std::vector<State>& todo) const {
    State popped = s;
    popped.held[r].erase(popped.held[r].begin());
    issue(popped, s.held[r].front(), todo);
  }
  /// After again everything is as it was: nothing to add.
  void issue(State s, Queued command, std::vector<State>& todo) const {
    if (command.epoch == kUncounted || broken_ == Broken::counted_twice) {
      const auto [word, epoch] = step(s.word, FlushEvent::post, 0);
      s.word = word;
      command.epoch = epoch;
    }
    s.under_way.push_back(command);
    todo.push_back(std::move(s));
  }
  static void ask(State& s) {
    const FlushStep step = next(unpack(s.word), FlushEvent::flush);
    s.word = pack(step.state);
    s.generation = step.value;
  }
  struct Stepped {
    std::uint64_t word;
    int epoch;
  };
  static Stepped step(std::uint64_t word, FlushEvent event, int epoch) {
    const FlushStep s = next(unpack(word), event, static_cast<std::uint32_t>(epoch));
    return {pack(s.state), static_cast<int>(s.value)};
  }

  const Broken broken_;
  int posts_ = 0;
  std::set<State> seen_;
};

TEST(FlushThroughRings, IsOverAfterEverythingBeforeIt) {
  Walk walk(Broken::nothing);
  EXPECT_EQ(walk.find(4), nullptr);
  EXPECT_GT(walk.states(), 10000u);
}

TEST(FlushThroughRings, WhatIsBrokenIsFound) {
  EXPECT_STREQ(Walk(Broken::flush_past_the_rings).find(3), "a flush is over before what was posted before it");
  EXPECT_STREQ(Walk(Broken::flush_through_one_ring).find(3), "a flush is over before what was posted before it");
  EXPECT_STREQ(Walk(Broken::held_uncounted).find(3), "a flush is over before what was posted before it");
  EXPECT_STREQ(Walk(Broken::counted_twice).find(3), "nothing is under way, but counts");
}

}  // namespace
}  // namespace kasane::comm
