// SPDX-License-Identifier: Apache-2.0
// The protocol of permits, pure (sync_record_step.h): threads take some number of them, give any number, and wait first come first served. A counting semaphore
// takes one at a time; of a shared mutex a reader takes one and a writer all. docs/design/sched.md, "Permits", has the table.
//
//   word          newest waiter 32 (link) | available 30 | older, or leaving while somebody serves 1 | serving 1
//   fifo          the oldest waiter, linked to younger ones; only the server touches it
//   waiter's next link 32, and above it how many the waiter wants, and whether it has a deadline
//
// Who gives while somebody waits becomes the *server*, unless there is one: it grants permits to waiters, oldest first, as long as there are enough, and wakes them.
// So does the timer of a waiter whose deadline has passed: the server lets go of all whose timers ask (timed_wait.h), and grants what can be granted then.
//
// Thread safety: pure. Invariants: nobody serves ⇒ the oldest waiter wants more than is available; available + granted is constant but for what is given and taken; a
// waiter's link is read before it is woken.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sieve.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

inline constexpr std::uint32_t kMostPermits = (1u << 30) - 1;

struct PermitsWord {
  SlotId newest = kNoSlot;
  std::uint32_t available = 0;
  bool older = false;     ///< fifo is not empty (kept while nobody serves)
  bool serving = false;
  bool leaving = false;   ///< some waiters' timers ask (only while somebody serves)

  [[nodiscard]] constexpr Word pack() const noexcept { return link_to(newest) << 32 | Word{available} << 2 | Word{older || leaving} << 1 | Word{serving}; }
  [[nodiscard]] static constexpr PermitsWord unpack(Word w) noexcept {
    const bool serving = (w & 1) != 0, second = (w & 2) != 0;
    return {slot_of_link(w >> 32), static_cast<std::uint32_t>(w >> 2) & kMostPermits, second && !serving, serving, second && serving};
  }
  [[nodiscard]] constexpr bool waited_for() const noexcept { return newest != kNoSlot || older || serving; }
  friend constexpr bool operator==(PermitsWord, PermitsWord) = default;
};

enum class PermitsEvent : std::uint32_t {
  take,         ///< self wants some
  give,
  leave,        ///< timers ask
  serve,        ///< the server looks what is next; the oldest of fifo wants some
  serve_last,   ///< … and is alone there
  serve_empty,  ///< … fifo is empty
};

enum class PermitsAction : std::uint32_t {
  taken,     ///< self has them
  wait,      ///< self is the newest waiter; its link and its wish were written first
  declined,  ///< self would have to wait, but may not: nothing happened
  given,     ///< nobody waits
  added,     ///< the server will see to it
  begin,     ///< self is the server now
  grant,     ///< the oldest has what it wants: wake it
  finish,    ///< … and nobody else waits: self is the server no more, and touches the record no more
  sift,      ///< took the list of the word: let those of fifo and of it go whose timers ask; who stays is fifo now
  collect,   ///< took the list of the word: turned round it is fifo now
  end,       ///< self is the server no more
  refuse,    ///< more are given than there can be
};

struct PermitsStep {
  PermitsWord next;
  PermitsAction action;
};

/// amount: wanted, given, or wanted by the oldest. most: of take and give, how many there are in all.
[[nodiscard]] constexpr PermitsStep next(PermitsWord w, PermitsEvent event, std::uint32_t amount, SlotId self = kNoSlot, std::uint32_t most = kMostPermits) noexcept {
  using Action = PermitsAction;
  PermitsWord n = w;
  switch (event) {
    case PermitsEvent::take:
      if (w.waited_for() || w.available < amount) {
        n.newest = self;
        return {n, Action::wait};
      }
      n.available -= amount;
      return {n, Action::taken};
    case PermitsEvent::give:
      if (amount > most || w.available > most - amount) return {w, Action::refuse};
      n.available += amount;
      if (w.serving) return {n, Action::added};
      if (!w.waited_for()) return {n, Action::given};
      n.older = false;
      n.serving = true;
      return {n, Action::begin};
    case PermitsEvent::leave:
      if (!w.waited_for()) return {w, Action::given};
      n.leaving = n.serving = true;
      n.older = false;
      return {n, w.serving ? Action::added : Action::begin};
    case PermitsEvent::serve:
    case PermitsEvent::serve_last:
    case PermitsEvent::serve_empty: break;
  }
  if (w.leaving) {
    n.leaving = false;
    n.newest = kNoSlot;
    return {n, Action::sift};
  }
  switch (event) {
    case PermitsEvent::serve:
    case PermitsEvent::serve_last:
      if (w.available < amount) return {{w.newest, w.available, true, false}, Action::end};
      n.available -= amount;
      n.serving = event == PermitsEvent::serve || w.newest != kNoSlot;
      return {n, n.serving ? Action::grant : Action::finish};
    default: break;
  }
  n.newest = kNoSlot;
  if (w.newest != kNoSlot) return {n, Action::collect};
  n.serving = false;
  return {n, Action::end};
}

/// Takes `amount` for self. may_wait: self is suspended and may be pushed; timed: with a deadline. Outcome taken, wait or declined.
class PermitsTake {
 public:
  constexpr PermitsTake() noexcept = default;
  constexpr PermitsTake(SlotId self, std::uint32_t amount, bool may_wait, bool timed = false) noexcept
      : self_(self), amount_(amount), may_wait_(may_wait), note_(timed ? kTimedWaiter : 0) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start:
        phase_ = Phase::word_read;
        return SyncStep::load(SyncField::word);
      case Phase::word_read: break;
      case Phase::linked: return swap();
      case Phase::swapped:
        if (result == seen_) return SyncStep::done(step().action);
        break;
    }
    seen_ = result;
    if (step().action == PermitsAction::taken) return swap();
    if (may_wait_ == 0) return SyncStep::done(PermitsAction::declined);
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, PermitsWord::unpack(seen_).newest, amount_ | note_);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, linked, swapped };
  [[nodiscard]] constexpr PermitsStep step() const noexcept { return ult::next(PermitsWord::unpack(seen_), PermitsEvent::take, amount_, self_); }
  constexpr SyncStep swap() noexcept {
    phase_ = Phase::swapped;
    return SyncStep::compare_swap(seen_, step().next.pack());
  }

  Word seen_ = 0;
  SlotId self_ = kNoSlot;
  std::uint32_t amount_ = 0, may_wait_ = 0, note_ = 0;
  Phase phase_ = Phase::start;
  [[maybe_unused]] std::uint32_t pad_ = 0;   // no padding bytes
};

/// Gives `amount`, or asks for those to be let go whose timers ask; and serves if somebody waits and nobody else does. Outcome given, added, end or refuse.
class PermitsGive {
 public:
  constexpr PermitsGive() noexcept = default;
  constexpr PermitsGive(std::uint32_t amount, std::uint32_t most) noexcept : amount_(amount), most_(most) {}
  [[nodiscard]] static constexpr PermitsGive leave() noexcept {
    PermitsGive g;
    g.event_ = PermitsEvent::leave;
    return g;
  }

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return give(result);
      case Phase::giving:
        if (result != seen_) return give(result);
        return given();
      case Phase::fifo_read:
        oldest_ = stored_ = slot_of_link(result);
        return look();
      case Phase::oldest_read:
        younger_ = slot_of_link(result & 0xFFFFFFFFu);
        wish_ = static_cast<std::uint32_t>(result >> 32);
        return serve();
      case Phase::fifo_written: return serve();
      case Phase::serving:
        if (result == seen_) return served();
        seen_ = result;
        return serve();
      case Phase::woken:
        oldest_ = younger_;
        return look();
      case Phase::woken_last: return SyncStep::done(PermitsAction::end);
      case Phase::sifting: return sift(result);
    }
    return SyncStep::done(PermitsAction::refuse);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, giving, fifo_read, oldest_read, fifo_written, serving, woken, woken_last, sifting };

  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  [[nodiscard]] constexpr PermitsStep giving_step() const noexcept {
    return ult::next(PermitsWord::unpack(seen_), event_, amount_, kNoSlot, most_);
  }
  [[nodiscard]] constexpr PermitsStep serving_step() const noexcept {
    const PermitsEvent event = oldest_ == kNoSlot ? PermitsEvent::serve_empty : younger_ == kNoSlot ? PermitsEvent::serve_last : PermitsEvent::serve;
    return ult::next(PermitsWord::unpack(seen_), event, wish_ & kMostPermits);
  }
  constexpr SyncStep give(Word seen) noexcept {
    seen_ = seen;
    const PermitsStep s = giving_step();
    if (s.action == PermitsAction::refuse) return SyncStep::done(s.action);
    return go(Phase::giving, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep given() noexcept {
    const PermitsStep s = giving_step();
    if (s.action != PermitsAction::begin) return SyncStep::done(s.action);
    seen_ = s.next.pack();
    return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
  }
  /// What does the oldest want?
  constexpr SyncStep look() noexcept { return oldest_ == kNoSlot ? serve() : go(Phase::oldest_read, SyncStep::load_next(oldest_)); }
  constexpr SyncStep serve() noexcept {
    const PermitsStep s = serving_step();
    const SlotId left = s.action == PermitsAction::finish ? kNoSlot : oldest_;
    if (!s.next.serving && left != stored_) {
      stored_ = left;   // before the word says that nobody serves: the next server reads it
      return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(left)));
    }
    return go(Phase::serving, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep served() noexcept {
    const PermitsStep s = serving_step();
    const SlotId newest = PermitsWord::unpack(seen_).newest;
    seen_ = s.next.pack();
    switch (s.action) {
      case PermitsAction::grant: return go(Phase::woken, granted());
      case PermitsAction::finish: return go(Phase::woken_last, granted());   // who may destroy the record
      case PermitsAction::sift:
      case PermitsAction::collect:
        sieve_ = Sieve(s.action == PermitsAction::sift ? Sieve::Who::leaving : Sieve::Who::nobody, oldest_, newest);
        return sift(0);
      default: return SyncStep::done(s.action);
    }
  }
  [[nodiscard]] constexpr SyncStep granted() const noexcept {
    return (wish_ & kTimedWaiter) != 0 ? SyncStep::settle(oldest_, TimedOutcome::granted) : SyncStep::wake(oldest_);
  }
  constexpr SyncStep sift(Word result) noexcept {
    const SyncStep s = sieve_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::sifting, s);
    oldest_ = sieve_.oldest();
    return look();
  }

  Word seen_ = 0;
  std::uint32_t amount_ = 0, most_ = 0;
  SlotId oldest_ = kNoSlot;    ///< the server's copy of fifo
  SlotId stored_ = kNoSlot;    ///< the record's
  SlotId younger_ = kNoSlot;   ///< behind the oldest
  std::uint32_t wish_ = 0;     ///< of the oldest: its note
  PermitsEvent event_ = PermitsEvent::give;
  Phase phase_ = Phase::start;
  Sieve sieve_;
};

}  // namespace kasane::ult
