// SPDX-License-Identifier: Apache-2.0
// ARMCI's mutexes (armci/mutex_protocol.h, the shipping table): processes lock, try to lock and unlock one
// mutex, in every order of the accesses at its owner and of their answers.
//
// Checked: one process at most holds it; they hold it in the order in which they took tickets; from every
// state there is a way on which all have ended. A rule taken away is noticed.
#include "armci/mutex_protocol.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

namespace mutex = armci::mutex;

enum class Without : std::uint8_t {
  none,
  compare,      ///< try_lock takes a ticket whatever `next` is
  serving,      ///< try_lock reads `next` instead of `serving`
  waiting,      ///< the first answer lets a process in
  one_advance,  ///< unlock advances twice
  advance,      ///< unlock is forgotten
};

struct Mutexes {
  Without without = Without::none;
  std::uint8_t processes = 3, rounds = 2;

  enum Stage : std::uint8_t { kFree, kIssued, kAnswered };
  struct Process {
    mutex::Phase phase;
    std::uint8_t ticket, left, stage, value, holds;
    mutex::Action action;
    std::uint8_t unused;
  };
  struct State {
    std::array<Process, 3> process;
    std::uint8_t next, serving, entered, out_of_order;
  };

  State initial() const {
    State s = {};
    for (std::uint8_t p = 0; p < processes; ++p) s.process[p].left = rounds;
    return s;
  }
  const char* violation(const State& s) const {
    int holders = 0;
    for (const Process& p : s.process) holders += p.holds;
    if (holders > 1) return "two processes hold the mutex";
    return s.out_of_order != 0 ? "a process has passed one that asked before it" : nullptr;
  }
  bool finished(const State& s) const {
    for (const Process& p : s.process) {
      if (p.left != 0 || p.stage != kFree || p.holds != 0) return false;
    }
    return true;
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "process " + std::to_string(x.actor) + ", step " + std::to_string(x.detail) + ", action " +
           std::to_string(x.kind);
  }
  std::string show(const State& s) const {
    return "next " + std::to_string(s.next) + " serving " + std::to_string(s.serving) + " entered " +
           std::to_string(s.entered);
  }

  static void take(State& s, Process& p, const mutex::Step& step) {
    p.phase = step.state.phase;
    p.ticket = static_cast<std::uint8_t>(step.state.ticket);
    p.action = step.action;
    p.stage = kIssued;
    switch (step.action) {
      case mutex::Action::entered:
        p.holds = 1;
        if (p.ticket != s.entered) s.out_of_order = 1;
        ++s.entered;
        p.stage = kFree;
        break;
      case mutex::Action::left:
      case mutex::Action::refused: p.stage = kFree; break;
      default: break;
    }
  }

  template <class Emit>
  void begin(const State& s, std::uint8_t i, mutex::Event event, Emit&& emit) const {
    State n = s;
    Process& p = n.process[i];
    if (event == mutex::Event::unlock) {
      p.holds = 0;
    } else {
      --p.left;
    }
    take(n, p, mutex::next({p.phase, p.ticket}, event));
    emit(n, Step{static_cast<std::uint16_t>(p.action), i, static_cast<std::uint8_t>(event)});
  }

  /// The access at the owner.
  void execute(State& s, Process& p) const {
    switch (p.action) {
      case mutex::Action::take_ticket: p.value = s.next++; break;
      case mutex::Action::take_if_served:
        p.value = s.next;
        if (without == Without::compare) p.value = p.ticket;
        if (p.value == p.ticket) ++s.next;
        break;
      case mutex::Action::advance:
        p.value = s.serving;
        if (without != Without::advance) s.serving += without == Without::one_advance ? 2 : 1;
        break;
      default: p.value = s.serving; break;
    }
    if (without == Without::waiting && p.phase == mutex::Phase::waiting) p.value = p.ticket;
    if (without == Without::serving && p.phase == mutex::Phase::looking) p.value = s.next;
    p.stage = kAnswered;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t i = 0; i < processes; ++i) {
      const Process& p = s.process[i];
      State n = s;
      if (p.stage == kIssued) {
        execute(n, n.process[i]);
        emit(n, Step{static_cast<std::uint16_t>(p.action), i, 10});
      } else if (p.stage == kAnswered) {
        take(n, n.process[i], mutex::next({p.phase, p.ticket}, mutex::Event::answer, p.value));
        n.process[i].value = 0;
        emit(n, Step{static_cast<std::uint16_t>(n.process[i].action), i, 11});
      } else if (p.holds != 0) {
        begin(s, i, mutex::Event::unlock, emit);
      } else if (p.left != 0) {
        begin(s, i, mutex::Event::lock, emit);
        begin(s, i, mutex::Event::try_lock, emit);
      }
    }
  }
};

TEST(ArmciMutex, OneHolderInTheOrderOfTickets) { expect_sound(Mutexes{}); }

TEST(ArmciMutex, EachRuleIsNeeded) {
  expect_needed<Mutexes>(
      {Without::compare, Without::serving, Without::waiting, Without::one_advance, Without::advance});
}

}  // namespace
}  // namespace kasane::model
