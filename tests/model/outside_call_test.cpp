// SPDX-License-Identifier: Apache-2.0
// Calls that OS threads make for threads (ult/outside_call.h): a worker has two calls made by one caller, one
// after the other, in every order of every access. Nothing but an interruption ends the first call; a handler
// of the program's runs on the worker once, while the first call is under way, and rings. The caller sleeps
// on its word, the worker by the number of its doorbell. A signal to the caller takes effect at any time
// after it was sent, at the next system call's end at the latest. Or the pool ends instead of waiting for the
// result.
//
// Checked: both calls end, the second not by an interruption; and nothing of the pool is touched when it has
// ended.
#include "ult/outside_call.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "model/walk.h"
#include "runtime/process/descriptor_turns.h"

namespace kasane::model {
namespace {

using ult::OutsideAction;
using ult::OutsideEvent;
using ult::OutsideState;
using ult::OutsideWord;

enum class Without : std::uint8_t {
  none,
  again,       ///< a signal is sent once
  cancelling,  ///< a call that has not begun is not interrupted
  flushing,    ///< the caller does not let signals of the last call arrive
  ringing,     ///< a result is delivered without a ring
  looking,     ///< the worker does not look before it sleeps
  delivering,  ///< the pool ends while a caller delivers
};

struct Calls {
  Without without = Without::none;
  bool pool_ends = false;

  enum : std::uint8_t { kAsk, kSearch, kTell, kSeen, kLook, kSleep, kEndPool, kDone };  // the worker
  enum : std::uint8_t {
    kIdle,
    kFutex,
    kFlush,
    kCall,
    kKernel,
    kReport,
    kDeliver,
    kRing,
    kLeave,
    kQuit,
    kAsleep
  };
  struct State {
    std::uint32_t word, slept_on;
    std::uint8_t worker, caller;
    std::uint8_t call, handlers, handled, signals;  // number of the call; handlers left, not yet seen; again
    std::uint8_t asleep, pending, interrupted, result, delivered, delivers;
    std::uint8_t bell, seen, gone, unused;
  };
  static_assert(sizeof(State) == 24);

  State initial() const {
    State s{};
    s.handlers = 1;
    return s;
  }
  const char* violation(const State& s) const {
    if (s.call == 1 && s.result == 2) return "a call that was not interrupted ends with EINTR";
    if (s.gone == 2) return "a caller touches a pool that has ended";
    return nullptr;
  }
  bool finished(const State& s) const {
    if (s.worker != kDone) return false;
    return s.gone == 0 ? s.asleep != 0 : s.caller == kQuit || s.caller == kKernel;  // its call may never end
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    static constexpr const char* kWho[] = {"worker", "caller", "handler", "signal"};
    return std::string(kWho[x.actor]) + " at " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    return "word " + std::to_string(s.word) + " pending " + std::to_string(s.pending) + " call " +
           std::to_string(s.call) + " result " + std::to_string(s.result);
  }

  OutsideAction step(State& s, OutsideEvent event) const {
    const auto [word, action] = next(OutsideWord::unpack(s.word), event);
    s.word = word.pack();
    if (action == OutsideAction::wake) s.asleep = 0;
    return action;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    worker(s, emit);
    caller(s, emit);
    const bool waits = s.worker >= kSearch && s.worker <= kSleep;
    if (s.handlers != 0 && s.call == 0 && waits) {
      State n = s;
      --n.handlers;
      ++n.handled;
      ++n.bell;
      emit(n, Step{0, 2, 0});
    }
    if (s.pending != 0 && s.caller != kKernel) {  // outside of a call it has no effect
      State n = s;
      n.pending = n.asleep = 0;
      emit(n, Step{0, 3, 0});
    }
  }

  template <class Emit>
  void worker(const State& s, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t at) {
      n.worker = at;
      emit(n, Step{0, 0, s.worker});
    };
    switch (s.worker) {
      case kAsk:
        n.result = 0;
        step(n, OutsideEvent::ask);
        return go(kSearch);
      case kSearch:
        if (pool_ends) go(kEndPool);
        n = s;
        if (s.handled != 0 || s.signals != 0) {
          n.handled = n.signals = 0;
          if (s.handled != 0) n.interrupted = 1;
          const auto state = OutsideWord::unpack(s.word).state;
          if (without == Without::cancelling && state == OutsideState::asked) return go(kSearch);
          return go(step(n, OutsideEvent::interrupt) == OutsideAction::signal ? kTell : kSearch);
        }
        if (s.delivered == 0) return go(kSeen);
        n.delivered = 0;
        n.result = 0;
        step(n, OutsideEvent::take);
        ++n.call;
        return go(n.call == 2 ? kDone : kAsk);
      case kTell:
        n.pending = 1;
        n.signals = without != Without::again;
        return go(kSeen);
      case kSeen: n.seen = s.bell; return go(without == Without::looking ? kSleep : kLook);
      case kLook: return go(s.delivered != 0 || s.handled != 0 ? kSearch : kSleep);
      case kSleep:
        if (s.bell == s.seen && s.signals == 0) return;
        n.bell = n.seen = 0;
        return go(kSearch);
      case kEndPool: {
        const auto state = OutsideWord::unpack(s.word).state;
        const bool in_call = state == OutsideState::runs || state == OutsideState::told;
        if (!in_call && s.delivers != 0 && without != Without::delivering) return;
        step(n, OutsideEvent::leave);
        n.gone = 1;
        return go(kDone);
      }
      default: return;
    }
  }

  template <class Emit>
  void caller(const State& s, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t at) {
      n.caller = at;
      emit(n, Step{0, 1, s.caller});
    };
    switch (s.caller) {
      case kIdle: {
        const auto state = OutsideWord::unpack(s.word).state;
        if (state == OutsideState::free || state == OutsideState::ended) {
          n.slept_on = s.word;
          return go(kFutex);
        }
        switch (step(n, OutsideEvent::begin)) {
          case OutsideAction::quit: return go(kQuit);
          case OutsideAction::refuse: n.result = 2; return go(kReport);
          case OutsideAction::flush: return go(without == Without::flushing ? kCall : kFlush);
          default: return go(kCall);
        }
      }
      case kFutex:
        n.slept_on = 0;
        if (s.slept_on != s.word) return go(kIdle);
        n.asleep = 1;
        return go(kAsleep);
      case kAsleep:
        if (s.asleep == 0) go(kIdle);
        return;
      case kFlush: n.pending = 0; return go(kCall);
      case kCall: return go(kKernel);
      case kKernel:
        if (s.pending != 0) {
          n.pending = 0;
          n.result = 2;
          go(kReport);
        }
        n = s;
        if (s.call == 0) return;
        n.result = 1;
        return go(kReport);
      case kReport:
        n.delivers = 1;
        if (step(n, OutsideEvent::end) == OutsideAction::quit) return go(kQuit);
        return go(kDeliver);
      case kDeliver:
        n.delivered = 1;
        n.gone = s.gone != 0 ? 2 : 0;
        return go(kRing);
      case kRing:
        if (without != Without::ringing) ++n.bell;
        n.gone = s.gone != 0 ? 2 : 0;
        return go(kLeave);
      case kLeave: n.delivers = 0; return go(kIdle);
      default: return;
    }
  }
};

TEST(OutsideCall, EachCallEndsAndAnInterruptionEndsItsOwn) { expect_sound(Calls{}); }
TEST(OutsideCall, AndThePoolMayEndAtAnyTime) { expect_sound(Calls{.pool_ends = true}); }

TEST(OutsideCall, WithoutARuleACallNeverEndsOrEndsWrongly) {
  expect_needed<Calls>(
      {Without::again, Without::cancelling, Without::flushing, Without::ringing, Without::looking});
  expect_refuted(Without::delivering, explore(Calls{Without::delivering, true}));
}

// ---- runtime/process/descriptor_turns.h ----

using runtime::DescriptorTurns;
using runtime::TurnAction;
using runtime::TurnEvent;

enum class TurnsWithout : std::uint8_t {
  none,
  order,  ///< each looks when it likes
  again,  ///< a call outside begins while a thread looks
};

/// Three threads of a rank, each on a worker, read a byte each of one pipe, into which three bytes come.
struct Readers {
  TurnsWithout without = TurnsWithout::none;
  enum : std::uint8_t { kEnter, kLook, kRead, kOutside, kCalled, kEnd, kDone };
  struct State {
    std::uint32_t word;
    std::uint8_t at[3], bytes, coming, unused[3];
  };
  static_assert(sizeof(State) == 12);
  State initial() const {
    State s{};
    s.coming = 3;
    return s;
  }
  const char* violation(const State& s) const {
    for (const auto at : s.at)
      if (at == kRead && s.bytes == 0) return "a read on a worker waits";
    return nullptr;
  }
  bool finished(const State& s) const {
    return s.at[0] + s.at[1] + s.at[2] == 3 * kDone && (s.word == 0 || without != TurnsWithout::none);
  }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + " at " + std::to_string(x.detail);
  }
  std::string show(const State& s) const { return "bytes " + std::to_string(s.bytes); }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    if (s.coming != 0) {
      State n = s;
      --n.coming;
      ++n.bytes;
      emit(n, Step{0, 3, 0});
    }
    for (std::uint8_t t = 0; t < 3; ++t) thread(s, t, emit);
  }
  template <class Emit>
  void thread(const State& s, std::uint8_t t, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t at) {
      n.at[t] = at;
      emit(n, Step{0, t, s.at[t]});
    };
    const auto step = [&](TurnEvent event) {
      const auto [turns, action] = next(DescriptorTurns::unpack(s.word), event);
      n.word = turns.pack();
      return action;
    };
    switch (s.at[t]) {
      case kEnter: {
        if (without == TurnsWithout::order) return go(kLook);
        const TurnAction action = step(TurnEvent::enter);
        if (action == TurnAction::look) return go(kLook);
        if (action == TurnAction::outside) return go(kOutside);
        if (without != TurnsWithout::again) return;  // it enters again: no other state
        n.word = s.word + 2;
        return go(kOutside);
      }
      case kLook:
        if (s.bytes != 0) return go(kRead);
        step(TurnEvent::go_outside);
        return go(kOutside);
      case kRead:
      case kOutside:
        if (s.bytes == 0) return;
        --n.bytes;
        return go(s.at[t] == kRead ? kCalled : kEnd);
      case kCalled: step(TurnEvent::called); return go(kDone);
      case kEnd: step(TurnEvent::end); return go(kDone);
      default: return;
    }
  }
};

TEST(DescriptorTurns, NoReadOnAWorkerWaits) { expect_sound(Readers{}); }
TEST(DescriptorTurns, WithoutTheOrderAReadWaits) {
  expect_needed<Readers>({TurnsWithout::order, TurnsWithout::again});
}

}  // namespace
}  // namespace kasane::model
