// SPDX-License-Identifier: Apache-2.0
// sigaction() on several ranks (runtime/process/action_order.h): each of three ranks names an action at the
// same time, two of them the same one, in every order of looks, installations, numbers and messages.
//
// Checked: a call returns when each rank has its action or a later one, and in the end all have the same.
#include "runtime/process/action_order.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using runtime::ActionEvent;
using runtime::ActionStep;

enum class Without : std::uint8_t {
  none,
  numbers,     ///< a rank takes each action of which it is told
  itself,      ///< a rank that names an action does not tell itself
  comparison,  ///< an action that the rank has already is installed again, and told to no rank
};

constexpr std::uint8_t kRanks = 3;

struct Ranks {
  Without without = Without::none;
  enum : std::uint8_t { kLook, kInstall, kInstallAgain, kAsk, kTell, kReturned };
  struct State {
    std::array<std::uint8_t, kRanks> action, number;   // that each rank has
    std::array<std::uint8_t, kRanks> at, asked, told;  // the call of each: its number, the ranks that know
    std::uint8_t last;
  };

  static std::uint8_t named(std::uint8_t rank) { return rank % 2 == 0 ? 1 : 2; }

  State initial() const {
    State s{};
    s.action = {3, 3, 3};  // another one
    return s;
  }
  const char* violation(const State& s) const {
    for (std::uint8_t c = 0; c < kRanks; ++c)
      for (std::uint8_t r = 0; s.at[c] == kReturned && r < kRanks; ++r)
        if (s.number[r] < s.asked[c] && !(without == Without::itself && r == c))
          return "a call has returned before a rank has its action";
    return finished(s) && (s.action[0] != s.action[1] || s.action[1] != s.action[2])
               ? "ranks have different actions"
               : nullptr;
  }
  bool finished(const State& s) const {
    return s.at[0] == kReturned && s.at[1] == kReturned && s.at[2] == kReturned;
  }
  std::string name(const Step& x) const {
    return "the call of rank " + std::to_string(x.actor) + " at " + std::to_string(x.kind) + ", rank " +
           std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    return "actions " + std::to_string(s.action[0]) + " " + std::to_string(s.action[1]) + " " +
           std::to_string(s.action[2]);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t c = 0; c < kRanks; ++c) step(s, c, emit);
  }
  template <class Emit>
  void step(const State& s, std::uint8_t c, Emit&& emit) const {
    State n = s;
    const auto go = [&](std::uint8_t at) {
      n.at[c] = at;
      emit(n, Step{s.at[c], c, c});
    };
    switch (s.at[c]) {
      case kLook: {
        const ActionStep step = next(ActionEvent::named, s.action[c] == named(c), s.number[c]);
        if (without == Without::comparison && !step.install) return go(kInstallAgain);
        return go(step.install ? kInstall : kReturned);
      }
      case kInstall: n.action[c] = named(c); return go(kAsk);
      case kInstallAgain: n.action[c] = named(c); return go(kReturned);
      case kAsk:
        n.asked[c] = ++n.last;
        if (without == Without::itself) n.told[c] |= std::uint8_t(1 << c);
        return go(kTell);
      case kTell:
        for (std::uint8_t r = 0; r < kRanks; ++r) tell(s, c, r, emit);
        return;
      default: return;
    }
  }
  template <class Emit>
  void tell(const State& s, std::uint8_t c, std::uint8_t r, Emit&& emit) const {
    if ((s.told[c] >> r & 1) != 0) return;
    State n = s;
    ActionStep step = next(ActionEvent::told, false, s.number[r], s.asked[c]);
    if (without == Without::numbers) step = {true, false, s.asked[c]};
    if (step.install) n.action[r] = named(c);
    n.number[r] = static_cast<std::uint8_t>(step.number);
    n.told[c] = static_cast<std::uint8_t>(n.told[c] | 1 << r);
    if (n.told[c] == (1 << kRanks) - 1) n.at[c] = kReturned;
    emit(n, Step{kTell, c, r});
  }
};

TEST(SignalAction, AllRanksHaveTheSameInTheEnd) { expect_sound(Ranks{}); }

TEST(SignalAction, EachRuleIsNeeded) {
  expect_needed<Ranks>({Without::numbers, Without::itself, Without::comparison});
}

}  // namespace
}  // namespace kasane::model
