// SPDX-License-Identifier: Apache-2.0
// What the two threads of FaultThreads do next, given what they saw: which of them receives, which answers,
// when the deputy takes over, when they end.
//
//   look_stop ─▶ look_receiver ─▶ receive ──faults──▶ begin ─▶ announce ─▶ take ◀─▶ answer      the receiver
//      │                 │           └─none─▶ rest      └────────────────────┴─▶ look_stop
//      │                 └─▶ see ─▶ patience ─▶ look_again ──odd, as before──▶ take_over        the deputy
//      │                      ▲          └◀──changed──┤                          └─▶ look_stop
//      │                      └──── wait ◀──even──────┘
//      └─▶ leave ─▶ gone; or, while the other thread answers, receive
//
// Pure: fault_threads.cpp carries out the acts; tests/model/fault_duty_test.cpp walks them in every order.
// docs/design/mem.md, "Receiving and answering faults", has the table.
#pragma once

#include <cstdint>

namespace kasane::mem {

/// The comments say what the thread does, and what it sees by that.
enum class FaultAct : std::uint8_t {
  look_stop,      ///< do both threads have to end?
  look_receiver,  ///< is this thread the receiver?
  receive,        ///< serves the faults that V allows, and notes the others. Had any come?
  rest,           ///< waits until a fault may have come, or the threads have to end
  begin,          ///< may this thread answer now? FaultAnswers::begin()
  announce,       ///< a period begins: wakes a waiting deputy
  take,           ///< is there a fault to answer? FaultAnswers::take(); if not, the period ends
  answer,         ///< answers it
  see,            ///< which period is it?
  patience,       ///< sleeps for a while. Do both threads have to end?
  look_again,     ///< which period is it?
  wait,           ///< until the period changes
  take_over,      ///< this thread becomes the receiver
  leave,          ///< does the other thread answer? FaultAnswers::answering
  gone,
};

/// The state of a thread. Periods of answering are counted when they begin and when they end: the number is
/// odd while one is under way.
struct FaultDuty {
  FaultAct act = FaultAct::look_stop;
  std::uint32_t period = 0;  ///< of a deputy: as last seen

  /// The state after the act has been carried out.
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
      // Between see and wait the deputy always checks whether the threads have to end: stop() changes the
      // period after it has set that flag.
      case patience: return {saw != 0 ? leave : look_again, period};
      // While there are faults the deputy looks again at intervals, so that the answering thread need not
      // wake it each time.
      case look_again: return {saw != period ? patience : (saw & 1) != 0 ? take_over : wait, saw};
      case wait: return {see};
      case take_over: return {look_stop};
      // An answer under way may wait for a fault that V allows, so this thread receives until the answer has
      // ended.
      case leave: return {saw != 0 ? receive : gone};
      case gone: break;
    }
    return {gone};
  }
};

/// What the two threads share under their lock.
struct FaultAnswers {
  std::uint32_t noted = 0;
  bool answering = false;  ///< one of the two answers

  /// False: too many are noted.
  [[nodiscard]] constexpr bool note(std::uint32_t most) noexcept {
    if (noted == most) return false;
    ++noted;
    return true;
  }
  /// False: there is nothing to answer; or the other thread answers and will come to it; or the threads have
  /// to end. A leaving thread has seen that no thread answers, and none begins after that.
  [[nodiscard]] constexpr bool begin(bool stop) noexcept {
    if (answering || noted == 0 || stop) return false;
    return answering = true;
  }
  /// False: the caller has stopped answering. When the threads have to end it takes none, so that stop()
  /// waits for one answer, not for all that come meanwhile.
  [[nodiscard]] constexpr bool take(bool stop) noexcept {
    if (noted == 0 || stop) return answering = false;
    --noted;
    return true;
  }
};

}  // namespace kasane::mem
