// SPDX-License-Identifier: Apache-2.0
// The word of a bound thread (runtime/process/bound_thread.h): a thread that ends; one that joins it, with a
// deadline after which it may join again or detach; one that tries to join or to detach at any time. A
// thread that is to wait compares the word and sleeps in one step, as futex_calls.h promises.
//
// Checked: the record is freed once, by nobody before the end of the thread, and nobody changes its word
// afterwards; who waits goes on; all end.
#include "runtime/process/bound_thread.h"

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
  over,             ///< who comes after the end takes the record from the joiner that waits
  waking,           ///< the end wakes nobody
  awaited,          ///< a joiner does not say that it waits
  one_joiner,       ///< a second joiner is not refused
  end_of_detached,  ///< the end of a detached thread leaves the record
  late_end,         ///< a deadline hides that the thread has ended
};

struct BoundModel {
  Without without = Without::none;

  enum : std::uint8_t { kStart, kSleeps, kAsleep, kLooks, kWakes, kEnd };
  struct State {
    std::uint32_t word;
    std::uint8_t thread;                 ///< kStart, kWakes, kEnd
    std::array<std::uint8_t, 2> joiner;  ///< places
    std::array<std::uint8_t, 2> tries;   ///< that are left
    std::uint8_t freed, used_after, detached;
  };
  static State initial() { return {0, kStart, {kStart, kStart}, {2, 2}, 0, 0, 0}; }
  const char* violation(const State& s) const {
    if (s.freed > 1) return "the record is freed twice";
    if (s.freed != 0 && s.thread == kStart) return "it is freed before the thread's end";
    if (s.used_after != 0) return "it is used after that";
    return nullptr;
  }
  bool finished(const State& s) const {
    return s.thread == kEnd && s.joiner[0] == kEnd && s.joiner[1] == kEnd && (s.freed == 1 || undecided(s));
  }
  /// Nobody has joined or detached it: as in a program, it is never freed.
  static bool undecided(const State& s) { return BoundState{s.word} == BoundState::ended && s.detached == 0; }
  std::string name(const Step& x) const {
    return "actor " + std::to_string(x.actor) + " does " + std::to_string(x.kind);
  }
  std::string show(const State& s) const { return "word " + std::to_string(s.word); }

  BoundAction take(State& s, BoundEvent event) const {
    const BoundState now{s.word};
    s.used_after = now == BoundState::gone ? 1 : s.used_after;
    const bool taken = without == Without::over && now == BoundState::over;
    BoundStep step = next(taken ? BoundState::ended : now, event);
    if (without == Without::awaited && event == BoundEvent::join && now == BoundState::running)
      step.next = BoundState::running;
    if (without == Without::one_joiner && event == BoundEvent::join && now == BoundState::awaited)
      step.action = BoundAction::wait;
    if (without == Without::end_of_detached && event == BoundEvent::end && now == BoundState::detached)
      step = {BoundState::ended, BoundAction::none};
    if (without == Without::late_end && event == BoundEvent::give_up && now == BoundState::over)
      step = {BoundState::running, BoundAction::busy};
    s.word = static_cast<std::uint32_t>(step.next);
    if (step.action == BoundAction::free) ++s.freed;
    if (step.next == BoundState::detached) s.detached = 1;
    return step.action;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    if (s.thread == kStart) {
      State n = s;
      n.thread = take(n, BoundEvent::end) == BoundAction::wake ? kWakes : kEnd;
      emit(n, Step{0, 2, 0});
    }
    if (s.thread == kWakes) {
      State n = s;
      n.thread = kEnd;
      if (without != Without::waking)
        for (auto& at : n.joiner) at = at == kAsleep ? std::uint8_t{kLooks} : at;
      emit(n, Step{1, 2, 0});
    }
    for (std::uint8_t j = 0; j < 2; ++j) join(s, j, emit);
  }

  template <class Emit>
  void join(const State& s, std::uint8_t j, Emit&& emit) const {
    const auto go = [&](State n, std::uint8_t to, std::uint8_t kind) {
      n.joiner[j] = to;
      emit(n, Step{kind, j, 0});
    };
    switch (s.joiner[j]) {
      case kStart: {
        if (gone(s)) return go(s, kEnd, 9);  // its number is no thread's
        for (const BoundEvent event : {BoundEvent::join, BoundEvent::try_join, BoundEvent::detach}) {
          State n = s;
          const BoundAction action = take(n, event);
          const std::uint8_t again = --n.tries[j] != 0 ? kStart : kEnd;
          go(n,
             action == BoundAction::wait   ? std::uint8_t{kSleeps}
             : action == BoundAction::busy ? again
                                           : std::uint8_t{kEnd},
             static_cast<std::uint8_t>(event));
        }
        return;
      }
      case kSleeps:
        return go(s, BoundState{s.word} == expected() ? std::uint8_t{kAsleep} : std::uint8_t{kLooks}, 6);
      case kAsleep: return s.tries[j] != 0 ? look(s, j, BoundEvent::give_up, emit) : void();
      case kLooks: return look(s, j, BoundEvent::look, emit);
      default: return;
    }
  }
  template <class Emit>
  void look(State n, std::uint8_t j, BoundEvent event, Emit&& emit) const {
    const BoundAction action = take(n, event);
    n.joiner[j] = action == BoundAction::wait ? kSleeps : action == BoundAction::busy ? kStart : kEnd;
    emit(n, Step{static_cast<std::uint8_t>(event), j, 0});
  }
  [[nodiscard]] BoundState expected() const {
    return without == Without::awaited ? BoundState::running : BoundState::awaited;
  }
  static bool gone(const State& s) { return BoundState{s.word} == BoundState::gone; }
};

TEST(BoundThread, IsFreedOnceAfterItsEnd) { expect_sound(BoundModel{}); }

TEST(BoundThread, EachRuleIsNeeded) {
  expect_needed<BoundModel>({Without::over, Without::waking, Without::awaited, Without::one_joiner,
                             Without::end_of_detached, Without::late_end});
}

}  // namespace
}  // namespace kasane::model
