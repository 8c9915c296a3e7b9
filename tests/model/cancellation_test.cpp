// SPDX-License-Identifier: Apache-2.0
// The state by which a thread is cancelled (runtime/language/cancellation.h): a thread that goes through
// waits, one of them with cancellation disabled, and a signal handler in a wait that has a wait of its own;
// and two that cancel it, and rouse it until it has left its wait. What rouses it where it does not sleep is
// lost. Nothing else ends its last wait.
//
// Checked: the thread ends, once, where it may end; who cancels it goes on.
#include "runtime/language/cancellation.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using namespace runtime;  // NOLINT(google-build-using-namespace): the function that is walked

enum class Without : std::uint8_t {
  none,
  again,     ///< who cancels rouses once
  looking,   ///< a thread that has been asked enters its wait
  disabled,  ///< the thread ends where it is disabled
  leaving,   ///< a thread that has left its wait is roused for ever
  nesting,   ///< a handler's wait ends the wait that it interrupts
};

struct CancelModel {
  Without without = Without::none;

  // The thread's places: it disables, waits and enables; then waits for ever.
  enum : std::uint8_t { kDisable, kEnter, kWait, kAsleep, kHandler, kLeave, kTest, kEnable, kEnd };
  enum : std::uint8_t { kCancel, kRouse, kDone };
  struct State {
    CancelState state;
    std::uint8_t place, round, entered, handled, ends, wrong;
    std::array<std::uint8_t, 2> other;
  };
  static State initial() { return {CancelState::open, kDisable, 0, 0, 0, 0, 0, {kCancel, kCancel}}; }
  const char* violation(const State& s) const {
    if (s.ends > 1) return "the thread ends twice";
    if (s.wrong != 0) return "the thread ends where cancellation is disabled";
    return nullptr;
  }
  bool finished(const State& s) const {
    return s.place == kEnd && s.other[0] == kDone && s.other[1] == kDone;
  }
  static bool circles() { return true; }
  std::string name(const Step& x) const {
    return "actor " + std::to_string(x.actor) + " at " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    return "state " + std::to_string(static_cast<int>(s.state)) + " place " + std::to_string(s.place);
  }

  static CancelAction take(State& s, CancelEvent event) {
    const CancelStep step = next(s.state, event);
    s.state = step.next;
    return step.action;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    thread(s, emit);
    for (std::uint8_t i = 0; i < 2; ++i) other(s, i, emit);
  }

  template <class Emit>
  void thread(const State& s, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t to) {
      n.place = to;
      emit(n, Step{0, 0, s.place});
    };
    switch (s.place) {
      case kDisable:
        if (s.round == 0 && without != Without::disabled) take(n, CancelEvent::disable);
        return go(kEnter);
      case kEnter: {
        const CancelAction action = take(n, CancelEvent::enter);
        n.entered = action == CancelAction::wait ? 1 : 0;
        return go(action == CancelAction::end && without != Without::looking ? kTest : kWait);
      }
      case kWait:
        if (s.handled == 0) {
          n.handled = 1;
          go(kHandler);
          n = s;
        }
        return go(s.round == 0 ? kLeave : kAsleep);  // its first wait ends by itself
      case kHandler: {
        const bool entered = take(n, CancelEvent::enter) == CancelAction::wait;
        if (entered || without == Without::nesting) take(n, CancelEvent::leave);
        return go(kWait);
      }
      case kLeave: {
        const bool left = s.entered != 0 && take(n, CancelEvent::leave) == CancelAction::end;
        n.entered = 0;
        if (!left && s.round == 1) return go(kEnter);  // woken for nothing
        return go(left ? kTest : kEnable);
      }
      case kTest:
        if (take(n, CancelEvent::test) != CancelAction::end) return go(kEnter);
        ++n.ends;
        n.wrong = s.round == 0 ? 1 : 0;
        return go(kEnd);
      case kEnable:
        take(n, CancelEvent::enable);
        n.round = 1;
        return go(kDisable);
      default: return;
    }
  }

  template <class Emit>
  void other(const State& s, std::uint8_t i, Emit&& emit) const {
    if (s.other[i] == kDone) return;
    State n = s;
    if (s.other[i] == kCancel) take(n, CancelEvent::cancel);
    const bool waits = n.state == CancelState::told;
    if (waits && s.place == kAsleep) n.place = kLeave;
    const bool goes_on = without == Without::leaving ? n.state != CancelState::open : waits;
    n.other[i] = goes_on && without != Without::again ? kRouse : kDone;
    emit(n, Step{1, i, s.other[i]});
  }
};

TEST(Cancellation, EndsTheThreadOnceWhereItMayEnd) { expect_sound(CancelModel{}); }

TEST(Cancellation, EachRuleIsNeeded) {
  expect_needed<CancelModel>(
      {Without::again, Without::looking, Without::disabled, Without::leaving, Without::nesting});
}

}  // namespace
}  // namespace kasane::model
