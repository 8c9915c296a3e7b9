// SPDX-License-Identifier: Apache-2.0
// The mutex's protocol, pure: the word's transitions (next) and the machines that lock and unlock by them,
// one access at a time (sync_record_step.h). docs/design/sched.md, "Mutex", has the table.
//
//   word   holder 32 | newest waiter 32     links (slot + 1; 0 is none). 0: free
//   fifo   the oldest waiter of the batch being served, linked to younger ones; only the holder touches it
//   last   mark 32 | 1 + rank 32 of the last unlock that orders memory; 0: none yet. The mark was taken when
//          all was stored (ult/edges.h): once the rank has released since, who takes the mutex over need not
//          ask for it
//
// Waiters push themselves on the word. When fifo has run empty, the holder takes them all, reverses the list
// and hands the mutex over to the oldest directly. So the mutex is never free while a thread waits, and no
// other thread can take it in between.
//
// Thread safety: pure. Invariants: holder none ⇒ newest none and fifo empty; a waiter is in exactly one of
// word's list and fifo's; `last` was written before the word that hands over, unless that unlock orders
// nothing.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct MutexWord {
  SlotId holder = kNoSlot;
  SlotId newest = kNoSlot;

  [[nodiscard]] constexpr Word pack() const noexcept { return link_to(holder) << 32 | link_to(newest); }
  [[nodiscard]] static constexpr MutexWord unpack(Word w) noexcept {
    return {slot_of_link(w >> 32), slot_of_link(w & 0xFFFFFFFFu)};
  }
  [[nodiscard]] constexpr bool free() const noexcept { return holder == kNoSlot; }
  friend constexpr bool operator==(MutexWord, MutexWord) = default;
};

struct MutexEvent {
  enum class Kind : std::uint32_t {
    lock,       ///< self wants it
    relock,     ///< a condition variable locks it for self, which may not have unlocked it yet
    unlock,     ///< self gives it up, and knows no waiter in fifo
    hand_over,  ///< self gives it to `to`
  };
  Kind kind;
  SlotId self;
  SlotId to = kNoSlot;
};

enum class MutexAction : std::uint32_t {
  acquired,  ///< self holds it
  wait,      ///< self is the newest waiter now; its link to the one before was written first
  released,  ///< it is free
  collect,   ///< self still holds it and has taken the list of waiters out of the word
  handed,    ///< `to` holds it: wake it
  refuse,    ///< locked twice, or unlocked by a thread that does not hold it
};

struct MutexStep {
  MutexWord next;
  MutexAction action;
  friend constexpr bool operator==(MutexStep, MutexStep) = default;
};

[[nodiscard]] constexpr MutexStep next(MutexWord state, MutexEvent event) noexcept {
  const bool mine = state.holder == event.self;
  switch (event.kind) {
    case MutexEvent::Kind::lock:
    case MutexEvent::Kind::relock:
      if (state.free()) return {{event.self, kNoSlot}, MutexAction::acquired};
      if (mine && event.kind == MutexEvent::Kind::lock) break;
      return {{state.holder, event.self}, MutexAction::wait};
    case MutexEvent::Kind::unlock:
      if (!mine) break;
      if (state.newest == kNoSlot) return {{}, MutexAction::released};
      return {{event.self, kNoSlot}, MutexAction::collect};
    case MutexEvent::Kind::hand_over:
      if (!mine) break;
      return {{event.to, state.newest}, MutexAction::handed};
  }
  return {state, MutexAction::refuse};
}

/// Locks for a suspended thread: outcome acquired, wait or refuse, a MutexAction.
class MutexLock {
 public:
  constexpr MutexLock() noexcept = default;
  constexpr MutexLock(SlotId self, bool relock) noexcept
      : event_{relock ? MutexEvent::Kind::relock : MutexEvent::Kind::lock, self, kNoSlot} {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    if (phase_ == Phase::linked) return swap();
    if (phase_ == Phase::swapped) {
      if (result == seen_.pack()) return SyncStep::done(ult::next(seen_, event_).action);
      seen_ = MutexWord::unpack(result);
    }
    const MutexAction action = ult::next(seen_, event_).action;
    if (action == MutexAction::refuse) return SyncStep::done(action);
    if (action == MutexAction::acquired) return swap();
    phase_ = Phase::linked;
    return SyncStep::store_next(event_.self, seen_.newest);
  }

 private:
  enum class Phase : std::uint32_t { start, linked, swapped };

  constexpr SyncStep swap() noexcept {
    phase_ = Phase::swapped;
    return SyncStep::compare_swap(seen_.pack(), ult::next(seen_, event_).next.pack());
  }

  MutexEvent event_{MutexEvent::Kind::lock, kNoSlot, kNoSlot};
  MutexWord seen_;  // the first guess is: free
  Phase phase_ = Phase::start;
};

/// Unlocks for `self`, which runs (or has just been suspended) on `rank`; kNoRank: what it did while it held
/// the mutex orders nothing, so `last` stays. mark: taken after its stores. Outcome released, handed or
/// refuse, a MutexAction.
class MutexUnlock {
 public:
  constexpr MutexUnlock() noexcept = default;
  constexpr MutexUnlock(SlotId self, Rank rank, ReleaseMark mark = kNoMark) noexcept
      : self_(self), rank_(rank), mark_(mark), seen_{self, kNoSlot} {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start:
        if (rank_ == kNoRank) break;
        return go(Phase::last_read, SyncStep::load(SyncField::last));
      case Phase::last_read:
        // Most unlocks follow one of the same rank: then nothing needs to be written.
        if (result == last()) break;
        return go(Phase::last_written, SyncStep::store(SyncField::last, last()));
      case Phase::last_written: break;
      case Phase::fifo_read: return serve_or_release(slot_of_link(result));
      case Phase::rest_read: return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, result));
      case Phase::fifo_written: return swap(Phase::handing);
      case Phase::releasing: return after_release(result);
      case Phase::reversing: return reverse(result);
      case Phase::handing:
        if (result == seen_.pack()) return go(Phase::woken, SyncStep::wake(next_holder_));
        return retry(result, Phase::handing);
      case Phase::woken: return SyncStep::done(MutexAction::handed);
    }
    return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
  }

 private:
  enum class Phase : std::uint32_t {
    start,
    last_read,
    last_written,
    fifo_read,
    rest_read,
    fifo_written,
    releasing,
    reversing,
    handing,
    woken
  };

  [[nodiscard]] constexpr Word last() const noexcept { return last_of(rank_, mark_); }
  [[nodiscard]] constexpr MutexStep step(Phase p) const noexcept {
    return ult::next(seen_, p == Phase::handing ? MutexEvent{MutexEvent::Kind::hand_over, self_, next_holder_}
                                                : MutexEvent{MutexEvent::Kind::unlock, self_, kNoSlot});
  }
  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  constexpr SyncStep swap(Phase p) noexcept {
    const MutexStep s = step(p);
    if (s.action == MutexAction::refuse) return SyncStep::done(s.action);
    return go(p, SyncStep::compare_swap(seen_.pack(), s.next.pack()));
  }
  constexpr SyncStep retry(Word result, Phase p) noexcept {
    seen_ = MutexWord::unpack(result);
    return swap(p);
  }
  constexpr SyncStep serve_or_release(SlotId oldest) noexcept {
    if (oldest == kNoSlot) return swap(Phase::releasing);
    next_holder_ = oldest;
    return go(Phase::rest_read, SyncStep::load_next(oldest));
  }
  constexpr SyncStep after_release(Word result) noexcept {
    if (result != seen_.pack()) return retry(result, Phase::releasing);
    if (step(Phase::releasing).action == MutexAction::released) return SyncStep::done(MutexAction::released);
    reversal_ = Reversal(seen_.newest);
    seen_ = step(Phase::releasing).next;
    return reverse(0);
  }
  constexpr SyncStep reverse(Word result) noexcept {
    const SyncStep s = reversal_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::reversing, s);
    next_holder_ = reversal_.oldest();
    // fifo was empty, so it is right already for a batch of one.
    if (reversal_.rest() == kNoSlot) return swap(Phase::handing);
    return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(reversal_.rest())));
  }

  SlotId self_ = kNoSlot;
  Rank rank_{0};
  ReleaseMark mark_ = kNoMark;
  MutexWord seen_;  // the first guess is: no waiter
  SlotId next_holder_ = kNoSlot;
  Phase phase_ = Phase::start;
  Reversal reversal_;
};

}  // namespace kasane::ult
