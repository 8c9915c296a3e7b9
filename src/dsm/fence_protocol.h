// SPDX-License-Identifier: Apache-2.0
// How changes of a page's blocks go to its owner, as a pure function (docs/design/dsm.md, rules 3, 5 and 8).
// src/dsm/fence.cpp drives it for each page of a fence; tests/model walks it. The sender holds bits of the
// page's blocks.
//
//   begin ──begun──▶ send ──sent──▶ await ──done──▶ note ──done──▶ end ──done──▶ put
//    │ │ ▲            │ nothing       │ nothing                     ▲
//    │ │ └─moved─┐    └───────────────┴─────────────────────────────┤
//    │ ├─on_ssd──▶ keep ──done──▶ kept                              │
//    │ └─absent──▶ later                                            │
//    └─freed────────────────────────────────────────────────────────┘
//
// begin before send: from then on the page's frame stays where it is, until end. await before note: whoever
// is told of the change finds it at the owner. later: the rank that pages the page in may be waiting for a
// page of this rank, and so for bits; so this one waits when it holds none, and claims the blocks again.
#pragma once

#include <cstdint>

#include "dsm/protocol.h"

namespace kasane::dsm {

/// Does a block take its step of a release or an acquire at once, and not with others? V allows of it what it
/// did, so nothing need be protected first. open: its changes are put, and it stays writable.
[[nodiscard]] constexpr bool acts_alone(const BlockState& before, const BlockStep& step, bool open) noexcept {
  return step.after.access == before.access && !open;
}

enum class PutState : std::uint8_t {
  begin,  ///< find the owner, and begin to use its frame
  send,   ///< send the bytes that are changed; nothing: the page is this rank's
  await,  ///< all of them have arrived; nothing: there were none
  note,   ///< note that the blocks are changed: the next release tells their readers
  end,    ///< end the use
  keep,   ///< the page is this rank's own, and on SSD: it becomes partial, if it is still there
  put,    ///< nothing is left to be done
  kept,   ///< nothing was put: the blocks become this rank's own
  later,  ///< nothing was put: the blocks become what they were, until the page was paged in
};

enum class PutEvent : std::uint8_t { done, begun, freed, on_ssd, absent, sent, nothing, moved };

[[nodiscard]] constexpr PutState next(PutState state, PutEvent event) noexcept {
  switch (state) {
    case PutState::begin:
      return event == PutEvent::begun    ? PutState::send
             : event == PutEvent::on_ssd ? PutState::keep
             : event == PutEvent::absent ? PutState::later
                                         : PutState::end;
    case PutState::send: return event == PutEvent::sent ? PutState::await : PutState::end;
    case PutState::await: return event == PutEvent::nothing ? PutState::end : PutState::note;
    case PutState::note: return PutState::end;
    case PutState::end: return PutState::put;
    case PutState::keep: return event == PutEvent::moved ? PutState::begin : PutState::kept;
    case PutState::put:
    case PutState::kept:
    case PutState::later: break;
  }
  return state;
}

}  // namespace kasane::dsm
