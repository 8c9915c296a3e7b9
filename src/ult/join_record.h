// SPDX-License-Identifier: Apache-2.0
// How a thread's end meets its joiner: one word, one pure function (docs/design/sched.md, "Join record"). The
// local path (CPU compare-swap) and the remote one (Words) drive the same next(), and the unit test walks it
// exhaustively.
//
// Thread safety: pure. Invariants: exactly one of {joiner, detacher, exiter} gets the action free_slot or
// collect; only the exiter of a thread with a suspended joiner gets `wake`.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::ult {

enum class JoinKind : std::uint8_t {
  free,      ///< no thread has this slot; the zero word
  running,   ///< without a joiner
  waited,    ///< slot/rank: the suspended joiner, and where it goes on
  exited,    ///< rank: where it exited, which must release
  reserved,  ///< exited on rank, and slot, its joiner, has been woken to collect it
  detached,  ///< will not be joined
};

/// A join record taken apart. In the word: slot 32 | rank 28 | kind 4; the kind lowest, so that a running
/// thread's is a small constant.
struct JoinRecord {
  JoinKind kind = JoinKind::free;
  Rank rank{0};
  SlotId slot{0};

  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return static_cast<std::uint64_t>(raw(slot)) << 32 |
           static_cast<std::uint64_t>(raw(rank) & 0xFFFFFFFu) << 4 | static_cast<std::uint64_t>(kind);
  }
  [[nodiscard]] static constexpr JoinRecord unpack(std::uint64_t word) noexcept {
    return {static_cast<JoinKind>(word & 0xFu), Rank{static_cast<std::uint32_t>(word) >> 4},
            SlotId{static_cast<std::uint32_t>(word >> 32)}};
  }
  friend constexpr bool operator==(JoinRecord, JoinRecord) = default;
};

/// What happens to a thread, seen from its record.
struct JoinEvent {
  enum class Kind : std::uint8_t { start, exit, join, detach };
  Kind kind;
  Rank rank{0};    ///< exit: where; join: where the joiner runs
  SlotId slot{0};  ///< join: the joiner
};

enum class JoinAction : std::uint8_t {
  none,
  suspend,    ///< joiner: you are the waiter now
  wake,       ///< exiter: the waiter of the *old* record may go on
  collect,    ///< joiner: cross the old record's rank, take the exception, free the slot
  free_slot,  ///< detacher or exiter: free the slot (the exiter off its own stack)
  refuse,     ///< joined or detached before, or no such thread: the record stays
};

struct JoinStep {
  JoinRecord next;
  JoinAction action;
  friend constexpr bool operator==(JoinStep, JoinStep) = default;
};

[[nodiscard]] constexpr JoinStep next(JoinRecord state, JoinEvent event) noexcept {
  using Event = JoinEvent::Kind;
  constexpr JoinRecord kFree{};
  switch (state.kind) {
    case JoinKind::free:
      if (event.kind == Event::start) return {{JoinKind::running}, JoinAction::none};
      break;
    case JoinKind::running:
      if (event.kind == Event::exit) return {{JoinKind::exited, event.rank}, JoinAction::none};
      if (event.kind == Event::join) return {{JoinKind::waited, event.rank, event.slot}, JoinAction::suspend};
      if (event.kind == Event::detach) return {{JoinKind::detached}, JoinAction::none};
      break;
    case JoinKind::waited:
      if (event.kind == Event::exit) return {{JoinKind::reserved, event.rank, state.slot}, JoinAction::wake};
      break;
    case JoinKind::exited:
      if (event.kind == Event::join) return {kFree, JoinAction::collect};
      if (event.kind == Event::detach) return {kFree, JoinAction::free_slot};
      break;
    case JoinKind::reserved:
      // Another joiner's mistake must not take the slot away from under the one that has been woken.
      if (event.kind == Event::join && event.slot == state.slot) return {kFree, JoinAction::collect};
      break;
    case JoinKind::detached:
      if (event.kind == Event::exit) return {kFree, JoinAction::free_slot};
      break;
  }
  return {state, JoinAction::refuse};
}

}  // namespace kasane::ult
