// SPDX-License-Identifier: Apache-2.0
// The latch's protocol, pure (sync_record_step.h). docs/design/sched.md, "Latch".
//
//   word    still to come 32 | newest waiter 32 (link)     0: open, for ever
//
// The last arrival takes the list of waiters with the same compare-swap and wakes them. Nothing of the record
// is touched after that, so a thread that passed may destroy the latch.
//
// Thread safety: pure. Invariant: an open latch has no waiters; a waiter's link is read before it is woken.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct LatchWord {
  std::uint32_t missing = 0;
  SlotId newest = kNoSlot;

  [[nodiscard]] constexpr Word pack() const noexcept { return Word{missing} << 32 | link_to(newest); }
  [[nodiscard]] static constexpr LatchWord unpack(Word w) noexcept {
    return {static_cast<std::uint32_t>(w >> 32), slot_of_link(w & 0xFFFFFFFFu)};
  }
  friend constexpr bool operator==(LatchWord, LatchWord) = default;
};

enum class LatchAction : std::uint32_t {
  pass,      ///< it is open
  wait,      ///< self is the newest waiter now
  declined,  ///< self would have to wait, but may not: nothing happened
  counted,   ///< others are still to come
  opened,    ///< self was the last, and has taken the list of waiters
  refuse,    ///< more come than were expected
};

struct LatchStep {
  LatchWord next;
  LatchAction action;
};

[[nodiscard]] constexpr LatchStep count_down(LatchWord w, std::uint32_t n) noexcept {
  if (n > w.missing) return {w, LatchAction::refuse};
  if (n < w.missing) return {{w.missing - n, w.newest}, LatchAction::counted};
  return {{}, n == 0 ? LatchAction::counted : LatchAction::opened};
}
[[nodiscard]] constexpr LatchStep wait(LatchWord w, SlotId self) noexcept {
  if (w.missing == 0) return {w, LatchAction::pass};
  return {{w.missing, self}, LatchAction::wait};
}

/// Waits for self. may_wait: self is suspended and may be pushed. Outcome pass, wait or declined.
class LatchWait {
 public:
  constexpr LatchWait() noexcept = default;
  constexpr LatchWait(SlotId self, bool may_wait) noexcept : self_(self), may_wait_(may_wait) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: phase_ = Phase::word_read; return SyncStep::load(SyncField::word);
      case Phase::word_read: break;
      case Phase::linked:
        phase_ = Phase::swapped;
        return SyncStep::compare_swap(seen_, wait(LatchWord::unpack(seen_), self_).next.pack());
      case Phase::swapped:
        if (result == seen_) return SyncStep::done(LatchAction::wait);
        break;
    }
    seen_ = result;
    const LatchWord w = LatchWord::unpack(seen_);
    if (wait(w, self_).action == LatchAction::pass) return SyncStep::done(LatchAction::pass);
    if (may_wait_ == 0) return SyncStep::done(LatchAction::declined);
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, w.newest);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, linked, swapped };
  Word seen_ = 0;
  SlotId self_ = kNoSlot;
  std::uint32_t may_wait_ = 0;
  Phase phase_ = Phase::start;
  [[maybe_unused]] std::uint32_t pad_ = 0;  // no padding bytes
};

/// Counts n down. Outcome counted, opened or refuse.
class LatchCount {
 public:
  constexpr LatchCount() noexcept = default;
  explicit constexpr LatchCount(std::uint32_t n) noexcept : n_(n) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return look(result);
      case Phase::swapped:
        if (result != seen_) return look(result);
        if (step().action == LatchAction::counted) return SyncStep::done(LatchAction::counted);
        return wake_next(LatchWord::unpack(seen_).newest);
      case Phase::link_read: older_ = slot_of_link(result); return go(Phase::woke, SyncStep::wake(waiter_));
      case Phase::woke: return wake_next(older_);
    }
    return SyncStep::done(LatchAction::refuse);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, swapped, link_read, woke };

  [[nodiscard]] constexpr LatchStep step() const noexcept { return count_down(LatchWord::unpack(seen_), n_); }
  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  constexpr SyncStep look(Word result) noexcept {
    seen_ = result;
    if (step().action == LatchAction::refuse) return SyncStep::done(LatchAction::refuse);
    return go(Phase::swapped, SyncStep::compare_swap(seen_, step().next.pack()));
  }
  constexpr SyncStep wake_next(SlotId s) noexcept {
    if (s == kNoSlot) return SyncStep::done(LatchAction::opened);
    waiter_ = s;
    // before it is woken: then its link is its own again
    return go(Phase::link_read, SyncStep::load_next(s));
  }

  Word seen_ = 0;
  std::uint32_t n_ = 0;
  SlotId waiter_ = kNoSlot, older_ = kNoSlot;
  Phase phase_ = Phase::start;
};

}  // namespace kasane::ult
