// SPDX-License-Identifier: Apache-2.0
// The barrier's protocol, pure (sync_record_step.h). docs/design/sched.md, "Barrier".
//
//   word    still to arrive 32 | newest waiter 32 (link)     between two phases: {n, none}
//   data0   n, constant
//
// Every arrival but the last pushes itself; the last one sets the word back first and then wakes the list it took, so that
// those who come round again already count for the next phase.
//
// Thread safety: pure. Invariants: a waiter's link is read before it is woken; still-to-arrive is never 0.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct BarrierWord {
  std::uint32_t missing = 0;
  SlotId newest = kNoSlot;

  [[nodiscard]] constexpr Word pack() const noexcept { return Word{missing} << 32 | link_to(newest); }
  [[nodiscard]] static constexpr BarrierWord unpack(Word w) noexcept {
    return {static_cast<std::uint32_t>(w >> 32), slot_of_link(w & 0xFFFFFFFFu)};
  }
  friend constexpr bool operator==(BarrierWord, BarrierWord) = default;
};

enum class BarrierAction : std::uint32_t {
  wait,      ///< self is the newest waiter now
  open,      ///< self was the last: the phase is over, the list of waiters was taken
  declined,  ///< self would have to wait, but may not (it is not suspended yet): nothing happened
};

struct BarrierStep {
  BarrierWord next;
  BarrierAction action;
};

/// self arrives; n is used only by the last.
[[nodiscard]] constexpr BarrierStep arrive(BarrierWord state, SlotId self, std::uint32_t n) noexcept {
  if (state.missing == 1) return {{n, kNoSlot}, BarrierAction::open};
  return {{state.missing - 1, self}, BarrierAction::wait};
}

/// Arrives for self. may_wait: self is suspended and may be pushed; else only the last arrival goes through.
class BarrierArrival {
 public:
  constexpr BarrierArrival() noexcept = default;
  constexpr BarrierArrival(SlotId self, bool may_wait) noexcept : self_(self), may_wait_(may_wait) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return look(result);
      case Phase::linked: return swap();
      case Phase::n_read:
        n_ = static_cast<std::uint32_t>(result);
        return swap();
      case Phase::swapped:
        if (result != seen_.pack()) return look(result);
        if (arrive(seen_, self_, n_).action == BarrierAction::wait) return SyncStep::done(BarrierAction::wait);
        return wake_next(seen_.newest);
      case Phase::link_read:
        waiter_ = woken_;
        woken_ = slot_of_link(result);
        return go(Phase::woke, SyncStep::wake(waiter_));
      case Phase::woke: return wake_next(woken_);
    }
    return SyncStep::done(BarrierAction::declined);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, linked, n_read, swapped, link_read, woke };

  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  constexpr SyncStep look(Word result) noexcept {
    seen_ = BarrierWord::unpack(result);
    if (seen_.missing == 1) return go(Phase::n_read, SyncStep::load(SyncField::data0));
    if (may_wait_ == 0) return SyncStep::done(BarrierAction::declined);
    return go(Phase::linked, SyncStep::store_next(self_, seen_.newest));
  }
  constexpr SyncStep swap() noexcept {
    return go(Phase::swapped, SyncStep::compare_swap(seen_.pack(), arrive(seen_, self_, n_).next.pack()));
  }
  constexpr SyncStep wake_next(SlotId s) noexcept {
    if (s == kNoSlot) return SyncStep::done(BarrierAction::open);
    woken_ = s;
    return go(Phase::link_read, SyncStep::load_next(s));   // before it is woken: then its link is its own again
  }

  SlotId self_ = kNoSlot;
  std::uint32_t may_wait_ = 0;
  BarrierWord seen_;
  std::uint32_t n_ = 0;
  SlotId woken_ = kNoSlot, waiter_ = kNoSlot;
  Phase phase_ = Phase::start;
};

}  // namespace kasane::ult
