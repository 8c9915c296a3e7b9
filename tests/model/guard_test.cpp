// SPDX-License-Identifier: Apache-2.0
// Function statics (ult/sync/guard_word.h): three threads want an object at once, in every order of every
// access; each initialisation may throw once. A thread that waits prepares, looks at the guard again, and
// sleeps until a wake-up that came since (ult/sync/watch.h).
//
// Checked: one thread initialises at a time and one succeeds, no thread returns before, and all return.
#include "ult/sync/guard_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using ult::GuardAction;
using ult::GuardEvent;
using ult::GuardWord;

enum class Without : std::uint8_t {
  none,
  waking_on_abort,  ///< an initialisation that threw wakes no thread
  looking_again,    ///< between preparing and sleeping a thread does not look at the guard
  awaited,          ///< … or only looks whether a thread initialises
  busy,             ///< a second thread initialises, too
};

struct Guards {
  Without without = Without::none;
  enum : std::uint8_t { kCall, kInitialise, kLeave, kAbort, kWake, kPrepare, kLook, kSleep, kReturned };
  struct State {
    std::uint64_t word;
    std::array<std::uint8_t, 3> at, epoch;
    std::uint8_t now, threw, initialised, unused[7];
  };

  State initial() const { return {}; }
  const char* violation(const State& s) const {
    int initialising = 0;
    for (const auto at : s.at) {
      initialising += at == kInitialise;
      if (at == kReturned && s.initialised != 1)
        return "a thread has returned, and the object is not initialised once";
    }
    return initialising > 1 ? "two threads initialise" : nullptr;
  }
  bool finished(const State& s) const {
    return s.at[0] == kReturned && s.at[1] == kReturned && s.at[2] == kReturned;
  }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + " at " + std::to_string(x.detail);
  }
  std::string show(const State& s) const { return "word " + std::to_string(s.word); }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < 3; ++t) step(s, t, emit);
  }
  template <class Emit>
  void step(const State& s, std::uint8_t t, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t at) {
      n.at[t] = at;
      emit(n, Step{0, t, s.at[t]});
    };
    const auto leave = [&](GuardEvent event, bool wakes) {
      const auto left = next(GuardWord::unpack(s.word), event);
      n.word = left.next.pack();
      return wakes && left.action == GuardAction::wake;
    };
    switch (s.at[t]) {
      case kCall: {
        GuardWord seen = GuardWord::unpack(s.word);
        if (without == Without::busy) seen.busy = false;
        const auto step = next(seen, GuardEvent::acquire, t + 1u);
        n.word = step.next.pack();
        if (step.action == GuardAction::initialised) return go(kReturned);
        return go(step.action == GuardAction::initialise ? kInitialise : kPrepare);
      }
      case kInitialise:
        ++n.initialised;
        go(kLeave);
        n = s;
        if (s.threw == 2) return;
        ++n.threw;
        return go(kAbort);
      case kLeave: return go(leave(GuardEvent::release_shared, true) ? kWake : kReturned);
      case kAbort:
        // the exception leaves, and the thread calls again
        if (leave(GuardEvent::abort, without != Without::waking_on_abort)) ++n.now;
        return go(kCall);
      case kWake: ++n.now; return go(kReturned);
      case kPrepare: n.epoch[t] = s.now; return go(without == Without::looking_again ? kSleep : kLook);
      case kLook: {
        const GuardWord seen = GuardWord::unpack(s.word);
        return go((without == Without::awaited ? seen.busy : may_sleep(seen)) ? kSleep : kCall);
      }
      case kSleep:
        if (s.epoch[t] == s.now) return;
        n.epoch[t] = 0;
        return go(kCall);
      default: return;
    }
  }
};

TEST(Guard, OneThreadInitialisesAndAllReturn) { expect_sound(Guards{}); }

TEST(Guard, WithoutARuleAThreadWaitsForEverOrReturnsTooEarly) {
  expect_needed<Guards>({Without::waking_on_abort, Without::looking_again, Without::awaited, Without::busy});
}

TEST(Guard, AThreadThatComesAgainIsTold) {
  const auto first = next(GuardWord{}, GuardEvent::acquire, 7);
  EXPECT_EQ(first.action, GuardAction::initialise);
  EXPECT_EQ(next(first.next, GuardEvent::acquire, 7).action, GuardAction::recursive);
  EXPECT_EQ(next(first.next, GuardEvent::acquire, 8).action, GuardAction::wait);
}

/// Compilers look at the first byte: of a guard of several ranks it stays 0.
TEST(Guard, OnlyOneRanksGuardShowsTheInlineTestThatItIsReady) {
  EXPECT_EQ(next(GuardWord{.busy = true}, GuardEvent::release).next.pack(), 1u);
  EXPECT_EQ(next(GuardWord{.busy = true}, GuardEvent::release_shared).next.pack() & 0xFF, 0u);
}

}  // namespace
}  // namespace kasane::model
