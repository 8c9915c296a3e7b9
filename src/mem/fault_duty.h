// SPDX-License-Identifier: Apache-2.0
// What the two threads of FaultThreads do next, given what they saw: which of them receives, who answers, who takes over, when they end.
//
//   look_stop ─▶ look_receiver ─▶ receive ──faults──▶ begin ─▶ announce ─▶ take ◀─▶ answer          the receiver
//      │                 │           └─none─▶ rest      └────────────────────┴─▶ look_stop
//      │                 └─▶ see ─▶ patience ─▶ look_again ──odd, as before──▶ take_over ─▶ look_stop   the deputy
//      │                      ▲          └◀──changed──┤
//      │                      └──── wait ◀──even──────┘
//      └─▶ leave ─▶ gone; or, while the other one answers, receive
//
// Pure: fault_threads.cpp carries out the acts, tests/model/fault_duty_test.cpp walks them in every order. Docs/design/mem.md, "Who receives, who answers", has the table.
#pragma once

#include <cstdint>

namespace kasane::mem {

/// The comment says what the thread does, and what it sees doing it.
enum class FaultAct : std::uint8_t {
  look_stop,      ///< is all to end?
  look_receiver,  ///< am I the receiver?
  receive,        ///< serves what V allows of what has come, and notes all else. Had anything come?
  rest,           ///< until something may have come, or all is to end
  begin,          ///< do I answer now? FaultAnswers::begin()
  announce,       ///< a period begins: wakes a deputy that waits
  take,           ///< is there one to answer? FaultAnswers::take(); else the period ends
  answer,         ///< it
  see,            ///< which period is it?
  patience,       ///< sleeps for a while. Is all to end?
  look_again,     ///< which period is it?
  wait,           ///< until the period is another one
  take_over,      ///< I am the receiver
  leave,          ///< does the other one answer? FaultAnswers::answering
  gone,
};

/// A thread's place. Periods of answering are counted when they begin and when they end: odd while one is under way.
struct FaultDuty {
  FaultAct act = FaultAct::look_stop;
  std::uint32_t period = 0;   ///< a deputy's: as last seen

  /// After the act has been carried out.
  [[nodiscard]] constexpr FaultDuty next(std::uint32_t saw) const noexcept {
    using enum FaultAct;
    switch (act) {
      case look_stop: return {saw != 0 ? leave : look_receiver};
      case look_receiver: return {saw != 0 ? receive : see};
      case receive: return {saw != 0 ? begin : rest};
      case rest: return {look_stop};
      case begin: return {saw != 0 ? announce : look_stop};
      case announce: return {take};
      case take: return {saw != 0 ? answer : look_stop};
      case answer: return {take};
      case see: return {patience, saw};
      // Between what it saw and a wait it always looks whether all is to end: stop() changes the period after it has said so.
      case patience: return {saw != 0 ? leave : look_again, period};
      // As long as there are faults it looks once in a while, so that whoever answers need not wake it each time.
      case look_again: return {saw != period ? patience : (saw & 1) != 0 ? take_over : wait, saw};
      case wait: return {see};
      case take_over: return {look_stop};
      // An answer that is under way may wait for a fault that V allows: somebody receives until it has ended.
      case leave: return {saw != 0 ? receive : gone};
      case gone: break;
    }
    return {gone};
  }
};

/// What the two share under their lock.
struct FaultAnswers {
  std::uint32_t noted = 0;
  bool answering = false;   ///< one of them is

  /// False: too many are.
  [[nodiscard]] constexpr bool note(std::uint32_t most) noexcept {
    if (noted == most) return false;
    ++noted;
    return true;
  }
  /// False: there is nothing to answer, or the other one is at it and comes to it, or all is to end: who leaves has seen that nobody answers, and nobody begins to after that.
  [[nodiscard]] constexpr bool begin(bool stop) noexcept {
    if (answering || noted == 0 || stop) return false;
    return answering = true;
  }
  /// False: the caller has ended answering. At the end of all it takes none, so that stop() waits for one answer, not for all that come meanwhile.
  [[nodiscard]] constexpr bool take(bool stop) noexcept {
    if (noted == 0 || stop) return answering = false;
    --noted;
    return true;
  }
};

}  // namespace kasane::mem
