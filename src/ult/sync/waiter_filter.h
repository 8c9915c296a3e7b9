// SPDX-License-Identifier: Apache-2.0
// Appends new waiters to a queue, and takes some waiters out: a machine (sync_record_step.h) that the server
// of a queue runs.
//
//   fifo   oldest ─► … ─► youngest     then the list taken from the word, newest first: reversed, appended
//
// Thread safety: pure. Invariant: a waiter is unlinked, and its link read, before it goes.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"
#include "ult/timed_wait.h"

namespace kasane::ult {

class WaiterFilter {
 public:
  enum class Select : std::uint32_t {
    expired,  ///< waiters whose timers ask to be let go: settled as expired
    first,    ///< the oldest waiter whose note is `key`: woken
    keyed,    ///< all waiters whose note is `key`: woken
    slot,     ///< the waiter whose slot is `key`: woken
    all,      ///< all waiters: woken
    none      ///< no waiter: the list is appended, that is all
  };

  constexpr WaiterFilter() noexcept = default;
  /// fifo: the oldest, linked to younger ones. newest: of the list taken from the word. Either may be none.
  constexpr WaiterFilter(Select select, SlotId fifo, SlotId newest, std::uint32_t key = 0) noexcept
      : select_(select), key_(key), oldest_(fifo), at_(fifo), batch_(newest) {}

  /// After the result of the previous step (any, the first time): the next step, or done when oldest() is
  /// known.
  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return visit();
      case Phase::link_read:
        younger_ = slot_of_link(result & 0xFFFFFFFFu);
        note_ = static_cast<std::uint32_t>(result >> 32);
        if (select_ == Select::expired)
          return (note_ & kTimedWaiter) != 0 ? go(Phase::timed_read, SyncStep::load_timed(at_)) : stays();
        if (select_ == Select::slot) return raw(at_) == key_ ? goes() : stays();
        return select_ == Select::all || (select_ != Select::none && note_ == key_) ? goes() : stays();
      case Phase::timed_read: return TimedWord::unpack(result).leaving() ? goes() : stays();
      case Phase::unlinked: return let_go();
      case Phase::let_go:
        if (select_ == Select::first || select_ == Select::slot) select_ = Select::none;
        at_ = younger_;
        return visit();
      case Phase::turning: return turn(result);
      case Phase::turned: return append();
      case Phase::appended: return visit();
    }
    return SyncStep::done(0);
  }
  /// The oldest of the waiters that stay.
  [[nodiscard]] constexpr SlotId oldest() const noexcept { return oldest_; }

 private:
  enum class Phase : std::uint32_t {
    start,
    link_read,
    timed_read,
    unlinked,
    let_go,
    turning,
    turned,
    appended
  };

  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  constexpr SyncStep visit() noexcept {
    if (select_ == Select::none && batch_ == kNoSlot) return SyncStep::done(0);
    if (at_ != kNoSlot) return go(Phase::link_read, SyncStep::load_next(at_));
    if (batch_ == kNoSlot) return SyncStep::done(0);
    reversal_ = Reversal(batch_);
    batch_ = kNoSlot;
    return turn(0);
  }
  constexpr SyncStep stays() noexcept {
    last_ = at_;
    last_note_ = note_;
    at_ = younger_;
    return visit();
  }
  constexpr SyncStep goes() noexcept {
    if (last_ != kNoSlot) return go(Phase::unlinked, SyncStep::store_next(last_, younger_, last_note_));
    oldest_ = younger_;
    return let_go();
  }
  constexpr SyncStep let_go() noexcept {
    return go(Phase::let_go, select_ == Select::expired ? SyncStep::settle(at_, TimedOutcome::expired)
                                                        : SyncStep::wake(at_));
  }
  constexpr SyncStep turn(Word result) noexcept {
    const SyncStep s = reversal_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::turning, s);
    at_ = reversal_.oldest();
    // One alone has no link: it was pushed on an empty list.
    if (reversal_.rest() == kNoSlot) return append();
    return go(Phase::turned, SyncStep::store_next(at_, reversal_.rest(), reversal_.oldest_note()));
  }
  constexpr SyncStep append() noexcept {
    if (last_ != kNoSlot) return go(Phase::appended, SyncStep::store_next(last_, at_, last_note_));
    oldest_ = at_;
    return visit();
  }

  Select select_ = Select::expired;
  std::uint32_t key_ = 0;
  SlotId oldest_ = kNoSlot;
  SlotId last_ = kNoSlot;  ///< the youngest so far that stays
  std::uint32_t last_note_ = 0;
  SlotId at_ = kNoSlot, younger_ = kNoSlot;  ///< the waiter looked at, and the one behind it
  std::uint32_t note_ = 0;
  SlotId batch_ = kNoSlot;
  Phase phase_ = Phase::start;
  Reversal reversal_;
  std::uint32_t pad_ = 0;  // no padding bytes
};

}  // namespace kasane::ult
