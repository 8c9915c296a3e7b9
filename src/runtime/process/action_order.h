// SPDX-License-Identifier: Apache-2.0
// What a rank does with an action for a signal that the program names on it (sigaction), or of which another
// rank tells it with the number that rank 0 has given (signal_actions.h; walked in tests/model).
//
//   event   the rank has              install   afterwards
//   named   the same action           no        –
//   named   another one               yes       ask for a number, tell all ranks, itself included
//   told    a number at least as high no        –
//   told    a lower number            yes       the number is the told one
#pragma once

#include <cstdint>

namespace kasane::runtime {

enum class ActionEvent : std::uint8_t { named, told };

struct ActionStep {
  bool install = false;
  bool tell = false;         ///< all ranks
  std::uint64_t number = 0;  ///< of the action that the rank has from now on
};

/// same: the rank has the action of the event. number: of the action that it has. told: the event's.
[[nodiscard]] constexpr ActionStep next(ActionEvent event, bool same, std::uint64_t number,
                                        std::uint64_t told = 0) noexcept {
  if (event == ActionEvent::named) return {!same, !same, number};
  return told > number ? ActionStep{true, false, told} : ActionStep{false, false, number};
}

}  // namespace kasane::runtime
