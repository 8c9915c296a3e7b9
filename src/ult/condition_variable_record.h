// SPDX-License-Identifier: Apache-2.0
// The condition variable's protocol, pure (sync_record_step.h). docs/design/sched.md, "Condition variable", has the table.
//
//   word    newest waiter 32 (link) | pending 29 | all 1 | older 1 | serving 1
//   fifo    the oldest waiter, linked to younger ones; only the server touches it
//   data0   1 + handle of the waiters' mutex
//
// A notifier never waits for another: the first becomes the *server*, the others add theirs to `pending` (or set `all`) and go on.
// The server moves waiters, oldest first, to the mutex's own list (requeue), so that a notified thread wakes up as its
// holder; no herd runs for it.
//
// Thread safety: pure. Invariants: fifo non-empty ⇒ older or serving; a waiter is in exactly one list; a notification that
// found a waiter is served before its server returns.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct ConditionWord {
  SlotId newest = kNoSlot;
  std::uint32_t pending = 0;   ///< notifications to serve, for one thread each
  bool all = false;            ///< one for all who wait now
  bool older = false;          ///< fifo is not empty (kept while nobody serves)
  bool serving = false;        ///< somebody serves

  static constexpr std::uint32_t kMaxPending = (1u << 29) - 1;

  [[nodiscard]] constexpr Word pack() const noexcept {
    return link_to(newest) << 32 | Word{pending} << 3 | Word{all} << 2 | Word{older} << 1 | Word{serving};
  }
  [[nodiscard]] static constexpr ConditionWord unpack(Word w) noexcept {
    return {slot_of_link(w >> 32), static_cast<std::uint32_t>(w >> 3) & kMaxPending, (w & 4) != 0, (w & 2) != 0, (w & 1) != 0};
  }
  friend constexpr bool operator==(ConditionWord, ConditionWord) = default;
};

enum class ConditionEvent : std::uint16_t {
  wait,         ///< self waits
  notify_one,
  notify_all,
  serve,        ///< the server looks what is next; fifo has somebody
  serve_empty,  ///< … fifo is empty
};

enum class ConditionAction : std::uint32_t {
  pushed,    ///< self is the newest waiter; its link was written first
  nobody,    ///< nobody waits: nothing to do
  added,     ///< the server will do it
  begin,     ///< self is the server now
  pop,       ///< requeue the oldest of fifo
  collect,   ///< took the list of the word: turn it round, requeue the oldest; the rest is fifo
  drain,     ///< took the list of the word: requeue all of fifo, then all of it
  end,       ///< self is the server no more
};

struct ConditionStep {
  ConditionWord next;
  ConditionAction action;
};

[[nodiscard]] constexpr ConditionStep next(ConditionWord w, ConditionEvent event, SlotId self = kNoSlot) noexcept {
  using Event = ConditionEvent;
  using Action = ConditionAction;
  ConditionWord n = w;
  switch (event) {
    case Event::wait:
      n.newest = self;
      return {n, Action::pushed};
    case Event::notify_one:
    case Event::notify_all:
      if (!w.serving && !w.older && w.newest == kNoSlot) return {w, Action::nobody};
      if (event == Event::notify_all) n.all = true;
      else if (w.pending < ConditionWord::kMaxPending) ++n.pending;
      n.older = false;
      n.serving = true;
      return {n, w.serving ? Action::added : Action::begin};
    case Event::serve:
    case Event::serve_empty:
      break;
  }
  if (w.all) return {{.serving = true}, Action::drain};
  if (w.pending != 0 && event == Event::serve) {
    --n.pending;
    return {n, Action::pop};
  }
  if (w.pending != 0 && w.newest != kNoSlot) {
    --n.pending;
    n.newest = kNoSlot;
    return {n, Action::collect};
  }
  // Nothing to serve, or nobody to serve it to: notifications are not kept for later waiters.
  return {{.newest = w.newest, .older = event == Event::serve}, Action::end};
}

/// Pushes a waiter that still holds its mutex. Outcome pushed.
class ConditionWait {
 public:
  constexpr ConditionWait() noexcept = default;
  explicit constexpr ConditionWait(SlotId self) noexcept : self_(self) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    if (phase_ == Phase::linked) {
      phase_ = Phase::swapped;
      return SyncStep::compare_swap(seen_, ult::next(ConditionWord::unpack(seen_), ConditionEvent::wait, self_).next.pack());
    }
    if (phase_ == Phase::swapped) {
      if (result == seen_) return SyncStep::done(ConditionAction::pushed);
      seen_ = result;
    }
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, ConditionWord::unpack(seen_).newest);
  }

 private:
  enum class Phase : std::uint32_t { start, linked, swapped };
  Word seen_ = 0;   // the first guess is: nobody waits
  SlotId self_ = kNoSlot;
  Phase phase_ = Phase::start;
};

/// Notifies, and serves if nobody else does. Outcome nobody, added or end.
class ConditionNotify {
 public:
  constexpr ConditionNotify() noexcept = default;
  explicit constexpr ConditionNotify(bool all) noexcept
      : event_(all ? ConditionEvent::notify_all : ConditionEvent::notify_one) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return notify(result);
      case Phase::notified:
        if (result != seen_) return notify(result);
        if (step(event_).action == ConditionAction::added) return SyncStep::done(ConditionAction::added);
        seen_ = step(event_).next.pack();
        return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
      case Phase::fifo_read:
        fifo_ = stored_ = slot_of_link(result);
        return serve();
      case Phase::fifo_written: return serve();
      case Phase::served:
        if (result == seen_) return begin();
        seen_ = result;
        return serve();
      case Phase::link_read: {
        const SlotId oldest = fifo_;
        fifo_ = slot_of_link(result);
        return go(Phase::requeued, SyncStep::requeue(oldest));
      }
      case Phase::reversing: return reverse(result);
      case Phase::requeued: return draining_ != 0 ? drain() : serve();
    }
    return SyncStep::done(ConditionAction::nobody);
  }

 private:
  enum class Phase : std::uint32_t {
    start, word_read, notified, fifo_read, fifo_written, served, link_read, reversing, requeued
  };

  [[nodiscard]] constexpr ConditionStep step(ConditionEvent e) const noexcept {
    return ult::next(ConditionWord::unpack(seen_), e);
  }
  [[nodiscard]] constexpr ConditionStep serving_step() const noexcept {
    return step(fifo_ == kNoSlot ? ConditionEvent::serve_empty : ConditionEvent::serve);
  }
  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  constexpr SyncStep notify(Word seen) noexcept {
    seen_ = seen;
    const ConditionStep s = step(event_);
    if (s.action == ConditionAction::nobody) return SyncStep::done(s.action);
    return go(Phase::notified, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep serve() noexcept {
    const ConditionStep s = serving_step();
    if (s.action == ConditionAction::end && fifo_ != stored_) {
      stored_ = fifo_;   // before the word says that nobody serves: the next server reads it
      return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(fifo_)));
    }
    return go(Phase::served, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep begin() noexcept {
    const ConditionStep s = serving_step();
    const SlotId newest = ConditionWord::unpack(seen_).newest;
    seen_ = s.next.pack();
    if (s.action == ConditionAction::pop) return go(Phase::link_read, SyncStep::load_next(fifo_));
    if (s.action == ConditionAction::end) return SyncStep::done(s.action);
    batch_ = newest;
    draining_ = s.action == ConditionAction::drain ? 1 : 0;
    return draining_ != 0 ? drain() : turn_round();
  }
  constexpr SyncStep drain() noexcept {
    if (fifo_ != kNoSlot) return go(Phase::link_read, SyncStep::load_next(fifo_));
    if (batch_ != kNoSlot) return turn_round();
    draining_ = 0;
    return serve();
  }
  constexpr SyncStep turn_round() noexcept {
    reversal_ = Reversal(batch_);
    batch_ = kNoSlot;
    return reverse(0);
  }
  constexpr SyncStep reverse(Word result) noexcept {
    const SyncStep s = reversal_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::reversing, s);
    fifo_ = reversal_.rest();
    return go(Phase::requeued, SyncStep::requeue(reversal_.oldest()));
  }

  Word seen_ = 0;
  ConditionEvent event_ = ConditionEvent::notify_one;
  std::uint16_t draining_ = 0;
  Phase phase_ = Phase::start;
  SlotId fifo_ = kNoSlot;     ///< the server's copy
  SlotId stored_ = kNoSlot;   ///< the record's
  SlotId batch_ = kNoSlot;
  Reversal reversal_;
};

}  // namespace kasane::ult
