// SPDX-License-Identifier: Apache-2.0
// The two threads that serve faults (docs/design/mem.md, "Receiving and answering faults") in every order of
// their accesses to what they share: receiver, periods, the end, the noted faults under their lock. The
// threads are mem::FaultDuty and mem::FaultAnswers as they ship; in addition there are the threads that
// fault, the kernel's queue, and a thread that calls stop() at any time.
//
// A fault is allowed (the receiving thread serves it), or it is answered; an answer may wait until another
// thread's allowed fault has been served. Patience ends at any time. A receiver that has nothing to do looks
// again or sleeps, so each state must have a way to the end in which it sleeps.
//
// Checked: one thread answers at a time; the period is odd exactly while one does, and does not grow without
// answers; each fault is answered, or its thread woken at the end; no thread waits for ever, stop() neither.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mem/fault_duty.h"
#include "model/walk.h"

namespace kasane::model {
namespace {

using mem::FaultAct;
using mem::FaultAnswers;
using mem::FaultDuty;

enum class Without : std::uint8_t {
  none,
  take_over,            ///< the deputy never becomes the receiver
  asking_the_deputy,    ///< a thread that begins to answer makes the other one receiver, whatever that does
  begin,                ///< a thread that notes a fault does not begin to answer
  one_at_a_time,        ///< … does, though the other one answers
  all_of_a_row_first,   ///< … does before it has served what else it received
  wake_at_begin,        ///< a deputy that waits is not woken
  end_under_lock,       ///< a thread that finds nothing noted releases the lock before it ends answering
  period_at_end,        ///< a period ends uncounted
  bell_at_stop,         ///< stop() does not wake the receiver
  wake_at_stop,         ///< … the deputy
  word_before_period,   ///< … changes the period before it says that all is to end
  look_before_wait,     ///< the deputy waits without having looked for that
  last_receiver,        ///< a thread ends though the other one answers
  no_begin_after_stop,  ///< a thread begins to answer though all is to end
};

/// For each thread that faults: allowed, answered, or the number of the thread whose fault must be served
/// first.
constexpr std::uint8_t kAllowed = 100, kAnswered = 101;

struct Faults {
  std::vector<std::uint8_t> kinds;  // four at most
  bool stops = false;
  std::uint32_t most_noted = 8;
  Without without = Without::none;

  // Where a fault is. In a thread's hands: received and not looked at yet; being answered: + the thread's
  // number.
  enum : std::uint8_t { kNotYet, kQueued, kNoted, kServed, kInHand, kBeingAnswered = kInHand + 2 };
  // Within an act that is more than one step.
  enum : std::uint8_t { kFirst, kAsleep, kWoken, kRow, kLate };
  // begun and ended: one for each fault, and one that the end cuts short; what stop() adds
  static constexpr std::uint8_t kMostPeriods = 2 * (4 + 1) + 2;
  // stop(): its next step.
  enum : std::uint8_t { kSay, kRing, kCount, kJoin, kStopped };

  struct State {
    std::uint8_t at[4];
    FaultAct act[2];
    std::uint8_t seen[2], within[2];
    std::uint8_t receiver, period, noted, answering;
    std::uint8_t stop, said, rung, unused;
  };

  State initial() const {
    State s{};
    for (std::size_t f = kinds.size(); f < 4; ++f) s.at[f] = kServed;
    return s;
  }
  [[nodiscard]] bool circles() const { return true; }
  bool finished(const State& s) const {
    if (stops) return s.stop == kStopped;
    for (const std::uint8_t at : s.at)
      if (at != kServed) return false;
    return !s.answering;
  }
  const char* violation(const State& s) const {
    int begun = 0, answer = 0;
    for (const FaultAct act : s.act) {
      answer += act == FaultAct::take || act == FaultAct::answer;
      begun += act == FaultAct::announce;
    }
    if (answer + begun > 1) return "two answer";
    if ((s.period & 1) != answer) return "the period does not say whether one answers";
    if (s.period > kMostPeriods) return "they begin and end without answering";
    for (const std::uint8_t at : s.at)
      if (s.stop == kStopped && at != kServed && at != kNotYet) return "both have gone with a fault in hand";
    return nullptr;
  }
  std::string name(const Step& x) const {
    static constexpr const char* kAct[] = {"look_stop",  "look_receiver", "receive",   "rest",  "begin",
                                           "announce",   "take",          "answer",    "see",   "patience",
                                           "look_again", "wait",          "take_over", "leave", "gone"};
    if (x.actor < 2) return "thread " + std::to_string(x.actor) + ": " + kAct[x.detail];
    return x.actor == 2 ? "stop: " + std::to_string(x.detail) : "fault " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string text = "receiver " + std::to_string(s.receiver) + " period " + std::to_string(s.period) +
                       " noted " + std::to_string(s.noted) + " faults at";
    for (const std::uint8_t at : s.at) text += " " + std::to_string(at);
    return text;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < 2; ++t) step(s, t, emit);
    for (std::uint8_t f = 0; f < 4; ++f) {
      if (s.at[f] != kNotYet || s.stop == kStopped) continue;  // V is closed then
      State n = s;
      n.at[f] = kQueued;
      emit(n, Step{0, 3, f});
    }
    if (stops) step_stop(s, emit);
  }

 private:
  [[nodiscard]] bool lacks(Without rule) const { return without == rule; }

  static void wake(State& n) {
    for (int t = 0; t < 2; ++t)
      if (n.act[t] == FaultAct::wait && n.within[t] == kAsleep) n.within[t] = kWoken;
  }

  template <class Emit>
  void step_stop(const State& s, Emit&& emit) const {
    State n = s;
    const bool early = lacks(Without::word_before_period);
    const auto count = [&] {
      if (lacks(Without::wake_at_stop)) return;
      n.period = static_cast<std::uint8_t>(s.period + 2);
      wake(n);
    };
    switch (s.stop) {
      case kSay: early ? count() : void(n.said = 1); break;
      case kRing: n.rung = !lacks(Without::bell_at_stop); break;
      case kCount: early ? void(n.said = 1) : count(); break;
      case kJoin:
        if (s.act[0] != FaultAct::gone || s.act[1] != FaultAct::gone) return;
        for (std::uint8_t& at : n.at)  // the engine's: it closes V, and wakes the whole range
          if (at == kQueued || at == kNoted) at = kServed;
        break;
      default: return;
    }
    ++n.stop;
    emit(n, Step{0, 2, s.stop});
  }

  template <class Emit>
  void step(const State& s, std::uint8_t t, Emit&& emit) const {
    using enum FaultAct;
    State n = s;
    const Step label{0, t, static_cast<std::uint8_t>(s.act[t])};
    const auto stay = [&](std::uint8_t within) {
      n.within[t] = within;
      emit(n, label);
    };
    const auto go = [&](std::uint32_t saw) {
      const FaultDuty duty = FaultDuty{s.act[t], s.seen[t]}.next(saw);
      n.act[t] = duty.act;
      n.seen[t] = static_cast<std::uint8_t>(duty.period);
      stay(kFirst);
    };
    FaultAnswers answers{s.noted, s.answering != 0};
    const auto share = [&] {
      n.noted = static_cast<std::uint8_t>(answers.noted);
      n.answering = answers.answering;
    };
    switch (s.act[t]) {
      case look_stop: return go(s.said);
      case look_receiver: return go(s.receiver == t);
      case receive: return step_receive(s, t, label, answers, emit);
      case rest:
        if (s.within[t] == kFirst) {
          stay(kAsleep);
          return go(0);
        }
        for (const std::uint8_t at : s.at)
          if (at == kQueued || s.rung) return go(0);
        return;
      case begin: {
        if (lacks(Without::begin)) return go(0);
        if (lacks(Without::one_at_a_time)) answers.answering = false;
        const bool began = answers.begin(s.said && !lacks(Without::no_begin_after_stop));
        share();
        return go(began);
      }
      case announce:
        ++n.period;
        if (!lacks(Without::wake_at_begin)) wake(n);
        if (lacks(Without::asking_the_deputy)) n.receiver = 1 - t;
        return go(0);
      case take:
        if (lacks(Without::end_under_lock) && s.within[t] == kFirst && (s.noted == 0 || s.said))
          return stay(kLate);
        if (s.within[t] == kLate) answers.answering = false;
        if (s.within[t] != kLate && answers.take(s.said)) {
          share();
          for (std::uint8_t f = 0; f < 4; ++f) {  // more orders than the ring's
            if (s.at[f] != kNoted) continue;
            n.at[f] = static_cast<std::uint8_t>(kBeingAnswered + t);
            go(1);
            n.at[f] = kNoted;
          }
          return;
        }
        share();
        if (!lacks(Without::period_at_end)) ++n.period;
        return go(0);
      case answer:
        for (std::uint8_t f = 0; f < 4; ++f) {
          if (s.at[f] != kBeingAnswered + t || (kinds[f] < 4 && s.at[kinds[f]] != kServed)) continue;
          n.at[f] = kServed;
          return go(0);
        }
        return;
      case see:
      case look_again: return go(s.period);
      case patience: return go(s.said && !lacks(Without::look_before_wait));
      case wait:
        if (s.within[t] == kAsleep) return;
        return s.period == s.seen[t] ? stay(kAsleep) : go(0);
      case take_over:
        if (!lacks(Without::take_over)) n.receiver = t;
        return go(0);
      case leave: return go(s.answering && !lacks(Without::last_receiver));
      case gone: return;
    }
  }

  /// All that is queued, or some of it; then one by one, in any order.
  template <class Emit>
  void step_receive(const State& s, std::uint8_t t, Step label, const FaultAnswers& before,
                    Emit&& emit) const {
    const auto on = [&](State n, bool had_any) {
      n.act[t] = FaultDuty{s.act[t], s.seen[t]}.next(had_any).act;
      n.within[t] = kFirst;
      emit(n, label);
    };
    const auto in_hand = static_cast<std::uint8_t>(kInHand + t);
    unsigned queued = 0, held = 0;
    for (unsigned f = 0; f < 4; ++f) {
      queued |= static_cast<unsigned>(s.at[f] == kQueued) << f;
      held |= static_cast<unsigned>(s.at[f] == in_hand) << f;
    }
    if (held == 0) {
      if (queued == 0) return on(s, false);
      for (unsigned row = queued; row != 0; row = (row - 1) & queued) {
        State n = s;
        for (unsigned f = 0; f < 4; ++f)
          if (row >> f & 1) n.at[f] = in_hand;
        n.within[t] = kRow;
        emit(n, label);
      }
      return;
    }
    for (unsigned f = 0; f < 4; ++f) {
      if ((held >> f & 1) == 0) continue;
      State n = s;
      FaultAnswers answers = before;
      const bool allowed = kinds[f] == kAllowed;
      n.at[f] = allowed ? kServed : answers.note(most_noted) ? kNoted : kQueued;  // put off, it comes again
      n.noted = static_cast<std::uint8_t>(answers.noted);
      const bool last = (held & (held - 1)) == 0;
      if (last || (lacks(Without::all_of_a_row_first) && !allowed))
        on(n, true);
      else
        emit(n, label);
    }
  }
};

std::vector<Faults> programs() {
  std::vector<Faults> all;
  for (const bool stops : {false, true}) {
    all.push_back({{kAnswered, kAnswered, kAnswered}, stops});
    all.push_back({{1, kAllowed, kAnswered}, stops});
    all.push_back({{2, 2, kAllowed, kAllowed}, stops});
    all.push_back({{2, 3, kAllowed, kAllowed}, stops});
    all.push_back({{kAnswered, 2, kAllowed, kAnswered}, stops});
    all.push_back({{2, kAnswered, kAllowed, kAnswered}, stops, 1});
  }
  return all;
}

TEST(FaultDuty, EachFaultIsServedAndNobodyWaitsForEver) {
  for (const Faults& p : programs()) expect_sound(p);
}

TEST(FaultDuty, EachRuleIsNeeded) {
  expect_needed(
      {Without::take_over, Without::asking_the_deputy, Without::begin, Without::one_at_a_time,
       Without::all_of_a_row_first, Without::wake_at_begin, Without::end_under_lock, Without::period_at_end,
       Without::bell_at_stop, Without::wake_at_stop, Without::word_before_period, Without::look_before_wait,
       Without::last_receiver, Without::no_begin_after_stop},
      programs(), [](Without without, Faults p) {
        p.without = without;
        return explore(p);
      });
}

}  // namespace
}  // namespace kasane::model
