// SPDX-License-Identifier: Apache-2.0
// The barrier's protocol, pure (sync_record_step.h). docs/design/sched.md, "Barrier".
//
//   word    still to arrive 24 | phase 8 | newest waiter 32 (link)
//           at the beginning of phase p: {n, p, none}
//   data0   n: how many arrive in the phases after this one
//
// An arrival counts down. A thread that waits pushes itself in the same step; one that does not wait (a
// token) may wait for its phase later, and pushes itself then. The last arrival sets the word to the next
// phase first and then wakes the list it took, so that threads that arrive again already count for the next
// phase. A thread that drops out lowers n before it arrives: the last arrival reads n after all have arrived,
// and so after that.
//
// A thread that waits for phase p has not arrived in p + 1, so p + 1 cannot end before: one bit of phase
// would do. The other seven refuse nothing, but make it unlikely that a program that counts wrongly waits for
// ever.
//
// Thread safety: pure. Invariants: a waiter's link is read before it is woken; all waiters in the list wait
// for the phase in the word; still-to-arrive is 0 only when all have dropped out.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

inline constexpr std::uint32_t kMostAtBarrier = (1u << 24) - 1;

struct BarrierWord {
  std::uint32_t missing = 0;
  std::uint32_t phase = 0;
  SlotId newest = kNoSlot;

  [[nodiscard]] constexpr Word pack() const noexcept {
    return Word{missing} << 40 | Word{phase} << 32 | link_to(newest);
  }
  [[nodiscard]] static constexpr BarrierWord unpack(Word w) noexcept {
    return {static_cast<std::uint32_t>(w >> 40), static_cast<std::uint32_t>(w >> 32) & 0xFFu,
            slot_of_link(w & 0xFFFFFFFFu)};
  }
  friend constexpr bool operator==(BarrierWord, BarrierWord) = default;
};

enum class BarrierAction : std::uint32_t {
  wait,      ///< self is the newest waiter now
  arrived,   ///< it was counted, and waits for nothing
  open,      ///< self was the last: the phase is over, the list of waiters was taken
  passed,    ///< the phase that self would wait for is over
  declined,  ///< self would have to wait, but may not (it is not suspended yet): nothing happened
  refuse,    ///< more than are missing, or none: nothing happened
};

enum class BarrierEvent : std::uint32_t {
  arrive_and_wait,
  arrive,  ///< for k
  drop,    ///< n was lowered before
  wait,    ///< for a phase that self has arrived in
};

struct BarrierStep {
  BarrierWord next;
  BarrierAction action;
};

/// k arrive (1, but for arrive), or self waits for `phase`; n is used only by the last.
[[nodiscard]] constexpr BarrierStep next(BarrierWord state, BarrierEvent event, SlotId self, std::uint32_t k,
                                         std::uint32_t phase, std::uint32_t n) noexcept {
  const BarrierWord pushed{state.missing - k, state.phase, self};
  switch (event) {
    case BarrierEvent::wait:
      if (state.phase != phase) return {state, BarrierAction::passed};
      return {{state.missing, state.phase, self}, BarrierAction::wait};
    case BarrierEvent::arrive_and_wait:
    case BarrierEvent::arrive:
    case BarrierEvent::drop: break;
  }
  if (k == 0 || k > state.missing) return {state, BarrierAction::refuse};
  if (k == state.missing) return {{n, (state.phase + 1) & 0xFFu, kNoSlot}, BarrierAction::open};
  if (event == BarrierEvent::arrive_and_wait) return {pushed, BarrierAction::wait};
  return {{state.missing - k, state.phase, state.newest}, BarrierAction::arrived};
}

/// What one call does, self's. may_wait: self is suspended and may be pushed; else only what need not wait
/// goes through.
class BarrierCall {
 public:
  constexpr BarrierCall() noexcept = default;
  [[nodiscard]] static constexpr BarrierCall arrive_and_wait(SlotId self, bool may_wait) noexcept {
    return {BarrierEvent::arrive_and_wait, self, may_wait, 1, 0};
  }
  [[nodiscard]] static constexpr BarrierCall arrive(std::uint32_t k) noexcept {
    return {BarrierEvent::arrive, kNoSlot, false, k, 0};
  }
  [[nodiscard]] static constexpr BarrierCall drop() noexcept {
    return {BarrierEvent::drop, kNoSlot, false, 1, 0};
  }
  [[nodiscard]] static constexpr BarrierCall wait(SlotId self, bool may_wait, std::uint32_t phase) noexcept {
    return {BarrierEvent::wait, self, may_wait, 0, phase};
  }

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (step_) {
      case Step::start:
        return event_ == BarrierEvent::drop ? go(Step::n_to_lower, SyncStep::load(SyncField::data0))
                                            : go(Step::word_read, SyncStep::load(SyncField::word));
      case Step::n_to_lower: return lower(result);
      case Step::n_lowered:
        if (result != n_) return lower(result);
        return go(Step::word_read, SyncStep::load(SyncField::word));
      case Step::word_read: return look(result);
      case Step::linked: return swap();
      case Step::n_read: n_ = static_cast<std::uint32_t>(result); return swap();
      case Step::swapped:
        if (result != seen_.pack()) return look(result);
        if (decided().action != BarrierAction::open) return end(decided().action);
        return wake_next(seen_.newest);
      case Step::link_read:
        waiter_ = woken_;
        woken_ = slot_of_link(result);
        return go(Step::woke, SyncStep::wake(waiter_));
      case Step::woke: return wake_next(woken_);
    }
    return end(BarrierAction::refuse);
  }

  /// What an outcome did, and in which phase.
  [[nodiscard]] static constexpr BarrierAction action_of(Word outcome) noexcept {
    return static_cast<BarrierAction>(outcome & 0xFFFFFFFFu);
  }
  [[nodiscard]] static constexpr std::uint32_t phase_of(Word outcome) noexcept {
    return static_cast<std::uint32_t>(outcome >> 32);
  }

 private:
  enum class Step : std::uint32_t {
    start,
    n_to_lower,
    n_lowered,
    word_read,
    linked,
    n_read,
    swapped,
    link_read,
    woke
  };

  constexpr BarrierCall(BarrierEvent event, SlotId self, bool may_wait, std::uint32_t k,
                        std::uint32_t phase) noexcept
      : event_(event), self_(self), may_wait_(may_wait), k_(k), phase_(phase) {}

  constexpr SyncStep go(Step p, SyncStep s) noexcept {
    step_ = p;
    return s;
  }
  [[nodiscard]] constexpr SyncStep end(BarrierAction action) const noexcept {
    return SyncStep::done(Word{seen_.phase} << 32 | static_cast<Word>(action));
  }
  constexpr SyncStep lower(Word n) noexcept {
    n_ = static_cast<std::uint32_t>(n);
    if (n_ == 0) return end(BarrierAction::refuse);
    return go(Step::n_lowered, SyncStep::compare_swap(SyncField::data0, n_, n_ - 1));
  }
  [[nodiscard]] constexpr BarrierStep decided() const noexcept {
    return ult::next(seen_, event_, self_, k_, phase_, n_);
  }
  constexpr SyncStep look(Word result) noexcept {
    seen_ = BarrierWord::unpack(result);
    switch (decided().action) {
      case BarrierAction::open: return go(Step::n_read, SyncStep::load(SyncField::data0));
      case BarrierAction::wait:
        if (may_wait_ == 0) return end(BarrierAction::declined);
        return go(Step::linked, SyncStep::store_next(self_, seen_.newest));
      case BarrierAction::arrived: return swap();
      case BarrierAction::passed:
      case BarrierAction::declined:
      case BarrierAction::refuse: break;
    }
    return end(decided().action);
  }
  constexpr SyncStep swap() noexcept {
    return go(Step::swapped, SyncStep::compare_swap(seen_.pack(), decided().next.pack()));
  }
  constexpr SyncStep wake_next(SlotId s) noexcept {
    if (s == kNoSlot) return end(BarrierAction::open);
    woken_ = s;
    // before it is woken: then its link is its own again
    return go(Step::link_read, SyncStep::load_next(s));
  }

  BarrierEvent event_ = BarrierEvent::arrive_and_wait;
  SlotId self_ = kNoSlot;
  std::uint32_t may_wait_ = 0, k_ = 0, phase_ = 0;
  BarrierWord seen_;
  std::uint32_t n_ = 0;
  SlotId woken_ = kNoSlot, waiter_ = kNoSlot;
  Step step_ = Step::start;
};

}  // namespace kasane::ult
