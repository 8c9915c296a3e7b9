// SPDX-License-Identifier: Apache-2.0
// The condition variable's protocol, pure (sync_record_step.h). docs/design/sched.md, "Condition variable",
// has the table.
//
//   word    newest waiter 32 (link) | pending 29 | all 1 | older, or leaving while served 1 | serving 1
//   fifo    the oldest waiter, linked to younger ones; only the server touches it
//   data0   1 + handle of the waiters' mutex
//
// A notifier never waits for another: the first becomes the *server*, the others add theirs to `pending` (or
// set `all`) and go on. The server moves waiters, oldest first, to the mutex's own list (requeue), so that a
// notified thread wakes up as its holder, and waiters do not all wake to compete for it. The timer of a
// waiter whose deadline has passed serves, too, or asks the server: a waiter that is let go is requeued as
// well (timed_wait.h).
//
// Thread safety: pure. Invariants: fifo non-empty ⇒ older or serving; a waiter is in exactly one list; a
// notification that found a waiter is served before its server returns.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync/waiter_filter.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct ConditionWord {
  SlotId newest = kNoSlot;
  std::uint32_t pending = 0;  ///< notifications to serve, for one thread each
  bool all = false;           ///< one for all that wait now
  bool older = false;         ///< fifo is not empty (kept while there is no server)
  bool serving = false;       ///< there is a server
  bool leaving = false;       ///< some waiters' timers ask (only while there is a server)

  static constexpr std::uint32_t kMaxPending = (1u << 29) - 1;

  [[nodiscard]] constexpr Word pack() const noexcept {
    return link_to(newest) << 32 | Word{pending} << 3 | Word{all} << 2 | Word{older || leaving} << 1 |
           Word{serving};
  }
  [[nodiscard]] static constexpr ConditionWord unpack(Word w) noexcept {
    const bool serving = (w & 1) != 0, second = (w & 2) != 0;
    return {slot_of_link(w >> 32),
            static_cast<std::uint32_t>(w >> 3) & kMaxPending,
            (w & 4) != 0,
            second && !serving,
            serving,
            second && serving};
  }
  friend constexpr bool operator==(ConditionWord, ConditionWord) = default;
};

enum class ConditionEvent : std::uint16_t {
  wait,  ///< self waits
  notify_one,
  notify_all,
  leave,        ///< timers ask
  serve,        ///< the server's next step; fifo is not empty
  serve_empty,  ///< … fifo is empty
};

enum class ConditionAction : std::uint32_t {
  pushed,     ///< self is the newest waiter; its link was written first
  no_waiter,  ///< no thread waits: nothing to do
  added,      ///< the server will do it
  begin,      ///< self is the server now
  pop,        ///< requeue the oldest of fifo
  collect,    ///< took the list of the word: turned round it is fifo now
  drain,      ///< … behind fifo: requeue them all
  filter,     ///< … behind fifo: requeue waiters whose timers ask; the others are fifo now
  end,        ///< self is the server no more
};

struct ConditionStep {
  ConditionWord next;
  ConditionAction action;
};

[[nodiscard]] constexpr ConditionStep next(ConditionWord w, ConditionEvent event,
                                           SlotId self = kNoSlot) noexcept {
  using Event = ConditionEvent;
  using Action = ConditionAction;
  ConditionWord n = w;
  switch (event) {
    case Event::wait: n.newest = self; return {n, Action::pushed};
    case Event::notify_one:
    case Event::notify_all:
      if (!w.serving && !w.older && w.newest == kNoSlot) return {w, Action::no_waiter};
      if (event == Event::notify_all)
        n.all = true;
      else if (w.pending < ConditionWord::kMaxPending)
        ++n.pending;
      n.older = false;
      n.serving = true;
      return {n, w.serving ? Action::added : Action::begin};
    case Event::leave:
      if (!w.serving && !w.older && w.newest == kNoSlot) return {w, Action::no_waiter};
      n.leaving = n.serving = true;
      n.older = false;
      return {n, w.serving ? Action::added : Action::begin};
    case Event::serve:
    case Event::serve_empty: break;
  }
  if (w.all) return {{.serving = true}, Action::drain};
  if (w.leaving) {
    n.leaving = false;
    n.newest = kNoSlot;
    return {n, Action::filter};
  }
  if (w.pending != 0 && event == Event::serve) {
    --n.pending;
    return {n, Action::pop};
  }
  if (w.pending != 0 && w.newest != kNoSlot) {
    n.newest = kNoSlot;
    return {n, Action::collect};
  }
  // Nothing to serve, or no waiter to serve: notifications are not kept for later waiters.
  return {{.newest = w.newest, .older = event == Event::serve}, Action::end};
}

/// Pushes a waiter that still holds its mutex; timed: with a deadline. Outcome pushed.
class ConditionWait {
 public:
  constexpr ConditionWait() noexcept = default;
  explicit constexpr ConditionWait(SlotId self, bool timed = false) noexcept
      : self_(self), note_(timed ? kTimedWaiter : 0) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    if (phase_ == Phase::linked) {
      phase_ = Phase::swapped;
      return SyncStep::compare_swap(
          seen_, ult::next(ConditionWord::unpack(seen_), ConditionEvent::wait, self_).next.pack());
    }
    if (phase_ == Phase::swapped) {
      if (result == seen_) return SyncStep::done(ConditionAction::pushed);
      seen_ = result;
    }
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, ConditionWord::unpack(seen_).newest, note_);
  }

 private:
  enum class Phase : std::uint32_t { start, linked, swapped };
  Word seen_ = 0;  // the first guess is: no waiter
  SlotId self_ = kNoSlot;
  std::uint32_t note_ = 0;
  Phase phase_ = Phase::start;
  std::uint32_t pad_ = 0;  // no padding bytes
};

/// Notifies, or lets waiters go whose timers ask; and serves if there is no server. Outcome no_waiter,
/// added or end.
class ConditionNotify {
 public:
  constexpr ConditionNotify() noexcept = default;
  explicit constexpr ConditionNotify(bool all) noexcept
      : event_(all ? ConditionEvent::notify_all : ConditionEvent::notify_one) {}
  [[nodiscard]] static constexpr ConditionNotify leave() noexcept {
    ConditionNotify n;
    n.event_ = ConditionEvent::leave;
    return n;
  }

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return notify(result);
      case Phase::notified:
        if (result != seen_) return notify(result);
        if (step(event_).action == ConditionAction::added) return SyncStep::done(ConditionAction::added);
        seen_ = step(event_).next.pack();
        return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
      case Phase::fifo_read: fifo_ = stored_ = slot_of_link(result); return serve();
      case Phase::fifo_written: return serve();
      case Phase::served:
        if (result == seen_) return served();
        seen_ = result;
        return serve();
      case Phase::filtering: return filter(result);
      case Phase::link_read: {
        const SlotId oldest = fifo_;
        const bool timed = (result >> 32 & kTimedWaiter) != 0;
        fifo_ = slot_of_link(result & 0xFFFFFFFFu);
        return go(Phase::requeued,
                  timed ? SyncStep::settle(oldest, TimedOutcome::granted) : SyncStep::requeue(oldest));
      }
      case Phase::requeued: return draining_ != 0 ? drain() : serve();
    }
    return SyncStep::done(ConditionAction::no_waiter);
  }

 private:
  enum class Phase : std::uint32_t {
    start,
    word_read,
    notified,
    fifo_read,
    fifo_written,
    served,
    filtering,
    link_read,
    requeued
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
    if (s.action == ConditionAction::no_waiter) return SyncStep::done(s.action);
    return go(Phase::notified, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep serve() noexcept {
    const ConditionStep s = serving_step();
    if (s.action == ConditionAction::end && fifo_ != stored_) {
      stored_ = fifo_;  // before the word says that there is no server: the next server reads it
      return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(fifo_)));
    }
    return go(Phase::served, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep served() noexcept {
    const ConditionStep s = serving_step();
    const SlotId newest = ConditionWord::unpack(seen_).newest;
    seen_ = s.next.pack();
    if (s.action == ConditionAction::pop) return go(Phase::link_read, SyncStep::load_next(fifo_));
    if (s.action == ConditionAction::end) return SyncStep::done(s.action);
    draining_ = s.action == ConditionAction::drain ? 1 : 0;
    filter_ = WaiterFilter(
        s.action == ConditionAction::filter ? WaiterFilter::Select::expired : WaiterFilter::Select::none,
        fifo_, newest);
    return filter(0);
  }
  constexpr SyncStep filter(Word result) noexcept {
    const SyncStep s = filter_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::filtering, s);
    fifo_ = filter_.oldest();
    return draining_ != 0 ? drain() : serve();
  }
  constexpr SyncStep drain() noexcept {
    if (fifo_ != kNoSlot) return go(Phase::link_read, SyncStep::load_next(fifo_));
    draining_ = 0;
    return serve();
  }

  Word seen_ = 0;
  ConditionEvent event_ = ConditionEvent::notify_one;
  std::uint16_t draining_ = 0;
  Phase phase_ = Phase::start;
  SlotId fifo_ = kNoSlot;    ///< the server's copy
  SlotId stored_ = kNoSlot;  ///< the record's
  WaiterFilter filter_;
};

}  // namespace kasane::ult
