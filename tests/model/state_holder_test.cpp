// SPDX-License-Identifier: Apache-2.0
// The state that one rank holds at a time (runtime/process/state_holder.h): each of three ranks uses it a few
// times, in every order of questions and answers. Questions are answered at once by the rank asked, as its
// handler does; between two steps of one rank the others may do anything.
//
// Checked: each use finds what the use before has left, no two ranks hold the state, and all come to an end.
#include "runtime/process/state_holder.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using runtime::Holder;
using runtime::HolderAction;
using runtime::HolderEvent;

enum class Without : std::uint8_t {
  none,
  refusal,  ///< a rank gives what has yet to come to it
  giving,   ///< a rank that gives the state still uses it
  last,     ///< rank 0 names itself as the last in the queue
  taking,   ///< a rank that comes to the state does not take it, and never gives it
};

constexpr std::uint8_t kRanks = 3, kUses = 3;

struct Ranks {
  Without without = Without::none;
  enum : std::uint8_t { kWant, kAskLast, kAskState, kRead, kDone };
  struct State {
    std::array<Holder, kRanks> holder;
    std::array<std::uint8_t, kRanks> value, at, uses, predecessor;
    std::uint8_t last, used;
    bool lost;
  };

  State initial() const {
    State s{};
    s.holder[0].stage = Holder::Stage::held;
    return s;
  }
  const char* violation(const State& s) const {
    int holders = 0;
    for (const Holder& h : s.holder) holders += h.stage == Holder::Stage::held ? 1 : 0;
    if (holders > 1) return "two ranks hold the state";
    return s.lost ? "a use was lost" : nullptr;
  }
  bool circles() const { return true; }
  bool finished(const State& s) const { return s.at[0] == kDone && s.at[1] == kDone && s.at[2] == kDone; }
  std::string name(const Step& x) const {
    return "rank " + std::to_string(x.actor) + " at " + std::to_string(x.kind);
  }
  std::string show(const State& s) const {
    std::string text;
    for (std::uint8_t r = 0; r < kRanks; ++r)
      text += std::to_string(static_cast<int>(s.holder[r].stage)) + ":" + std::to_string(s.uses[r]) + " ";
    return text;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t r = 0; r < kRanks; ++r)
      if (s.at[r] != kDone) step(s, r, emit);
  }
  static void use(State& s, std::uint8_t r) {
    s.lost |= s.value[r] != s.used;
    s.value[r] = ++s.used;
    s.at[r] = ++s.uses[r] == kUses ? kDone : kWant;
  }
  HolderAction after(State& s, std::uint8_t r, HolderEvent event) const {
    const Holder before = s.holder[r];
    auto [holder, action] = next(before, event);
    if (event == HolderEvent::asked) {
      if (without == Without::refusal && action == HolderAction::refuse) action = HolderAction::give;
      if (without == Without::giving && action == HolderAction::give) holder = before;
    }
    s.holder[r] = holder;
    return action;
  }
  template <class Emit>
  void step(const State& s, std::uint8_t r, Emit&& emit) const {
    State n = s;
    switch (s.at[r]) {
      case kWant:
        if (after(n, r, HolderEvent::want) == HolderAction::use)
          use(n, r);
        else
          n.at[r] = kAskLast;
        break;
      case kAskLast:
        n.predecessor[r] = without == Without::last ? 0 : s.last;
        n.last = r;
        after(n, r, HolderEvent::told);
        n.at[r] = kAskState;
        break;
      case kAskState:
        if (after(n, s.predecessor[r], HolderEvent::asked) == HolderAction::give)
          n.at[r] = kRead;
        else
          after(n, r, HolderEvent::refused);
        break;
      default:
        n.value[r] = s.value[s.predecessor[r]];
        if (without != Without::taking) after(n, r, HolderEvent::given);
        use(n, r);
    }
    emit(n, Step{s.at[r], r, 0});
  }
};

TEST(StateHolder, EachUseFindsTheLast) { expect_sound(Ranks{}); }

TEST(StateHolder, EachRuleIsNeeded) {
  expect_needed<Ranks>({Without::refusal, Without::giving, Without::last, Without::taking});
}

}  // namespace
}  // namespace kasane::model
