// SPDX-License-Identifier: Apache-2.0
// Lazy threads (ult/lazy.h), in every order of every step, in two halves.
//
// *Records*: a thread nests fork–joins; the first functions are its own calls, by the shipping next(). At any
// time a thief may want work, the thread may be suspended, there may be no thread left, a function may
// throw, and what was promoted may be taken, begin, or end. Checked: each second function is called once;
// none is called after its frame is gone; no record is in the list while the thread is off its worker.
//
// *Hunger*: a worker makes fork–joins for ever, and stores through a buffer; two thieves look, say that they
// are hungry, fall asleep and are woken, and what they take they keep. Checked: from every state there is a
// way on which both have work; a rule taken away leaves states that have none.
#include "ult/lazy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using ult::LazyAction;
using ult::LazyEvent;
using ult::LazyRecord;

// ---- records ----

enum class RecordRule : std::uint8_t {
  none,
  unlinks_what_it_promotes,  ///< else it stays in the list, and is promoted twice
  looks_before_it_unlinks,   ///< else the end of a promoted record takes the short way
  promotes_at_a_suspend,     ///< else records stay in the list of the worker
  looks_whether_it_ran,      ///< else a thread that ran and is ready again is freed as if it had not
  ends_when_thrown_at,       ///< else a frame that an exception leaves forgets its record
  keeps_what_is_refused,     ///< else a record that found no thread stays linked in the thread's absence
};

constexpr std::uint8_t kDepth = 3;

struct Records {
  RecordRule without = RecordRule::none;

  enum Fate : std::uint8_t { kNone, kQueued, kRuns, kReady, kDone };  // of a promoted record's thread
  struct Frame {
    std::uint64_t thread;  // of the record
    std::uint8_t linked, calls, fate, gone, queue_place, unused[3];
  };
  struct State {
    std::array<Frame, kDepth> frame;
    std::uint8_t depth;      // frames open: fork–joins whose first function is under way
    std::uint8_t away;       // the thread is suspended
    std::uint8_t refusing;   // there is no thread left
    std::uint8_t throws;     // how many exceptions there may still be
    std::uint8_t suspends;   // and suspensions
    std::uint8_t waits_for;  // 1 + the frame whose thread is being joined
    std::uint8_t begun;      // frames that have been opened so far
    std::uint8_t queued;     // number of the youngest in the run queue
  };
  static_assert(sizeof(State) == kDepth * 16 + 8);

  State initial() const {
    State s{};
    s.throws = 1;
    s.suspends = 2;
    return s;
  }
  const char* violation(const State& s) const {
    for (const Frame& f : s.frame) {
      if (f.calls > 1) return "a function is called twice";
      if (f.gone && f.calls == 0) return "a frame is gone and its function was not called";
      if (f.gone && (f.fate == kQueued || f.fate == kRuns || f.fate == kReady))
        return "a frame is gone and its thread has not ended";
      if (s.away && f.linked) return "a record is in the list of a worker that its thread has left";
      if (f.gone && f.linked) return "the list goes through a frame that is gone";
    }
    return nullptr;
  }
  bool finished(const State& s) const { return s.begun == kDepth && s.depth == 0 && s.waits_for == 0; }
  std::string name(const Step& x) const {
    static constexpr const char* kWhat[] = {"begins",  "ends",       "is wanted", "is suspended",
                                            "goes on", "throws",     "no more",   "takes",
                                            "blocks",  "ends there", "is joined", "pops"};
    return std::string(kWhat[x.kind]) + " " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string t;
    for (const Frame& f : s.frame)
      t += "[" + std::to_string(f.thread) + " linked " + std::to_string(f.linked) + " calls " +
           std::to_string(f.calls) + " fate " + std::to_string(f.fate) + "] ";
    return t;
  }

  /// As PoolCore::promote().
  void promote(State& s, std::uint8_t i) const {
    Frame& f = s.frame[i];
    if (s.refusing) {
      const auto step = next(f.thread, LazyEvent::refuse);
      if (without == RecordRule::keeps_what_is_refused) return;
      f.thread = step.next;
      f.linked = 0;
      return;
    }
    // a promotion of what was promoted makes a second thread of it
    if (f.fate != kNone) ++f.calls;
    const auto step = next(f.thread, LazyEvent::promote, (std::uint64_t{2} + i) << 32);
    if (step.action == LazyAction::push) f.thread = step.next;
    f.fate = kQueued;
    f.queue_place = ++s.queued;
    if (without != RecordRule::unlinks_what_it_promotes) f.linked = 0;
  }

  /// As kasane_lazy_end; the frame is gone where it has called its function.
  void end(State& s, std::uint8_t i) const {
    Frame& f = s.frame[i];
    const auto call = [&] {
      ++f.calls;
      f.linked = 0;
      f.gone = 1;
      --s.depth;
    };
    if (without == RecordRule::looks_before_it_unlinks) return call();
    const auto step = next(f.thread, LazyEvent::end);
    if (step.action == LazyAction::unlink_and_call || step.action == LazyAction::call) {
      f.thread = step.next;
      return call();
    }
    const bool newest = (f.fate == kQueued || f.fate == kReady) && f.queue_place == s.queued;
    const bool untaken = newest && (f.fate == kQueued || without == RecordRule::looks_whether_it_ran);
    if (untaken) {
      f.thread = next(f.thread, LazyEvent::end_and_untaken).next;
      if (f.fate == kReady) ++f.calls;  // what it did before is done again
      f.fate = kDone;
      return call();
    }
    // The join suspends the thread if it has to wait.
    s.waits_for = static_cast<std::uint8_t>(i + 1);
    leave(s);
  }
  void leave(State& s) const {
    s.away = 1;
    if (without == RecordRule::promotes_at_a_suspend) return;
    for (std::uint8_t i = 0; i < kDepth; ++i)
      if (s.frame[i].linked) promote(s, i);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    const auto to = [&](std::uint16_t kind, std::uint8_t detail, auto&& change) {
      State n = s;
      change(n);
      emit(n, Step{kind, 0, detail});
    };
    if (!s.away) {
      if (s.begun < kDepth)
        to(0, s.begun, [](State& n) {
          n.frame[n.begun].linked = 1;
          ++n.begun;
          ++n.depth;
        });
      const std::uint8_t top = innermost(s);
      if (s.depth != 0) {
        to(1, top, [&](State& n) { end(n, top); });
        if (s.throws != 0)
          to(5, top, [&](State& n) {
            --n.throws;
            if (without != RecordRule::ends_when_thrown_at) return end(n, top);
            n.frame[top].gone = 1;
            --n.depth;
          });
      }
      for (std::uint8_t i = 0; i < kDepth; ++i) {  // the oldest
        if (!s.frame[i].linked) continue;
        to(2, i, [&](State& n) { promote(n, i); });
        break;
      }
      if (s.suspends != 0)
        to(3, 0, [&](State& n) {
          --n.suspends;
          leave(n);
        });
    } else if (s.waits_for == 0) {
      to(4, 0, [](State& n) { n.away = 0; });
    } else if (s.frame[s.waits_for - 1].fate == kDone) {
      to(10, static_cast<std::uint8_t>(s.waits_for - 1), [](State& n) {
        n.frame[n.waits_for - 1].gone = 1;
        n.waits_for = n.away = 0;
        --n.depth;
      });
    }
    if (!s.refusing) to(6, 0, [](State& n) { n.refusing = 1; });
    for (std::uint8_t i = 0; i < kDepth; ++i) {
      const Fate fate{static_cast<Fate>(s.frame[i].fate)};
      if (fate == kQueued)
        to(7, i, [&](State& n) {
          n.frame[i].fate = kRuns;
          ++n.frame[i].calls;
        });
      if (fate == kReady) to(7, i, [&](State& n) { n.frame[i].fate = kRuns; });
      if (fate == kRuns) {
        to(8, i, [&](State& n) {
          n.frame[i].fate = kReady;
          n.frame[i].queue_place = n.queued;
        });
        to(9, i, [&](State& n) { n.frame[i].fate = kDone; });
      }
    }
  }
  /// The youngest frame that is not gone.
  static std::uint8_t innermost(const State& s) {
    std::uint8_t i = s.begun;
    while (i != 0 && s.frame[i - 1].gone) --i;
    return i == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(i - 1);
  }
  bool circles() const { return true; }
};

TEST(LazyRecords, EachFunctionIsCalledOnceWhileItsFrameIsThere) { expect_sound(Records{}); }
TEST(LazyRecords, EachRuleIsNeeded) {
  expect_needed<Records>({RecordRule::unlinks_what_it_promotes, RecordRule::looks_before_it_unlinks,
                          RecordRule::promotes_at_a_suspend, RecordRule::looks_whether_it_ran,
                          RecordRule::ends_when_thrown_at, RecordRule::keeps_what_is_refused});
}

TEST(LazyRecords, WhatCannotBeIsRefused) {
  constexpr std::uint64_t kThread = std::uint64_t{3} << 32;
  for (const std::uint64_t state : {LazyRecord::kKept, kThread}) {
    EXPECT_EQ(next(state, LazyEvent::promote, kThread).action, LazyAction::wrong);
    EXPECT_EQ(next(state, LazyEvent::refuse).action, LazyAction::wrong);
  }
  for (const std::uint64_t state : {LazyRecord::kLinked, LazyRecord::kKept})
    EXPECT_EQ(next(state, LazyEvent::end_and_untaken).action, LazyAction::wrong);
}

// ---- hunger ----

enum class HungerRule : std::uint8_t {
  none,
  tells_at_the_last_look,  ///< a worker that falls asleep says once more that it is hungry
  orders_the_last_look,    ///< the membarrier between the announcement and that
  resets_before_it_looks,  ///< the owner clears `wanted` before it looks at who sleeps, not after
  wakes,                   ///< a promotion wakes a sleeper
};

struct Hunger {
  HungerRule without = HungerRule::none;

  struct Thief {
    std::uint8_t at, seen;
  };
  struct State {
    std::array<Thief, 2> thief;
    std::uint8_t owner, sees;          // its place; the sleepers that it has seen
    std::uint8_t wanted, items;        // as all see them
    std::uint8_t buffer[2], buffered;  // the owner's stores, the oldest first
    std::uint8_t asleep, bell, fed, more[2];
  };
  static_assert(sizeof(State) == 16);

  enum : std::uint8_t {
    kLook,
    kTell,
    kSeen,
    kAnnounce,
    kBarrier,
    kTellAgain,
    kLastLook,
    kSleep,
    kForget,
    kFed
  };
  enum : std::uint8_t { kCall, kReset, kPush, kLookAround, kWake, kLateReset };
  enum : std::uint8_t { kClear = 1, kItem = 2 };

  State initial() const { return {}; }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State& s) const { return s.fed == 2; }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return (x.actor == 2 ? "owner at " : x.actor == 3 ? "buffer " : "thief at ") + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    return "wanted " + std::to_string(s.wanted) + " items " + std::to_string(s.items) + " asleep " +
           std::to_string(s.asleep) + " buffered " + std::to_string(s.buffered);
  }

  static void flush_one(State& n) {
    if (n.buffer[0] == kClear) n.wanted = 0;
    if (n.buffer[0] == kItem) ++n.items;
    n.buffer[0] = n.buffer[1];
    n.buffer[1] = 0;
    --n.buffered;
  }
  static void store(State& n, std::uint8_t what) { n.buffer[n.buffered++] = what; }
  /// What the owner itself reads.
  static bool is_wanted(const State& s) {
    return s.wanted != 0 && s.buffer[0] != kClear && s.buffer[1] != kClear;
  }
  static int offered(const State& s) { return s.items + (s.buffer[0] == kItem) + (s.buffer[1] == kItem); }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < 2; ++t) thief(s, t, emit);
    owner(s, emit);
    if (s.buffered != 0) {
      State n = s;
      flush_one(n);
      emit(n, Step{0, 3, s.buffer[0]});
    }
  }

  template <class Emit>
  void owner(const State& s, Emit&& emit) const {
    State n = s;
    const Step step{0, 2, s.owner};
    const auto go = [&](std::uint8_t at) {
      n.owner = at;
      emit(n, step);
    };
    const bool late = without == HungerRule::resets_before_it_looks;
    switch (s.owner) {
      case kCall: return is_wanted(s) ? go(late ? kPush : kReset) : void();
      case kReset:
        if (s.buffered == 2) return;
        store(n, kClear);
        return go(kPush);
      case kPush:
        if (offered(s) != 0) return go(kLookAround);
        if (s.buffered == 2) return;
        store(n, kItem);
        return go(kLookAround);
      case kLookAround: n.sees = s.asleep; return go(late ? kLateReset : kWake);
      case kLateReset:
        if (s.buffered == 2) return;
        store(n, kClear);
        return go(kWake);
      default:
        if (s.sees != 0 && without != HungerRule::wakes) {
          while (n.buffered != 0) flush_one(n);  // a wake-up has a locked instruction
          ++n.bell;
          n.bell %= 8;
        }
        n.sees = 0;
        return go(kCall);
    }
  }

  template <class Emit>
  void thief(const State& s, std::uint8_t t, Emit&& emit) const {
    State n = s;
    Thief& me = n.thief[t];
    const Step step{0, t, me.at};
    const auto go = [&](std::uint8_t at) {
      me.at = at;
      emit(n, step);
    };
    const auto take = [&] {
      --n.items;
      ++n.fed;
      go(kFed);
    };
    switch (me.at) {
      case kLook: return s.items != 0 ? take() : go(kTell);
      case kTell: n.wanted = 1; return go(kSeen);
      case kSeen: me.seen = s.bell; return go(kAnnounce);
      case kAnnounce: ++n.asleep; return go(kBarrier);
      case kBarrier:
        if (without != HungerRule::orders_the_last_look)
          while (n.buffered != 0) flush_one(n);
        return go(kTellAgain);
      case kTellAgain:
        if (without != HungerRule::tells_at_the_last_look) n.wanted = 1;
        return go(kLastLook);
      case kLastLook: return go(s.items != 0 ? kForget : kSleep);
      case kSleep: return s.bell != me.seen ? go(kForget) : void();
      case kForget: --n.asleep; return go(kLook);
      default: return;
    }
  }
};

TEST(LazyHunger, NobodySleepsWhileThereIsWorkToOffer) { expect_sound(Hunger{}); }
TEST(LazyHunger, EachRuleIsNeeded) {
  expect_needed<Hunger>({HungerRule::tells_at_the_last_look, HungerRule::orders_the_last_look,
                         HungerRule::resets_before_it_looks, HungerRule::wakes});
}

}  // namespace
}  // namespace kasane::model
