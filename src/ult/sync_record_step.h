// SPDX-License-Identifier: Apache-2.0
// The steps of the synchronisation protocols (ult/sync: mutex_record.h, condition_variable_record.h,
// barrier_record.h, semaphore_record.h, latch_record.h, watch_record.h).
//
// A protocol is a small machine that requests one access to shared words at a time and gets its result:
//
//   for (SyncStep s = m.next(0); s.kind != done; s = m.next(perform(s))) {}
//
// The shipping code performs the steps over ult::Words (sync_record.h), on any rank. The tests perform them
// on a model, one step of one thread at a time in every order. So what is walked is what ships.
//
// Thread safety: pure values. Invariant: a machine has no padding bytes, so that equal machines have equal
// bytes.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/edges.h"
#include "ult/layout.h"

namespace kasane::ult {

/// A word of the sync record, or of a slot: its link, its wait with a deadline (timed_wait.h).
enum class SyncField : std::uint32_t { word, fifo, last, data0, since, next, timed, object };

/// How a wait with a deadline ended.
enum class TimedOutcome : std::uint32_t { granted, expired };

/// In the note beside a waiter's link: it waits with a deadline, and is settled, not just woken.
inline constexpr std::uint32_t kTimedWaiter = 1u << 31;

/// The record's word `last` (mutex_record.h).
[[nodiscard]] constexpr Word last_of(Rank rank, ReleaseMark mark) noexcept {
  return Word{mark} << 32 | (Word{raw(rank)} + 1);
}
[[nodiscard]] constexpr ReleaseMark mark_of(Word last) noexcept {
  return static_cast<ReleaseMark>(last >> 32);
}
/// kNoRank: none yet.
[[nodiscard]] constexpr Rank rank_of(Word last) noexcept {
  return Rank{static_cast<std::uint32_t>(last) - 1};
}
[[nodiscard]] constexpr bool had_it_last(Word last, Rank rank) noexcept {
  return last != 0 && rank_of(last) == rank;
}

struct SyncStep {
  enum class Kind : std::uint32_t {
    load,          ///< result: the field's value
    store,         ///< field := value
    compare_swap,  ///< on `word`, or data0: expected → value; result: the old value
    wake,          ///< the thread in slot may go on, at the rank where it last ran
    requeue,       ///< the thread in slot waits for its mutex now (condition variables only)
    /// the wait of slot, which has a deadline, is over; value: its TimedOutcome. The thread goes on (is woken
    /// or requeued) now or, if need be, after its timer
    settle,
    done,  ///< the protocol has ended; value is its outcome
  };
  Kind kind;
  SyncField field = SyncField::word;
  SlotId slot = kNoSlot;  ///< of wake, requeue, settle and the slot's fields
  Word value = 0;
  Word expected = 0;

  [[nodiscard]] static constexpr SyncStep load(SyncField f) noexcept {
    return {.kind = Kind::load, .field = f};
  }
  [[nodiscard]] static constexpr SyncStep store(SyncField f, Word v) noexcept {
    return {.kind = Kind::store, .field = f, .value = v};
  }
  [[nodiscard]] static constexpr SyncStep load_next(SlotId s) noexcept {
    return {.kind = Kind::load, .field = SyncField::next, .slot = s};
  }
  [[nodiscard]] static constexpr SyncStep load_timed(SlotId s) noexcept {
    return {.kind = Kind::load, .field = SyncField::timed, .slot = s};
  }
  /// note: what else the slot's word carries, for readers of the link.
  [[nodiscard]] static constexpr SyncStep store_next(SlotId s, SlotId next, std::uint32_t note = 0) noexcept {
    return {
        .kind = Kind::store, .field = SyncField::next, .slot = s, .value = Word{note} << 32 | link_to(next)};
  }
  [[nodiscard]] static constexpr SyncStep compare_swap(Word expected, Word desired) noexcept {
    return compare_swap(SyncField::word, expected, desired);
  }
  [[nodiscard]] static constexpr SyncStep compare_swap(SyncField f, Word expected, Word desired) noexcept {
    return {.kind = Kind::compare_swap, .field = f, .value = desired, .expected = expected};
  }
  [[nodiscard]] static constexpr SyncStep wake(SlotId s) noexcept { return {.kind = Kind::wake, .slot = s}; }
  [[nodiscard]] static constexpr SyncStep requeue(SlotId s) noexcept {
    return {.kind = Kind::requeue, .slot = s};
  }
  [[nodiscard]] static constexpr SyncStep settle(SlotId s, TimedOutcome o) noexcept {
    return {.kind = Kind::settle, .slot = s, .value = static_cast<Word>(o)};
  }
  template <class Outcome>
  [[nodiscard]] static constexpr SyncStep done(Outcome o) noexcept {
    return {.kind = Kind::done, .value = static_cast<Word>(o)};
  }
};

/// Reverses a list of waiters that begins with the newest. One load and one store a waiter; the oldest is
/// found without a store. Notes beside the links stay.
class Reversal {
 public:
  constexpr Reversal() noexcept = default;
  explicit constexpr Reversal(SlotId newest) noexcept : at_(newest) {}

  /// After the result of the previous step (any, the first time): the next step, or done when oldest() and
  /// rest() are known.
  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    if (phase_ == Phase::load) {
      phase_ = Phase::loaded;
      return SyncStep::load_next(at_);
    }
    if (phase_ == Phase::stored) {
      younger_ = at_;
      at_ = older_;
      phase_ = Phase::loaded;
      return SyncStep::load_next(at_);
    }
    older_ = slot_of_link(result & 0xFFFFFFFFu);
    note_ = static_cast<std::uint32_t>(result >> 32);
    if (older_ == kNoSlot) return SyncStep::done(0);
    phase_ = Phase::stored;
    return SyncStep::store_next(at_, younger_, note_);
  }
  [[nodiscard]] constexpr SlotId oldest() const noexcept { return at_; }
  /// The second oldest, linked to the younger ones; kNoSlot if the oldest was alone.
  [[nodiscard]] constexpr SlotId rest() const noexcept { return younger_; }
  [[nodiscard]] constexpr std::uint32_t oldest_note() const noexcept { return note_; }

 private:
  enum class Phase : std::uint32_t { load, loaded, stored };
  Phase phase_ = Phase::load;
  SlotId at_ = kNoSlot, older_ = kNoSlot, younger_ = kNoSlot;
  std::uint32_t note_ = 0;
};

}  // namespace kasane::ult
