// SPDX-License-Identifier: Apache-2.0
// A call that an OS thread, the *caller*, makes for a thread that waits for it on its worker
// (ult/outside_callers.h), pure: the word of one caller, on which its worker and the caller meet.
// docs/design/ult.md, "Calls outside", has the table.
//
// The thread asks, and its worker takes the result, when the caller has delivered it. Where a handler of the
// program's has interrupted the worker, the worker interrupts the call by a signal to the caller, and again
// until the call has ended: the kernel may not have had it yet.
//
// A signal that comes late must not interrupt the caller's next call. It was sent before the worker took the
// result, so before that call was asked for; the caller, whose last call was interrupted, lets it arrive
// (OutsideAction::flush) before it makes the next.
//
// Thread safety: pure. Invariants: a result is delivered once for each call that was asked for, and a call
// ends by an interruption only if it was interrupted itself.
#pragma once

#include <cstdint>

namespace kasane::ult {

enum class OutsideState : std::uint32_t {
  free,
  asked,      ///< the caller has not begun
  cancelled,  ///< … and is not to make the call
  runs,       ///< the caller makes the call, or writes that it was interrupted before
  told,       ///< … and has been sent a signal
  ended,      ///< the result is there
  left,       ///< the pool ends: nothing waits for the caller any more
};

/// A caller's word.
struct OutsideWord {
  OutsideState state = OutsideState::free;
  bool was_told = false;  ///< a signal may be under way, from the call before

  [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
    return static_cast<std::uint32_t>(state) | std::uint32_t{was_told} << 8;
  }
  [[nodiscard]] static constexpr OutsideWord unpack(std::uint32_t word) noexcept {
    return {static_cast<OutsideState>(word & 0xff), (word >> 8) != 0};
  }
};

enum class OutsideEvent : std::uint32_t {
  ask,        ///< the thread: it has written the call
  interrupt,  ///< its worker, which has not taken the result
  take,       ///< its worker, which has got the caller's delivery
  leave,      ///< the pool ends
  begin,      ///< the caller: it found a word that is neither free nor ended
  end,        ///< the caller: it has written the result
};

enum class OutsideAction : std::uint32_t {
  none,
  wake,     ///< the caller, which sleeps on the word
  signal,   ///< to the caller
  make,     ///< the call
  flush,    ///< let signals arrive, then make the call
  refuse,   ///< no call: the result is EINTR
  deliver,  ///< to the worker
  quit,     ///< the caller's OS thread ends
};

struct OutsideStep {
  OutsideWord next;
  OutsideAction action = OutsideAction::none;
};

[[nodiscard]] constexpr OutsideStep next(OutsideWord word, OutsideEvent event) noexcept {
  using S = OutsideState;
  using A = OutsideAction;
  const bool was_told = word.was_told;
  switch (event) {
    case OutsideEvent::ask: return {{S::asked, was_told}, A::wake};
    case OutsideEvent::interrupt:
      if (word.state == S::asked) return {{S::cancelled, was_told}};
      if (word.state == S::runs || word.state == S::told) return {{S::told, was_told}, A::signal};
      return {word};
    case OutsideEvent::take: return {{S::free, was_told}};
    case OutsideEvent::leave: return {{S::left, false}, A::wake};
    case OutsideEvent::begin:
      if (word.state == S::left) return {word, A::quit};
      if (word.state == S::cancelled) return {{S::runs, was_told}, A::refuse};
      return {{S::runs, false}, was_told ? A::flush : A::make};
    case OutsideEvent::end:
      if (word.state == S::left) return {word, A::quit};
      return {{S::ended, was_told || word.state == S::told}, A::deliver};
  }
  return {word};
}

}  // namespace kasane::ult
