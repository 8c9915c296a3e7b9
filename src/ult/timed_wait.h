// SPDX-License-Identifier: Apache-2.0
// How a wait with a deadline ends, pure: the word `timed` of a thread's slot, on which the queue's server and
// the timer meet. docs/design/sched.md, "Waits with a deadline", has the table.
//
//   timed   round 61 | state 3
//
// The timer takes no thread out of a queue. It sets the record's `leaving` bit, and the server of the queue
// lets the thread go, or has granted what it waited for. The thread goes on only when both are done with it:
// settled, and no timer about to ask. So nothing of the thread, nor of the record, is touched afterwards.
//
// Thread safety: pure. Invariants: exactly one event of a round says `go`; an outcome, once settled, stays
// until it is collected; a timer of an earlier round changes nothing.
#pragma once

#include <cstdint>

#include "ult/layout.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

enum class TimedState : std::uint32_t {
  idle,
  armed,           ///< waits
  asking,          ///< waits; the timer asks for it to be let go
  left,            ///< waits; the timer has asked
  granted_asking,  ///< settled while the timer asks
  expired_asking,
  granted,  ///< settled, and may go on
  expired,
};

struct TimedWord {
  std::uint64_t round = 0;
  TimedState state = TimedState::idle;

  [[nodiscard]] constexpr Word pack() const noexcept { return round << 3 | static_cast<Word>(state); }
  [[nodiscard]] static constexpr TimedWord unpack(Word w) noexcept {
    return {w >> 3, static_cast<TimedState>(w & 7)};
  }
  /// Does its timer want it out of the queue?
  [[nodiscard]] constexpr bool leaving() const noexcept {
    return state == TimedState::asking || state == TimedState::left;
  }
  friend constexpr bool operator==(TimedWord, TimedWord) = default;
};

enum class TimedEvent : std::uint32_t {
  arm,      ///< the thread is about to wait: a new round
  grant,    ///< settled: it has what it waited for
  expire,   ///< settled: it was let go
  due,      ///< the deadline of `round` has passed
  asked,    ///< the timer is done with the record
  collect,  ///< the thread goes on
};

enum class TimedAction : std::uint32_t {
  none,
  go,      ///< the thread goes on
  ask,     ///< ask the record to let it go, then `asked`
  stale,   ///< that round is over
  refuse,  ///< cannot be
};

struct TimedStep {
  TimedWord next;
  TimedAction action;
};

[[nodiscard]] constexpr TimedStep next(TimedWord w, TimedEvent event, std::uint64_t round = 0) noexcept {
  using State = TimedState;
  const bool granted = event == TimedEvent::grant;
  switch (event) {
    case TimedEvent::arm:
      if (w.state != State::idle) break;
      return {{w.round + 1, State::armed}, TimedAction::none};
    case TimedEvent::grant:
    case TimedEvent::expire:
      if (w.state == State::asking)
        return {{w.round, granted ? State::granted_asking : State::expired_asking}, TimedAction::none};
      if (w.state != State::left && !(granted && w.state == State::armed)) break;
      return {{w.round, granted ? State::granted : State::expired}, TimedAction::go};
    case TimedEvent::due:
      if (w.state != State::armed || w.round != round) return {w, TimedAction::stale};
      return {{w.round, State::asking}, TimedAction::ask};
    case TimedEvent::asked:
      if (w.state == State::asking) return {{w.round, State::left}, TimedAction::none};
      if (w.state != State::granted_asking && w.state != State::expired_asking) break;
      return {{w.round, w.state == State::granted_asking ? State::granted : State::expired}, TimedAction::go};
    case TimedEvent::collect:
      if (w.state != State::granted && w.state != State::expired) break;
      return {{w.round, State::idle}, TimedAction::none};
  }
  return {w, TimedAction::refuse};
}

}  // namespace kasane::ult
