// SPDX-License-Identifier: Apache-2.0
// The theft that ships (sched/steal.h) against a victim that pushes, pops, writes and pushes again, in every
// order of every access, with copies as stale as the rules allow. Each continuation is held once at a time,
// runs once, and reads what was written last.
//
// The victim is rank 0; thieves are of ranks 1 and 2. The victim's stores stay in its own copy until its rank
// releases; a thief keeps what it cached at the beginning until its rank acquires.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

#include "model/explorer.h"
#include "sched/steal.h"

namespace kasane::sched {
namespace {

constexpr std::uint32_t kThieves = 2, kItems = 2, kEntries = 4;

/// A rule taken away: the walk must find what it was for.
enum class Mutation {
  none,
  release_before_claim,  ///< rule 1: done at the look instead of after the claim
  no_release,
  no_acquire,
  look_is_enough,  ///< the bottom of the look counts, though it may be older than its top
};

struct Owner {
  enum At : std::uint32_t {
    decide,
    push_entry,
    push_bottom,
    pop_bottom,
    pop_top,
    pop_take,
    pop_swap,
    pop_restore,
    write,
    stopped
  };
  /// item: 1 + the one in hand; rewrites: how often it may still write and push again
  std::uint32_t at, pushed, item, rewrites;
  std::uint64_t top;
};

struct Thief {
  Theft theft;
  std::uint64_t result, result2;
  std::uint32_t looking;  ///< half of a look done: 1: bottom was read, 2: top was
  std::uint32_t attempts, cached, adopted, claimed, pad;
};

struct State {
  std::uint64_t top, bottom;
  std::uint32_t ring[kEntries];
  std::uint32_t truth[kItems], victim[kItems], master[kItems], taken[kItems], done[kItems];
  std::uint32_t broken, pad;
  Owner owner;
  Thief thieves[kThieves];
};
static_assert(std::has_unique_object_representations_v<State>);

class StealModel {
 public:
  using State = sched::State;
  explicit StealModel(Mutation m, std::uint32_t rewrites = 2, std::uint32_t attempts = 2)
      : mutation_(m), rewrites_(rewrites), attempts_(attempts) {}

  State initial() const {
    State s{};
    s.owner.rewrites = rewrites_;
    for (Thief& t : s.thieves) {
      t = Thief{};
      t.attempts = attempts_;
      t.cached = 1;
    }
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    if (s.owner.at != Owner::stopped) {
      State n = s;
      step_owner(n);
      emit(n, model::Step{0, 0, static_cast<std::uint8_t>(s.owner.at)});
    }
    for (std::uint32_t i = 0; i < kThieves; ++i) {
      if (s.thieves[i].attempts == 0) continue;
      Theft peek = s.thieves[i].theft;
      const TheftStep step = peek.next(s.thieves[i].result, s.thieves[i].result2);
      // A look reads its two words in any order.
      for (std::uint32_t half = 1;
           half <= (step.kind == TheftStep::Kind::look && s.thieves[i].looking == 0 ? 2u : 1u); ++half) {
        State n = s;
        step_thief(n, n.thieves[i], peek, step, half);
        emit(n, model::Step{1, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(step.kind)});
      }
    }
  }

  const char* violation(const State& s) const {
    static constexpr const char* kWrong[] = {nullptr, "two hold one continuation",
                                             "a thief reads an old value",
                                             "a stack arrives before its rank has released, or twice"};
    return kWrong[s.broken];
  }
  bool finished(const State& s) const {
    if (s.owner.at != Owner::stopped) return false;
    // Nothing is left behind: the owner empties its deque.
    for (std::uint32_t i = 0; i < kItems; ++i)
      if (s.done[i] != 1) return false;
    return true;
  }
  std::string name(const model::Step& step) const {
    static constexpr const char* kOwner[] = {
        "decides", "writes an entry", "stores bottom",   "lowers bottom", "reads top",
        "takes",   "swaps top",       "restores bottom", "writes data",   "stops"};
    static constexpr const char* kThief[] = {
        "looks",  "reads bottom", "reads the entry", "claims", "reads sp", "asks for the release",
        "adopts", "acquires",     "sets the rank",   "ends"};
    return step.kind == 0 ? std::string("victim ") + kOwner[step.detail]
                          : "thief " + std::to_string(step.actor) + " " + kThief[step.detail];
  }
  std::string show(const State& s) const {
    return "top " + std::to_string(static_cast<std::int64_t>(s.top)) + " bottom " +
           std::to_string(static_cast<std::int64_t>(s.bottom)) + " done " + std::to_string(s.done[0]) + " " +
           std::to_string(s.done[1]);
  }

 private:
  enum Wrong : std::uint32_t { two_hands = 1, stale, wrong_order };

  static void take(State& s, std::uint32_t item) {
    if (s.taken[item] != 0) s.broken = two_hands;
    s.taken[item] = 1;
  }
  static void release(State& s) {
    for (std::uint32_t i = 0; i < kItems; ++i) s.master[i] = s.victim[i];
  }

  // The owner's part of base/deque.h, access by access. It writes a continuation's data whenever it has it in
  // hand.
  void step_owner(State& s) const {
    Owner& o = s.owner;
    const auto entry = [&]() -> std::uint32_t& { return s.ring[s.bottom & (kEntries - 1)]; };
    switch (o.at) {
      case Owner::decide:
        if (o.item == 0 && o.pushed < kItems) {
          o.item = ++o.pushed;
          take(s, o.item - 1);
          o.at = Owner::write;
        } else {
          o.at = Owner::pop_bottom;
        }
        return;
      case Owner::write:
        s.victim[o.item - 1] = ++s.truth[o.item - 1];
        o.at = Owner::push_entry;
        return;
      case Owner::push_entry:
        entry() = o.item - 1;
        s.taken[o.item - 1] = 0;  // from the next store on any thief may take it
        o.at = Owner::push_bottom;
        return;
      case Owner::push_bottom:
        ++s.bottom;
        o.item = 0;
        o.at = Owner::decide;
        return;
      case Owner::pop_bottom:
        --s.bottom;
        o.at = Owner::pop_top;
        return;
      case Owner::pop_top: {
        o.top = s.top;
        const auto left = static_cast<std::int64_t>(s.bottom - o.top);
        o.at = left > 0 ? Owner::pop_take : left == 0 ? Owner::pop_swap : Owner::pop_restore;
        return;
      }
      case Owner::pop_take: o.item = entry() + 1; return got(s);
      case Owner::pop_swap:
        if (s.top == o.top) {
          ++s.top;
          o.item = entry() + 1;
        }
        o.at = Owner::pop_restore;
        return;
      case Owner::pop_restore:
        ++s.bottom;
        if (o.item != 0) return got(s);
        o.at = Owner::stopped;  // empty
        return;
      case Owner::stopped: return;
    }
  }
  void got(State& s) const {
    Owner& o = s.owner;
    o.top = 0;
    take(s, o.item - 1);
    if (o.rewrites != 0) {
      --o.rewrites;
      o.at = Owner::write;
      return;
    }
    ++s.done[o.item - 1];
    o.item = 0;
    o.at = Owner::decide;
  }

  void step_thief(State& s, Thief& t, const Theft& after, const TheftStep& step, std::uint32_t half) const {
    if (step.kind == TheftStep::Kind::look && t.looking == 0) {
      if (mutation_ == Mutation::release_before_claim) release(s);
      t.looking = half;
      // The other half is read later; until then it is kept beside the result, which the machine must not see
      // yet.
      half_of(t) = half == 1 ? s.bottom : s.top;
      return;
    }
    const std::uint64_t other = half_of(t);
    half_of(t) = 0;
    t.theft = after;
    t.result = t.result2 = 0;
    switch (step.kind) {
      case TheftStep::Kind::look:
        t.result = t.looking == 1 ? s.top : other;
        t.result2 = t.looking == 1 ? other : s.bottom;
        t.looking = 0;
        if (mutation_ == Mutation::look_is_enough && has_work(t.result, t.result2)) skip_bottom(t);
        return;
      case TheftStep::Kind::bottom: t.result = s.bottom; return;
      case TheftStep::Kind::entry: t.result = s.ring[step.index & (kEntries - 1)]; return;
      case TheftStep::Kind::claim:
        t.result = s.top;
        if (s.top != step.index) return;
        ++s.top;
        t.claimed = 1;
        return take(s, raw(step.slot));
      case TheftStep::Kind::ask_release:
        if (mutation_ == Mutation::none || mutation_ == Mutation::no_acquire ||
            mutation_ == Mutation::look_is_enough)
          release(s);
        t.claimed = 2;
        return;
      case TheftStep::Kind::adopt:
        if (t.claimed != 2 || t.adopted != 0) s.broken = wrong_order;
        t.adopted = 1;
        return;
      case TheftStep::Kind::acquire:
        if (t.adopted != 1) s.broken = wrong_order;
        if (mutation_ != Mutation::no_acquire) t.cached = 0;
        return;
      case TheftStep::Kind::sp:
      case TheftStep::Kind::set_rank: return;
      case TheftStep::Kind::arrived:
      case TheftStep::Kind::done: return end(s, t, step);
    }
  }
  static std::uint64_t& half_of(Thief& t) { return t.result; }
  static void skip_bottom(Thief& t) {
    const std::uint64_t bottom = t.result2;
    static_cast<void>(t.theft.next(t.result, t.result2));
    t.result = bottom;
    t.result2 = 0;
  }

  static void end(State& s, Thief& t, const TheftStep& step) {
    if (step.outcome == Steal::taken) {
      const std::uint32_t item = raw(step.slot);
      // what it cached is from before the first write
      const std::uint32_t seen = t.cached != 0 ? 0 : s.master[item];
      if (seen != s.truth[item]) s.broken = stale;
      ++s.done[item];
    }
    const std::uint32_t left = t.attempts - 1;
    t = Thief{};
    t.attempts = left;
    t.cached = 1;  // as old as can be, again
    if (left == 0) t.cached = 0;
  }

  Mutation mutation_;
  std::uint32_t rewrites_, attempts_;
};

model::Outcome walk(Mutation m) {
  const StealModel system(m);
  return model::explore(system, {.states = 30'000'000, .bytes = 3ull << 30});
}

TEST(StealWalk, EachContinuationRunsOnceAndSeesTheLastWrite) {
  const auto o = walk(Mutation::none);
  EXPECT_TRUE(o.ok()) << o.report();
  EXPECT_GT(o.endings, 0u);
  std::cout << o.report() << "\n";
}

TEST(StealWalk, FindsTheReleaseBeforeTheClaim) {
  EXPECT_TRUE(walk(Mutation::release_before_claim).refuted());
}
TEST(StealWalk, FindsTheMissingRelease) { EXPECT_TRUE(walk(Mutation::no_release).refuted()); }
TEST(StealWalk, FindsTheMissingAcquire) { EXPECT_TRUE(walk(Mutation::no_acquire).refuted()); }
TEST(StealWalk, FindsALookThatIsTakenForGood) {
  const auto o = walk(Mutation::look_is_enough);
  EXPECT_TRUE(o.refuted()) << o.report();
}

}  // namespace
}  // namespace kasane::sched
