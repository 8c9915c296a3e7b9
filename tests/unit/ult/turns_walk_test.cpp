// SPDX-License-Identifier: Apache-2.0
// No thread that can run on a worker waits there for ever: walks of Turn and Picks (ult/turns.h) against
// threads that do whatever keeps a chosen one, the victim, from running.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <tuple>
#include <vector>

#include "ult/turns.h"

namespace kasane::ult {
namespace {

// ---- Turn: how long a thread that polls keeps its worker ----

/// Polls by calls of call_ns each, while others wait. Returns after how long, and how many calls, it yields;
/// 0: never within ten seconds.
std::pair<std::uint64_t, std::uint64_t> polls(Turn turn, std::uint64_t call_ns, std::uint64_t start_ns) {
  std::uint64_t now = start_ns, calls = 0;
  while (now - start_ns < 10'000'000'000) {
    now += call_ns;
    ++calls;
    if (turn.call() && turn.look(1, now, true)) return {now - start_ns, calls};
  }
  return {0, 0};
}

TEST(TurnTest, AThreadThatPollsYieldsWithinTheBound) {
  for (const std::uint64_t before : {5u, 5'000u, 50'000u, 5'000'000u})
    for (const std::uint64_t call : {5u, 100u, 5'000u, 60'000u, 5'000'000u}) {
      Turn turn;  // as calls of another length have left it
      std::uint64_t now = 1'000'000'000;
      for (int i = 0; i < 3000; ++i) {
        now += before;
        if (turn.call()) (void)turn.look(7, now, false);
      }
      const auto [after, calls] = polls(turn, call, now);
      EXPECT_NE(after, 0u) << before << " " << call;
      EXPECT_LE(after, kTurnNs + 2 * kMostCalls * call + kTurnNs / 2) << before << " " << call;
    }
}

TEST(TurnTest, AThreadThatKeepsNoneWaitingNeverYields) {
  Turn turn;
  std::uint64_t now = 1;
  for (int i = 0; i < 100'000; ++i) {
    now += 1'000;
    if (turn.call()) {
      EXPECT_FALSE(turn.look(1, now, false));
    }
  }
}

TEST(TurnTest, LooksAreRareWhereCallsAreCheap) {
  Turn turn;
  std::uint64_t now = 1;
  int looks = 0;
  for (int i = 0; i < 100'000; ++i) {
    now += 5;
    if (!turn.call()) continue;
    ++looks;
    (void)turn.look(1, now, false);
  }
  EXPECT_LE(looks, 500);
}

// ---- Picks: where the next thread comes from ----

enum class Place : std::uint8_t { waiting, queue, ready };

/// One worker and its threads by name, 0 the victim. What a thread does when its turn ends is chosen by the
/// walk: it waits here and can go on, it becomes ready again (by another worker), or it forks: its
/// continuation goes to the queue and the child, as its successor of the same name, ends where the walk says.
template <class P>
struct Model {
  P picks;
  std::deque<int> waiting, queue, ready;  // the oldest first
  int ran = -1;

  auto key() const { return std::tuple(picks.state(), waiting, queue, ready); }

  int take(Source s) {
    const auto front = [](std::deque<int>& d) {
      const int t = d.front();
      d.pop_front();
      return t;
    };
    switch (s) {
      case Source::waiting: return waiting.empty() ? -1 : front(waiting);
      case Source::oldest: return queue.empty() ? -1 : front(queue);
      case Source::newest: {
        if (queue.empty()) return -1;
        const int t = queue.back();
        queue.pop_back();
        return t;
      }
      case Source::ready: {
        if (ready.empty()) return -1;
        const int t = front(ready);  // the others: the next oldest on top of the queue
        while (!ready.empty()) {
          queue.push_back(ready.back());
          ready.pop_back();
        }
        return t;
      }
    }
    return -1;
  }
  bool pick() {
    for (const Source s : picks.order(static_cast<std::uint32_t>(waiting.size()))) {
      ran = take(s);
      if (ran < 0) continue;
      picks.picked(s, static_cast<std::uint32_t>(waiting.size()));
      return true;
    }
    return false;
  }
  void leave(Place p) { (p == Place::waiting ? waiting : p == Place::queue ? queue : ready).push_back(ran); }
};

struct Shipping : Picks {
  auto state() const { return Picks::state(); }
};
/// Mutants: the order without turns, and each turn left out.
struct WaitingFirst {
  static Picks::Order order(std::uint32_t) {
    return {Source::waiting, Source::newest, Source::ready, Source::ready};
  }
  void picked(Source, std::uint32_t) {}
  int state() const { return 0; }
};
template <Source kLeftOut>
struct Without : Picks {
  Order order(std::uint32_t waiting) const {
    Order o = Picks::order(waiting);
    if (std::find(o.begin(), o.begin() + 2, kLeftOut) == o.begin() + (o[0] == Source::waiting))
      std::replace(o.begin(), o.begin() + 2, kLeftOut, Source::newest);
    return o;
  }
  auto state() const { return Picks::state(); }
};

/// The most picks that pass before the victim runs, over all that the others may do; more than `limit`: limit
/// + 1.
template <class P>
int longest_wait(int threads, int limit) {
  std::vector<Model<P>> states;
  for (const Place victim : {Place::waiting, Place::queue, Place::ready})
    for (const Place others : {Place::waiting, Place::queue, Place::ready}) {
      Model<P> m;
      for (m.ran = 1; m.ran < threads; ++m.ran) m.leave(others);
      m.ran = 0;
      m.leave(victim);
      states.push_back(m);
    }
  for (int picks = 1; picks <= limit; ++picks) {
    std::set<decltype(states[0].key())> seen;
    std::vector<Model<P>> next;
    for (Model<P> m : states) {
      EXPECT_TRUE(m.pick());
      if (m.ran == 0) continue;
      for (const Place p : {Place::waiting, Place::queue, Place::ready}) {
        Model<P> after = m;
        after.leave(p);
        if (seen.insert(after.key()).second) next.push_back(after);
      }
    }
    if (next.empty()) return picks;
    states = std::move(next);
  }
  return limit + 1;
}

/// A cycle of picks of the others for each thread, between two of which each thread that waits runs once.
constexpr int bound(int threads) { return static_cast<int>(Picks::kCycle) * threads * threads; }

TEST(PicksWalk, EveryThreadThatCanRunRunsWithinTheBound) {
  for (const int threads : {2, 3, 4}) {
    const int longest = longest_wait<Shipping>(threads, bound(threads));
    EXPECT_LE(longest, bound(threads));
    RecordProperty("longest" + std::to_string(threads), longest);
  }
}
TEST(PicksWalk, WithoutTurnsAThreadWaitsForEver) {
  EXPECT_GT(longest_wait<WaitingFirst>(3, bound(3)), bound(3));
}
TEST(PicksWalk, WithoutTheTurnOfTheOldestAThreadWaitsForEver) {
  EXPECT_GT(longest_wait<Without<Source::oldest>>(3, bound(3)), bound(3));
}
TEST(PicksWalk, WithoutTheTurnOfTheReadyListAThreadWaitsForEver) {
  EXPECT_GT(longest_wait<Without<Source::ready>>(3, bound(3)), bound(3));
}

}  // namespace
}  // namespace kasane::ult
