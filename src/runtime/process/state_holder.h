// SPDX-License-Identifier: Apache-2.0
// A small state that one rank holds at a time, and that goes to the rank which wants it: of the random
// numbers (random_numbers.h). Ranks that want it stand in a queue: rank 0 knows the last in it and tells each
// new one its predecessor, which gives the state away when it has used it. Pure; walked in tests/model.
//
//   stage     event    next      action
//   away      want     asking    ask rank 0 for the predecessor
//   asking    told     waiting   ask the predecessor for the state
//   waiting   refused  waiting   ask it again
//   waiting   given    held      use it
//   held      want     held      use it
//   held      asked    away      give it, if it was not used since it was asked last, or was asked
//                                kMostRefusals times
//   held      asked    held      refuse, otherwise
//   others    asked    –         refuse: it has yet to come
//
// A rank uses the state at least once before it gives it, so each has its turn.
#pragma once

#include <cstdint>

namespace kasane::runtime {

enum class HolderEvent : std::uint8_t { want, told, refused, given, asked };
enum class HolderAction : std::uint8_t { ask_last, ask_predecessor, use, give, refuse };

struct Holder {
  enum class Stage : std::uint8_t { away, asking, waiting, held };
  static constexpr std::uint8_t kMostRefusals = 16;

  Stage stage = Stage::away;
  bool used = false;          ///< since it was asked last
  std::uint8_t refusals = 0;  ///< since it came

  bool operator==(const Holder&) const = default;
};

struct HolderStep {
  Holder holder;
  HolderAction action;
};

[[nodiscard]] constexpr HolderStep next(Holder h, HolderEvent event) noexcept {
  using Stage = Holder::Stage;
  switch (event) {
    case HolderEvent::want:
      if (h.stage == Stage::held) return {{Stage::held, true, h.refusals}, HolderAction::use};
      return {{Stage::asking}, HolderAction::ask_last};
    case HolderEvent::told: return {{Stage::waiting}, HolderAction::ask_predecessor};
    case HolderEvent::refused: return {h, HolderAction::ask_predecessor};
    case HolderEvent::given: return {{Stage::held, true, 0}, HolderAction::use};
    case HolderEvent::asked: break;
  }
  if (h.stage != Stage::held) return {h, HolderAction::refuse};
  if (!h.used || h.refusals == Holder::kMostRefusals) return {{}, HolderAction::give};
  return {{Stage::held, false, static_cast<std::uint8_t>(h.refusals + 1)}, HolderAction::refuse};
}

}  // namespace kasane::runtime
