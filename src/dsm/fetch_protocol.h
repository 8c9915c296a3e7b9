// SPDX-License-Identifier: Apache-2.0
// How a rank reads bytes of a page of which it is not the owner, as a pure function (docs/design/dsm.md,
// rules 2, 5 and 9). src/dsm drives it for one page (fetches.cpp) and for many at once (gathering.cpp);
// tests/model walks it. The reader holds bits of the page's blocks.
//
//   locate ──found──▶ join ──done──▶ read ──done──▶ check ──stood──▶ fetched
//     │ ▲                                             │
//     │ └──────────── moved, or dropped ──────────────┘
//     └──not_found──▶ elsewhere
//
// join before read: a change that is released after the bytes were read sends a notice. check after read: the
// frame may have been punched, or have been left by the page, while it was read. dropped: an acquire of this
// rank began after the page was located, and may have looked at the blocks before they were read.
#pragma once

#include <cstdint>

namespace kasane::dsm {

enum class FetchState : std::uint8_t {
  locate,     ///< look up which rank has the bytes
  join,       ///< become one of the page's readers there
  read,       ///< read the bytes
  check,      ///< is the page where it was found?
  fetched,    ///< the bytes are those of the page
  elsewhere,  ///< no other rank has the bytes, or not now
};

enum class FetchEvent : std::uint8_t { found, not_found, done, stood, moved, dropped };

struct FetchStep {
  FetchState state;
  bool is_reader = false;  ///< from now on this rank is known to be a reader of the page
};

[[nodiscard]] constexpr FetchStep next(FetchState state, FetchEvent event) noexcept {
  switch (state) {
    case FetchState::locate: return {event == FetchEvent::found ? FetchState::join : FetchState::elsewhere};
    case FetchState::join: return {FetchState::read};
    case FetchState::read: return {FetchState::check};
    case FetchState::check:
      if (event == FetchEvent::moved) return {FetchState::locate};
      return {event == FetchEvent::stood ? FetchState::fetched : FetchState::locate, true};
    case FetchState::fetched:
    case FetchState::elsewhere: break;
  }
  return {state};
}

}  // namespace kasane::dsm
