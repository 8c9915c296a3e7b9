// SPDX-License-Identifier: Apache-2.0
// main() of a player whose two ranks the harness starts itself: rank and sizes come from the environment.
#pragma once

#include <cstdio>
#include <exception>

#include "player.h"

namespace kasane::bench {

[[nodiscard]] inline Window window_from_environment() {
  return {static_cast<unsigned>(Control::number(Control::kLanesVariable, 1)),
          Control::number(Control::kBytesVariable, 4096)};
}

template <class System>
int player_main(const char* name, unsigned rank) {
  try {
    const Window window = window_from_environment();
    Control control(rank);
    System system(rank, control, window);
    return play(system, control, window.lanes());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s player, rank %u: %s\n", name, rank, e.what());
    return 1;
  }
}

template <class System>
int player_main(const char* name) {
  return player_main<System>(name, static_cast<unsigned>(Control::number(Control::kRankVariable, 0)));
}

}  // namespace kasane::bench
