// SPDX-License-Identifier: Apache-2.0
// Which calls on a descriptor may be made on a worker, pure. A call that was found not to have to wait may
// have to, if another one takes what it has found between the two. So one thread of the rank at a time looks
// and makes its call on its worker, while none waits outside; docs/design/system_calls.md, "Calls that wait",
// has the table.
//
// Thread safety: pure. Invariant: while a thread looks, no other call on the descriptor begins.
#pragma once

#include <cstdint>

namespace kasane::runtime {

struct DescriptorTurns {
  bool looking = false;
  std::uint32_t outside = 0;  ///< calls that are made outside, from before they begin

  [[nodiscard]] constexpr std::uint32_t pack() const noexcept { return outside << 1 | (looking ? 1u : 0u); }
  [[nodiscard]] static constexpr DescriptorTurns unpack(std::uint32_t word) noexcept {
    return {(word & 1) != 0, word >> 1};
  }
};

enum class TurnEvent : std::uint8_t {
  enter,
  go_outside,  ///< a thread that looked: its call has to wait
  called,      ///< … has made its call
  end,         ///< a call outside has ended
};
enum class TurnAction : std::uint8_t {
  none,
  look,     ///< and make the call, or go outside
  outside,  ///< make the call there
  again,    ///< a thread looks: enter again; it does not wait
};
struct TurnStep {
  DescriptorTurns next;
  TurnAction action = TurnAction::none;
};

[[nodiscard]] constexpr TurnStep next(DescriptorTurns turns, TurnEvent event) noexcept {
  switch (event) {
    case TurnEvent::enter:
      if (turns.looking) return {turns, TurnAction::again};
      if (turns.outside == 0) return {{true, 0}, TurnAction::look};
      return {{false, turns.outside + 1}, TurnAction::outside};
    case TurnEvent::go_outside: return {{false, turns.outside + 1}, TurnAction::outside};
    case TurnEvent::called: return {{false, turns.outside}};
    case TurnEvent::end: return {{turns.looking, turns.outside - 1}};
  }
  return {turns};
}

}  // namespace kasane::runtime
