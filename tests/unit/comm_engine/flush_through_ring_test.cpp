// SPDX-License-Identifier: Apache-2.0
// Offloaded, an operation is counted by the executor, and a flush goes through the ring behind what was
// posted before it. Walked over the shipping steps of the counters (FlushEpochs' next): a ring, a transport
// that answers again at any time, room to hold two commands. In every reachable state no flush is over before
// what was posted before it; and each broken rule is found.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

#include "comm/engine/flush_epochs.h"

namespace kasane::comm {
namespace {

constexpr std::size_t kRoomToHold = 2;
constexpr int kUncounted = -1;

/// Rules of Engine::Core (core.cpp) that can be left out.
enum class Broken { nothing, flush_past_the_ring, held_uncounted, counted_twice };

/// A command in a ring or held; kFlush: the flush.
struct Queued {
  int operation = 0;
  int epoch = kUncounted;
  auto operator<=>(const Queued&) const = default;
};
constexpr int kFlush = 0;

struct State {
  std::vector<Queued> ring, held;
  std::vector<Queued> outstanding;
  std::uint64_t word = 0;
  int posted = 0;
  bool flushed = false;                     ///< the flush was posted
  std::vector<int> before;                  ///< and must wait for these
  std::optional<std::uint32_t> generation;  ///< it is through the ring, and waits for this
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
  static bool over(const State& s) {
    return s.generation && generation_over(unpack(s.word).finished(), *s.generation);
  }
  static bool idle(const State& s) { return s.ring.empty() && s.held.empty() && s.outstanding.empty(); }
  static const char* check(const State& s) {
    if (over(s) && !s.before.empty()) return "a flush is over before what was posted before it";
    const FlushState counts = unpack(s.word);
    if (idle(s) && counts.count[0] + counts.count[1] != 0) return "nothing is under way, but counts";
    if (idle(s) && s.flushed && !over(s)) return "a flush waits for nothing";
    return nullptr;
  }

  void successors(const State& s, std::vector<State>& todo) const {
    if (s.posted < posts_) {
      State after = s;
      after.ring.push_back({++after.posted, kUncounted});
      todo.push_back(std::move(after));
    }
    if (!s.ring.empty()) take(s, todo);
    if (!s.held.empty()) retry(s, todo);
    if (!s.flushed) post_flush(s, todo);
    for (std::size_t i = 0; i < s.outstanding.size(); ++i) {
      State after = s;
      const Queued done = s.outstanding[i];
      after.outstanding.erase(after.outstanding.begin() + static_cast<std::ptrdiff_t>(i));
      std::erase(after.before, done.operation);
      after.word = step(after.word, FlushEvent::complete, done.epoch).word;
      todo.push_back(std::move(after));
    }
  }

  void post_flush(const State& s, std::vector<State>& todo) const {
    State after = s;
    after.flushed = true;
    for (const auto* queue : {&s.ring, &s.held, &s.outstanding})
      for (const Queued& q : *queue) after.before.push_back(q.operation);
    if (broken_ == Broken::flush_past_the_ring) {
      ask(after);
    } else {
      after.ring.push_back({kFlush, kUncounted});
    }
    todo.push_back(std::move(after));
  }

  /// The executor looks at its oldest command: it is issued; or held; or there is no room to hold it, and it
  /// stays.
  void take(const State& s, std::vector<State>& todo) const {
    State popped = s;
    const Queued command = s.ring.front();
    popped.ring.erase(popped.ring.begin());
    if (command.operation == kFlush) {
      ask(popped);
      todo.push_back(std::move(popped));
      return;
    }
    if (s.held.empty()) issue(popped, command, todo);
    if (s.held.size() < kRoomToHold) {
      Queued kept = command;
      if (broken_ != Broken::held_uncounted) {
        const auto [word, epoch] = step(popped.word, FlushEvent::post, 0);
        popped.word = word;
        kept.epoch = epoch;
      }
      popped.held.push_back(kept);
      todo.push_back(std::move(popped));
    }
  }
  void retry(const State& s, std::vector<State>& todo) const {
    State popped = s;
    popped.held.erase(popped.held.begin());
    issue(popped, s.held.front(), todo);
  }
  /// After again everything is as it was: nothing to add.
  void issue(State s, Queued command, std::vector<State>& todo) const {
    if (command.epoch == kUncounted || broken_ == Broken::counted_twice) {
      const auto [word, epoch] = step(s.word, FlushEvent::post, 0);
      s.word = word;
      command.epoch = epoch;
    }
    s.outstanding.push_back(command);
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

TEST(FlushThroughRing, IsOverAfterEverythingBeforeIt) {
  Walk walk(Broken::nothing);
  EXPECT_EQ(walk.find(7), nullptr);
  EXPECT_GT(walk.states(), 10000u);
}

TEST(FlushThroughRing, WhatIsBrokenIsFound) {
  EXPECT_STREQ(Walk(Broken::flush_past_the_ring).find(3), "a flush is over before what was posted before it");
  EXPECT_STREQ(Walk(Broken::held_uncounted).find(3), "a flush is over before what was posted before it");
  EXPECT_STREQ(Walk(Broken::counted_twice).find(3), "nothing is under way, but counts");
}

}  // namespace
}  // namespace kasane::comm
