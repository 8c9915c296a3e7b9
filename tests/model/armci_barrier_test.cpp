// SPDX-License-Identifier: Apache-2.0
// ARMCI's barrier of the world (armci/barrier_protocol.h, the shipping table): three processes meet three
// times, in every order of the accesses to the word and of their answers.
//
// Checked: a process is through a barrier only when all have arrived at it; from every state there is a way
// on which all have ended. A rule taken away is noticed.
#include "armci/barrier_protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

namespace barrier = armci::barrier;

enum class Without : std::uint8_t {
  none,
  adding,    ///< a process does not add itself
  once,      ///< … or twice
  waiting,   ///< the first answer lets a process through
  reaching,  ///< a process waits for exactly so many arrivals, and others may be at the next barrier
  growing,   ///< the last one to arrive sets the word back
};

struct Barriers {
  Without without = Without::none;
  static constexpr std::uint8_t kProcesses = 3, kTimes = 3;

  enum Stage : std::uint8_t { kFree, kIssued, kAnswered };
  struct Process {
    barrier::Phase phase;
    std::uint8_t times, stage, value, through;
    barrier::Action action;
    std::uint8_t unused[2];
  };
  struct State {
    std::array<Process, kProcesses> process;
    std::uint8_t word, unused[7];
  };

  State initial() const { return {}; }
  const char* violation(const State& s) const {
    for (const Process& p : s.process) {
      for (const Process& other : s.process)
        if (other.times < p.through) return "a process is through before another has arrived";
    }
    return nullptr;
  }
  bool finished(const State& s) const {
    return std::all_of(s.process.begin(), s.process.end(),
                       [](const Process& p) { return p.through == kTimes; });
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "process " + std::to_string(x.actor) + ", step " + std::to_string(x.detail) + ", action " +
           std::to_string(x.kind);
  }
  std::string show(const State& s) const { return "word " + std::to_string(s.word); }

  static void take(Process& p, const barrier::Step& step) {
    p.phase = step.state.phase;
    p.times = static_cast<std::uint8_t>(step.state.times);
    p.action = step.action;
    p.stage = step.action == barrier::Action::through ? kFree : kIssued;
    p.value = 0;
    if (step.action == barrier::Action::through) ++p.through;
  }

  /// The access at process 0.
  void execute(State& s, Process& p) const {
    const auto all = static_cast<std::uint8_t>(p.times * kProcesses);
    p.value = s.word;
    if (p.action == barrier::Action::add) {
      if (without != Without::adding) s.word += without == Without::once && p.times == 1 ? 2 : 1;
      if (without == Without::growing && p.value + 1 == all) s.word = 0;
    } else if (without == Without::waiting || (without == Without::reaching && p.value > all)) {
      p.value = without == Without::waiting ? all : 0;
    }
    p.stage = kAnswered;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t i = 0; i < kProcesses; ++i) {
      const Process& p = s.process[i];
      if (p.stage == kFree && p.through == kTimes) continue;
      State n = s;
      Process& q = n.process[i];
      if (p.stage == kFree) {
        take(q, barrier::arrive({p.phase, p.times}));
      } else if (p.stage == kIssued) {
        execute(n, q);
      } else {
        take(q, barrier::answered({p.phase, p.times}, p.value, kProcesses));
      }
      emit(n, Step{static_cast<std::uint16_t>(q.action), i, p.stage});
    }
  }
};

TEST(ArmciBarrier, AllHaveArrivedBeforeOneIsThrough) { expect_sound(Barriers{}); }

TEST(ArmciBarrier, EachRuleIsNeeded) {
  expect_needed<Barriers>(
      {Without::adding, Without::once, Without::waiting, Without::reaching, Without::growing});
}

}  // namespace
}  // namespace kasane::model
