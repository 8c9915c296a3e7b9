// SPDX-License-Identifier: Apache-2.0
// The Chase–Lev deque under every interleaving of small programs, against a serial deque.
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/deque.h"
#include "support/interleave.h"
#include "support/linearizable.h"

namespace kasane::test {
namespace {

using TestDeque = Deque<InterleavedAtomics>;
using Serial = std::deque<std::uint64_t>;

template <std::size_t Capacity>
struct Memory {
  alignas(128) std::byte bytes[TestDeque::bytes(Capacity)];
  TestDeque& deque = *TestDeque::create(bytes, Capacity);
};

// The deque and what each thread saw of it. Values are 1, 2, 3 … in the order of pushes.
template <std::size_t Capacity>
class Recorded {
 public:
  Recorded(Schedule& schedule, std::uint64_t prefilled) : schedule_(schedule) {
    for (std::uint64_t i = 0; i < prefilled; ++i) {
      EXPECT_TRUE(memory_.deque.push(++last_));
      newest_ = last_;
      before_.push_back(last_);
      ++pushed_;
    }
  }

  void push() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    const std::uint64_t value = ++last_;
    const bool pushed = memory_.deque.push(value);
    pushed_ += pushed;
    record(begin, [=](Serial& s) {
      if (pushed != (s.size() < Capacity)) return false;
      if (pushed) s.push_back(value);
      return true;
    });
  }

  void pop() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    const std::optional<std::uint64_t> value = popped();
    note_taken(value);
    record(begin, [=](Serial& s) {
      if (!value) return s.empty();
      if (s.empty() || s.back() != *value) return false;
      s.pop_back();
      return true;
    });
  }

  /// A pop in two halves, around a compare-swap of the owner's own.
  void pop_in_halves() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    const std::uint64_t expected = newest_;
    const std::uint64_t pop = memory_.deque.begin_pop();
    std::uint64_t seen = 0;
    EXPECT_TRUE(
        record_.compare_exchange_strong(seen, 1, std::memory_order_seq_cst, std::memory_order_seq_cst));
    const bool popped = memory_.deque.end_pop(pop, [&] { return expected; });
    note_taken(popped ? std::optional(expected) : std::nullopt);
    record(begin, [=](Serial& s) {
      if (!popped) return s.empty();
      if (s.empty() || s.back() != expected) return false;
      s.pop_back();
      return true;
    });
  }
  /// Pushes up to the limit that the last push() found.
  bool push_below_limit() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    const std::uint64_t value = last_ + 1;
    if (!memory_.deque.push_below_limit(value)) return false;
    newest_ = ++last_;
    ++pushed_;
    record(begin, [=](Serial& s) {
      if (s.size() == Capacity) return false;
      s.push_back(value);
      return true;
    });
    return true;
  }
  void shut() { memory_.deque.shut(); }

  void steal() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    std::uint64_t value = 0;
    const Steal outcome = memory_.deque.steal(value);
    if (outcome == Steal::taken) note_taken(value);
    record(begin, [=](Serial& s) {
      if (outcome == Steal::lost) return true;  // says only that another thread took part
      if (outcome == Steal::empty) return s.empty();
      if (s.empty() || s.front() != value) return false;
      s.pop_front();
      return true;
    });
  }

  void expect_linearizable() const { EXPECT_TRUE(linearizable(before_, history_)); }

  // Every value that was pushed is taken once, in the end by the owner.
  void expect_nothing_lost() {
    while (auto value = popped()) note_taken(value);
    EXPECT_EQ(taken_.size(), pushed_);
    EXPECT_FALSE(taken_twice_);
  }

 private:
  std::optional<std::uint64_t> popped() {
    std::uint64_t value;
    return memory_.deque.pop(value) ? std::optional(value) : std::nullopt;
  }
  template <class Apply>
  void record(std::uint64_t begin, Apply apply) {
    history_.push_back({begin, schedule_.clock(), apply});
  }
  void note_taken(std::optional<std::uint64_t> value) {
    if (value) taken_twice_ |= !taken_.insert(*value).second;
  }

  Schedule& schedule_;
  Memory<Capacity> memory_;
  InterleavedAtomics::Atomic<std::uint64_t> record_{0};  ///< the word of the compare-swap between two halves
  std::uint64_t newest_ = 0;                             ///< of the values pushed before the first pop
  Serial before_;
  std::uint64_t last_ = 0;
  std::uint64_t pushed_ = 0;
  std::vector<Operation<Serial>> history_;
  std::set<std::uint64_t> taken_;
  bool taken_twice_ = false;
};

TEST(DequeInterleaved, LastValueGoesToOwnerOrThief) {
  const auto runs = explore(Reduction::none, [](Schedule& s) {
    Recorded<4> d(s, 1);
    s.thread([&] { d.pop(); });
    s.thread([&] { d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
  EXPECT_GT(runs, 50u);
}

TEST(DequeInterleaved, TwoPopsAgainstTwoSteals) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded<4> d(s, 2);
    s.thread([&] { d.pop(), d.pop(); });
    s.thread([&] { d.steal(), d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
}

TEST(DequeInterleaved, PopPushAgainstAThief) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded<4> d(s, 1);
    s.thread([&] { d.pop(), d.push(); });
    s.thread([&] { d.steal(), d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
}

// A ring of one slot: the push must not overwrite what a thief is reading.
TEST(DequeInterleaved, FullRingIsReusedOnlyAfterTheSteal) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded<1> d(s, 1);
    s.thread([&] { d.push(), d.push(); });
    s.thread([&] { d.steal(), d.steal(); });
    s.run();
    d.expect_linearizable();
  });
}

TEST(DequeInterleaved, TwoThievesAndOwner) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded<4> d(s, 2);
    s.thread([&] { d.pop(); });
    s.thread([&] { d.steal(); });
    s.thread([&] { d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
}

TEST(DequeInterleaved, APopInTwoHalvesTakesWhatNoThiefDid) {
  for (const std::uint64_t prefilled : {1, 2}) {
    explore(Reduction::none, [&](Schedule& s) {
      Recorded<4> d(s, prefilled);
      s.thread([&] { d.pop_in_halves(); });
      s.thread([&] { d.steal(), d.steal(); });
      s.run();
      d.expect_linearizable();
      d.expect_nothing_lost();
    });
  }
}

TEST(DequeInterleaved, APushBelowTheLimitNeverOverwritesWhatAThiefReads) {
  std::set<bool> outcomes;
  explore(Reduction::none, [&](Schedule& s) {
    Recorded<2> d(s, 1);
    bool second = false;
    s.thread([&] {
      EXPECT_TRUE(d.push_below_limit());
      EXPECT_FALSE(d.push_below_limit()) << "the limit was learnt when nothing had been stolen";
      // Compares with the last known top; if a thief has been there, there is room for this push, or for one
      // more
      d.push();
      second = d.push_below_limit();
    });
    s.thread([&] { d.steal(), d.steal(); });
    s.run();
    outcomes.insert(second);
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
  EXPECT_EQ(outcomes, (std::set<bool>{false, true}));
}

TEST(DequeInterleaved, AShutDequeTakesNothingBelowItsLimit) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded<4> d(s, 1);
    s.thread([&] {
      d.shut();
      EXPECT_FALSE(d.push_below_limit());
      d.push();
      EXPECT_TRUE(d.push_below_limit());
    });
    s.thread([&] { d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
}

// Larger programs: commuting interleavings are skipped, so real-time order says nothing, but no value may be
// lost or doubled.
TEST(DequeInterleaved, LargerProgramsLoseNothing) {
  const auto runs = explore(Reduction::commuting, [](Schedule& s) {
    Recorded<2> d(s, 1);
    s.thread([&] { d.pop(), d.push(), d.pop(); });
    s.thread([&] { d.steal(); });
    s.thread([&] { d.steal(); });
    s.run();
    d.expect_nothing_lost();
  });
  EXPECT_GT(runs, 100u);
}

TEST(DequeInterleaved, RandomLongPrograms) {
  explore_random(1, 3000, [](Schedule& s) {
    Recorded<8> d(s, 0);
    s.thread([&] {
      for (int i = 0; i < 3; ++i) d.push(), d.push(), d.pop();
      d.pop();
    });
    for (int thief = 0; thief < 2; ++thief) s.thread([&] { d.steal(), d.steal(); });
    s.run();
    d.expect_linearizable();
    d.expect_nothing_lost();
  });
}

// The walk itself: without reduction it runs each interleaving once, with it each final state at least once.
TEST(Interleave, WalksEveryInterleaving) {
  const auto program = [](Schedule& s, std::set<int>& outcomes) {
    InterleavedAtomics::Atomic<int> x{0}, y{0};
    int a = 0, b = 0;
    s.thread([&] { x.store(1, std::memory_order_seq_cst), a = y.load(std::memory_order_seq_cst); });
    s.thread([&] { y.store(1, std::memory_order_seq_cst), b = x.load(std::memory_order_seq_cst); });
    s.run();
    outcomes.insert(10 * a + b);
  };
  std::set<int> all, reduced;
  EXPECT_EQ(explore(Reduction::none, [&](Schedule& s) { program(s, all); }), 6u);  // 4! / (2! 2!)
  const auto fewer = explore(Reduction::commuting, [&](Schedule& s) { program(s, reduced); });
  EXPECT_LT(fewer, 6u);
  EXPECT_EQ(all, (std::set<int>{1, 10, 11}));  // both 0 is what sequential consistency excludes
  EXPECT_EQ(reduced, all);
}

}  // namespace
}  // namespace kasane::test
