// SPDX-License-Identifier: Apache-2.0
// The protocol of a semaphore's permits, pure (sync_record_step.h): threads take some number of permits, give
// any number, and wait first come first served. A counting semaphore takes one at a time; of a shared mutex a
// reader takes one and a writer all. docs/design/sched.md, "Permits", has the table.
//
//   word          newest waiter 32 (link) | available 30 | older, or leaving while served 1 | serving 1
//   fifo          the oldest waiter, linked to younger ones; only the server touches it
//   waiter's next link 32, and above it how many the waiter wants, and whether it has a deadline
//
// A thread that gives permits while others wait becomes the *server*, unless there is one. The server grants
// permits to waiters, oldest first, as long as there are enough, and wakes them. The timer of a waiter whose
// deadline has passed becomes the server, too: the server lets go of all waiters whose timers ask
// (timed_wait.h), and grants what can be granted then.
//
// Thread safety: pure. Invariants: no server ⇒ the oldest waiter wants more than is available; available +
// granted changes only by what is given and taken; a waiter's link is read before it is woken.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync/waiter_filter.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

inline constexpr std::uint32_t kMaxPermits = (1u << 30) - 1;

struct SemaphoreWord {
  SlotId newest = kNoSlot;
  std::uint32_t available = 0;
  bool older = false;  ///< fifo is not empty (kept while there is no server)
  bool serving = false;
  bool leaving = false;  ///< some waiters' timers ask (only while there is a server)

  [[nodiscard]] constexpr Word pack() const noexcept {
    return link_to(newest) << 32 | Word{available} << 2 | Word{older || leaving} << 1 | Word{serving};
  }
  [[nodiscard]] static constexpr SemaphoreWord unpack(Word w) noexcept {
    const bool serving = (w & 1) != 0, second = (w & 2) != 0;
    return {slot_of_link(w >> 32), static_cast<std::uint32_t>(w >> 2) & kMaxPermits, second && !serving,
            serving, second && serving};
  }
  [[nodiscard]] constexpr bool waited_for() const noexcept { return newest != kNoSlot || older || serving; }
  friend constexpr bool operator==(SemaphoreWord, SemaphoreWord) = default;
};

enum class SemaphoreEvent : std::uint32_t {
  take,  ///< self wants some
  give,
  leave,        ///< timers ask
  serve,        ///< the server's next step; the oldest of fifo wants some
  serve_last,   ///< … and is alone there
  serve_empty,  ///< … fifo is empty
};

enum class SemaphoreAction : std::uint32_t {
  taken,     ///< self has them
  wait,      ///< self is the newest waiter; its link and its wish were written first
  declined,  ///< self would have to wait, but may not: nothing happened
  given,     ///< no thread waits
  added,     ///< the server will see to it
  begin,     ///< self is the server now
  grant,     ///< the oldest has what it wants: wake it
  finish,    ///< … and no other thread waits: self is the server no more, and touches the record no more
  /// took the word's list: waiters of it and of fifo whose timers ask are let go; the others are fifo now
  filter,
  collect,  ///< took the list of the word: turned round it is fifo now
  end,      ///< self is the server no more
  refuse,   ///< more are given than there can be
};

struct SemaphoreStep {
  SemaphoreWord next;
  SemaphoreAction action;
};

/// amount: wanted, given, or wanted by the oldest. most: of take and give, how many there are in all.
[[nodiscard]] constexpr SemaphoreStep next(SemaphoreWord w, SemaphoreEvent event, std::uint32_t amount,
                                           SlotId self = kNoSlot, std::uint32_t most = kMaxPermits) noexcept {
  using Action = SemaphoreAction;
  SemaphoreWord n = w;
  switch (event) {
    case SemaphoreEvent::take:
      if (w.waited_for() || w.available < amount) {
        n.newest = self;
        return {n, Action::wait};
      }
      n.available -= amount;
      return {n, Action::taken};
    case SemaphoreEvent::give:
      if (amount > most || w.available > most - amount) return {w, Action::refuse};
      n.available += amount;
      if (w.serving) return {n, Action::added};
      if (!w.waited_for()) return {n, Action::given};
      n.older = false;
      n.serving = true;
      return {n, Action::begin};
    case SemaphoreEvent::leave:
      if (!w.waited_for()) return {w, Action::given};
      n.leaving = n.serving = true;
      n.older = false;
      return {n, w.serving ? Action::added : Action::begin};
    case SemaphoreEvent::serve:
    case SemaphoreEvent::serve_last:
    case SemaphoreEvent::serve_empty: break;
  }
  if (w.leaving) {
    n.leaving = false;
    n.newest = kNoSlot;
    return {n, Action::filter};
  }
  switch (event) {
    case SemaphoreEvent::serve:
    case SemaphoreEvent::serve_last:
      if (w.available < amount) return {{w.newest, w.available, true, false}, Action::end};
      n.available -= amount;
      n.serving = event == SemaphoreEvent::serve || w.newest != kNoSlot;
      return {n, n.serving ? Action::grant : Action::finish};
    default: break;
  }
  n.newest = kNoSlot;
  if (w.newest != kNoSlot) return {n, Action::collect};
  n.serving = false;
  return {n, Action::end};
}

/// Takes `amount` for self. may_wait: self is suspended and may be pushed; timed: with a deadline. Outcome
/// taken, wait or declined.
class SemaphoreAcquire {
 public:
  constexpr SemaphoreAcquire() noexcept = default;
  constexpr SemaphoreAcquire(SlotId self, std::uint32_t amount, bool may_wait, bool timed = false) noexcept
      : self_(self), amount_(amount), may_wait_(may_wait), note_(timed ? kTimedWaiter : 0) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: phase_ = Phase::word_read; return SyncStep::load(SyncField::word);
      case Phase::word_read: break;
      case Phase::linked: return swap();
      case Phase::swapped:
        if (result == seen_) return SyncStep::done(step().action);
        break;
    }
    seen_ = result;
    if (step().action == SemaphoreAction::taken) return swap();
    if (may_wait_ == 0) return SyncStep::done(SemaphoreAction::declined);
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, SemaphoreWord::unpack(seen_).newest, amount_ | note_);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, linked, swapped };
  [[nodiscard]] constexpr SemaphoreStep step() const noexcept {
    return ult::next(SemaphoreWord::unpack(seen_), SemaphoreEvent::take, amount_, self_);
  }
  constexpr SyncStep swap() noexcept {
    phase_ = Phase::swapped;
    return SyncStep::compare_swap(seen_, step().next.pack());
  }

  Word seen_ = 0;
  SlotId self_ = kNoSlot;
  std::uint32_t amount_ = 0, may_wait_ = 0, note_ = 0;
  Phase phase_ = Phase::start;
  [[maybe_unused]] std::uint32_t pad_ = 0;  // no padding bytes
};

/// Gives `amount`, or lets waiters go whose timers ask; and serves if threads wait and there is no server.
/// Outcome given, added, end or refuse.
class SemaphoreRelease {
 public:
  constexpr SemaphoreRelease() noexcept = default;
  constexpr SemaphoreRelease(std::uint32_t amount, std::uint32_t most) noexcept
      : amount_(amount), most_(most) {}
  [[nodiscard]] static constexpr SemaphoreRelease leave() noexcept {
    SemaphoreRelease g;
    g.event_ = SemaphoreEvent::leave;
    return g;
  }

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return give(result);
      case Phase::giving:
        if (result != seen_) return give(result);
        return given();
      case Phase::fifo_read: oldest_ = stored_ = slot_of_link(result); return look();
      case Phase::oldest_read:
        younger_ = slot_of_link(result & 0xFFFFFFFFu);
        wanted_ = static_cast<std::uint32_t>(result >> 32);
        return serve();
      case Phase::fifo_written: return serve();
      case Phase::serving:
        if (result == seen_) return served();
        seen_ = result;
        return serve();
      case Phase::woken: oldest_ = younger_; return look();
      case Phase::woken_last: return SyncStep::done(SemaphoreAction::end);
      case Phase::filtering: return filter(result);
    }
    return SyncStep::done(SemaphoreAction::refuse);
  }

 private:
  enum class Phase : std::uint32_t {
    start,
    word_read,
    giving,
    fifo_read,
    oldest_read,
    fifo_written,
    serving,
    woken,
    woken_last,
    filtering
  };

  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  [[nodiscard]] constexpr SemaphoreStep giving_step() const noexcept {
    return ult::next(SemaphoreWord::unpack(seen_), event_, amount_, kNoSlot, most_);
  }
  [[nodiscard]] constexpr SemaphoreStep serving_step() const noexcept {
    const SemaphoreEvent event = oldest_ == kNoSlot    ? SemaphoreEvent::serve_empty
                                 : younger_ == kNoSlot ? SemaphoreEvent::serve_last
                                                       : SemaphoreEvent::serve;
    return ult::next(SemaphoreWord::unpack(seen_), event, wanted_ & kMaxPermits);
  }
  constexpr SyncStep give(Word seen) noexcept {
    seen_ = seen;
    const SemaphoreStep s = giving_step();
    if (s.action == SemaphoreAction::refuse) return SyncStep::done(s.action);
    return go(Phase::giving, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep given() noexcept {
    const SemaphoreStep s = giving_step();
    if (s.action != SemaphoreAction::begin) return SyncStep::done(s.action);
    seen_ = s.next.pack();
    return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
  }
  /// What does the oldest want?
  constexpr SyncStep look() noexcept {
    return oldest_ == kNoSlot ? serve() : go(Phase::oldest_read, SyncStep::load_next(oldest_));
  }
  constexpr SyncStep serve() noexcept {
    const SemaphoreStep s = serving_step();
    const SlotId left = s.action == SemaphoreAction::finish ? kNoSlot : oldest_;
    if (!s.next.serving && left != stored_) {
      stored_ = left;  // before the word says that there is no server: the next server reads it
      return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(left)));
    }
    return go(Phase::serving, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep served() noexcept {
    const SemaphoreStep s = serving_step();
    const SlotId newest = SemaphoreWord::unpack(seen_).newest;
    seen_ = s.next.pack();
    switch (s.action) {
      case SemaphoreAction::grant: return go(Phase::woken, granted());
      // the woken thread may destroy the record
      case SemaphoreAction::finish: return go(Phase::woken_last, granted());
      case SemaphoreAction::filter:
      case SemaphoreAction::collect:
        filter_ = WaiterFilter(
            s.action == SemaphoreAction::filter ? WaiterFilter::Select::expired : WaiterFilter::Select::none,
            oldest_, newest);
        return filter(0);
      default: return SyncStep::done(s.action);
    }
  }
  [[nodiscard]] constexpr SyncStep granted() const noexcept {
    return (wanted_ & kTimedWaiter) != 0 ? SyncStep::settle(oldest_, TimedOutcome::granted)
                                         : SyncStep::wake(oldest_);
  }
  constexpr SyncStep filter(Word result) noexcept {
    const SyncStep s = filter_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::filtering, s);
    oldest_ = filter_.oldest();
    return look();
  }

  Word seen_ = 0;
  std::uint32_t amount_ = 0, most_ = 0;
  SlotId oldest_ = kNoSlot;   ///< the server's copy of fifo
  SlotId stored_ = kNoSlot;   ///< the record's
  SlotId younger_ = kNoSlot;  ///< behind the oldest
  std::uint32_t wanted_ = 0;  ///< of the oldest: its note
  SemaphoreEvent event_ = SemaphoreEvent::give;
  Phase phase_ = Phase::start;
  WaiterFilter filter_;
};

}  // namespace kasane::ult
