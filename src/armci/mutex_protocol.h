// SPDX-License-Identifier: Apache-2.0
// ARMCI's mutexes: two words at the owner, changed by direct access alone. `next` counts the processes that
// asked, `serving` those that have unlocked. A process that asks takes the value of `next` as its ticket and
// holds the mutex when `serving` is its ticket: so processes hold it in the order in which they asked.
// try_lock takes a ticket only if it is the one that is served.
//
//   state       event                          next state   action
//   idle        lock                           asking       next += 1, old value comes back
//   asking      old value of next t            waiting t    read serving
//   waiting t   serving = t                    holding      the call returns
//               serving < t                    waiting t    be patient; read serving
//   idle        try_lock                       looking      read serving
//   looking     serving = s                    trying s     if next = s: next = s + 1; old value comes back
//   trying s    old value = s                  holding      the call returns true
//               another                        idle         the call returns false
//   holding     unlock                         leaving      serving += 1, old value comes back
//   leaving     old value                      idle         the call returns
//
// Pure: tests/model/armci_mutex_test.cpp walks it.
// Invariant: serving <= next, and at most one process has a ticket that is served.
#pragma once

#include <cstdint>

namespace kasane::armci::mutex {

enum class Phase : std::uint8_t { idle, asking, waiting, looking, trying, holding, leaving };
struct State {
  Phase phase = Phase::idle;
  std::uint64_t ticket = 0;
  friend bool operator==(const State&, const State&) = default;
};

enum class Event : std::uint8_t { lock, try_lock, unlock, answer };  ///< answer: of the last action
enum class Action : std::uint8_t {
  none,            ///< the event has no meaning here
  take_ticket,     ///< fetch_add(next, 1)
  read_serving,    ///< read(serving)
  read_again,      ///< the same, after a moment
  take_if_served,  ///< compare_swap(next, ticket, ticket + 1)
  advance,         ///< fetch_add(serving, 1)
  entered,         ///< the call returns; the process holds the mutex
  refused,         ///< try_lock returns false
  left,            ///< unlock returns
};
struct Step {
  State state;
  Action action;
};

constexpr Step answered(State s, std::uint64_t value) noexcept {
  switch (s.phase) {
    case Phase::asking: return {{Phase::waiting, value}, Action::read_serving};
    case Phase::waiting:
      if (value == s.ticket) return {{Phase::holding, s.ticket}, Action::entered};
      return {s, Action::read_again};
    case Phase::looking: return {{Phase::trying, value}, Action::take_if_served};
    case Phase::trying:
      if (value == s.ticket) return {{Phase::holding, s.ticket}, Action::entered};
      return {{}, Action::refused};
    case Phase::leaving: return {{}, Action::left};
    default: return {s, Action::none};
  }
}

/// value: of an answer.
constexpr Step next(State s, Event event, std::uint64_t value = 0) noexcept {
  if (event == Event::answer) return answered(s, value);
  if (event == Event::unlock)
    return s.phase == Phase::holding ? Step{{Phase::leaving, s.ticket}, Action::advance}
                                     : Step{s, Action::none};
  if (s.phase != Phase::idle) return {s, Action::none};
  return event == Event::lock ? Step{{Phase::asking, 0}, Action::take_ticket}
                              : Step{{Phase::looking, 0}, Action::read_serving};
}

}  // namespace kasane::armci::mutex
