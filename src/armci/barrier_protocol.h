// SPDX-License-Identifier: Apache-2.0
// ARMCI's barrier of the world: a word at process 0 counts arrivals, from the start on, and is changed by
// direct access alone. A process is through its n-th barrier when n arrivals of each process have been
// counted.
//
//   state       event                          next state   action
//   idle n      arrive                         arriving n+1 word += 1, old value comes back
//   arriving n  old value + 1 >= n * processes idle n       the call returns
//               less                           waiting n    read the word
//   waiting n   word >= n * processes          idle n       the call returns
//               less                           waiting n    be patient; read the word
//
// Pure: tests/model/armci_barrier_test.cpp walks it.
// Invariant: the word never becomes less, so a process that is late to look finds what it waits for.
#pragma once

#include <cstdint>

namespace kasane::armci::barrier {

enum class Phase : std::uint8_t { idle, arriving, waiting };
struct State {
  Phase phase = Phase::idle;
  std::uint64_t times = 0;  ///< that this process has arrived
  friend bool operator==(const State&, const State&) = default;
};

enum class Action : std::uint8_t {
  none,        ///< the event has no meaning here
  add,         ///< fetch_add(word, 1)
  read,        ///< read(word)
  read_again,  ///< the same, after a moment
  through,     ///< the call returns
};
struct Step {
  State state;
  Action action;
};

constexpr Step arrive(State s) noexcept {
  return s.phase == Phase::idle ? Step{{Phase::arriving, s.times + 1}, Action::add} : Step{s, Action::none};
}

/// value: the answer to the last action.
constexpr Step answered(State s, std::uint64_t value, std::uint64_t processes) noexcept {
  if (s.phase == Phase::idle) return {s, Action::none};
  const bool arriving = s.phase == Phase::arriving;
  if (value + (arriving ? 1 : 0) >= s.times * processes) return {{Phase::idle, s.times}, Action::through};
  return {{Phase::waiting, s.times}, arriving ? Action::read : Action::read_again};
}

}  // namespace kasane::armci::barrier
