// SPDX-License-Identifier: Apache-2.0
// The protocol of a watch list, pure (sync_record_step.h): threads wait for words anywhere to change, and a
// thread that changes a word notifies the list. docs/design/sched.md, "Watch list", has the table. A list
// serves many words; the *key* says which one a thread waits for, exactly within the list.
//
//   word   newest waiter 32 (link) | epoch 28 | prepared 1 | all 1 | older 1 | serving 1
//   fifo   the oldest waiter, linked to younger ones; only the server touches it
//   waiter's next   link 32, and above it its key
//
// A waiter prepares, looks at its word, and waits only if the epoch is unchanged, so that no notification
// came meanwhile. So a thread that changes a word, and then finds the list neither prepared for nor waited
// on, has nothing to do: one load.
//
// Thread safety: pure. Invariants: fifo non-empty ⇒ older or serving; a notification that finds a waiter
// wakes it, or leaves that to the server (`all`), before the list is quiet again. An epoch returns after 2^28
// notifications: no thread is between its two steps for so long.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ult/sync/waiter_filter.h"
#include "ult/sync_record_step.h"

namespace kasane::ult {

struct WatchWord {
  SlotId newest = kNoSlot;
  std::uint32_t epoch = 0;
  bool prepared = false;  ///< a thread may be about to wait, with this epoch
  bool all = false;       ///< a notification came while another was served: wake all
  bool older = false;     ///< fifo is not empty (kept while there is no server)
  bool serving = false;

  static constexpr std::uint32_t kEpochs = (1u << 28) - 1;

  [[nodiscard]] constexpr Word pack() const noexcept {
    return link_to(newest) << 32 | Word{epoch} << 4 | Word{prepared} << 3 | Word{all} << 2 |
           Word{older} << 1 | Word{serving};
  }
  [[nodiscard]] static constexpr WatchWord unpack(Word w) noexcept {
    return {slot_of_link(w >> 32), static_cast<std::uint32_t>(w >> 4) & kEpochs,
            (w & 8) != 0,          (w & 4) != 0,
            (w & 2) != 0,          (w & 1) != 0};
  }
  friend constexpr bool operator==(WatchWord, WatchWord) = default;
};

enum class WatchEvent : std::uint32_t {
  prepare,  ///< self may wait
  wait,     ///< self waits; epoch: of its preparation
  notify,
  serve,  ///< the server has woken the waiters it had to; fifo is not empty
  serve_empty,
};

enum class WatchAction : std::uint32_t {
  prepared,
  wait,       ///< self is the newest waiter; its link and key were written first
  changed,    ///< a notification came since: look again
  no_waiter,  ///< no thread waits, nor is about to: nothing to do
  told,       ///< those about to wait will look again
  added,      ///< the server will wake all
  begin,      ///< self is the server, and has taken the list of the word
  drain,      ///< the server has taken the list of the word again: wake all
  end,        ///< self is the server no more
};

struct WatchStep {
  WatchWord next;
  WatchAction action;
};

[[nodiscard]] constexpr WatchStep next(WatchWord w, WatchEvent event, SlotId self = kNoSlot,
                                       std::uint32_t epoch = 0) noexcept {
  using Action = WatchAction;
  WatchWord n = w;
  switch (event) {
    case WatchEvent::prepare: n.prepared = true; return {n, Action::prepared};
    case WatchEvent::wait:
      if (w.epoch != epoch) return {w, Action::changed};
      n.newest = self;
      return {n, Action::wait};
    case WatchEvent::notify: {
      const bool waited_for = w.newest != kNoSlot || w.older;
      if (!waited_for && !w.serving && !w.prepared) return {w, Action::no_waiter};
      n.epoch = (w.epoch + 1) & WatchWord::kEpochs;
      n.prepared = false;
      if (w.serving) {
        n.all = true;
        return {n, Action::added};
      }
      if (!waited_for) return {n, Action::told};
      n.newest = kNoSlot;
      n.older = false;
      n.serving = true;
      return {n, Action::begin};
    }
    case WatchEvent::serve:
    case WatchEvent::serve_empty: break;
  }
  n.all = false;
  if (w.all) {
    n.newest = kNoSlot;
    return {n, Action::drain};
  }
  n.serving = false;
  n.older = event == WatchEvent::serve;
  return {n, Action::end};
}

/// Notes that a thread is about to wait. The outcome is the epoch.
class WatchPrepare {
 public:
  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    if (phase_ == Phase::start) {
      phase_ = Phase::word_read;
      return SyncStep::load(SyncField::word);
    }
    const WatchWord w = WatchWord::unpack(result);
    if (w.prepared || (phase_ == Phase::swapped && result == seen_)) return SyncStep::done(w.epoch);
    seen_ = result;
    phase_ = Phase::swapped;
    return SyncStep::compare_swap(seen_, ult::next(w, WatchEvent::prepare).next.pack());
  }

 private:
  enum class Phase : std::uint64_t { start, word_read, swapped };
  Word seen_ = 0;
  Phase phase_ = Phase::start;
};

/// Waits for self, which is suspended. Outcome wait or changed.
class WatchWait {
 public:
  constexpr WatchWait() noexcept = default;
  constexpr WatchWait(SlotId self, std::uint32_t key, std::uint32_t epoch) noexcept
      : self_(self), key_(key), epoch_(epoch) {}

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: phase_ = Phase::word_read; return SyncStep::load(SyncField::word);
      case Phase::word_read: break;
      case Phase::linked: phase_ = Phase::swapped; return SyncStep::compare_swap(seen_, step().next.pack());
      case Phase::swapped:
        if (result == seen_) return SyncStep::done(WatchAction::wait);
        break;
    }
    seen_ = result;
    if (step().action == WatchAction::changed) return SyncStep::done(WatchAction::changed);
    phase_ = Phase::linked;
    return SyncStep::store_next(self_, WatchWord::unpack(seen_).newest, key_);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, linked, swapped };
  [[nodiscard]] constexpr WatchStep step() const noexcept {
    return ult::next(WatchWord::unpack(seen_), WatchEvent::wait, self_, epoch_);
  }

  Word seen_ = 0;
  SlotId self_ = kNoSlot;
  std::uint32_t key_ = 0, epoch_ = 0;
  Phase phase_ = Phase::start;
};

/// Wakes the oldest, or all, that wait for `key`, or a waiter whose deadline has passed, or leaves it to the
/// present server. Outcome no_waiter, told, added or end.
class WatchNotify {
 public:
  constexpr WatchNotify() noexcept = default;
  constexpr WatchNotify(std::uint32_t key, bool all) noexcept
      : key_(key), select_(all ? WaiterFilter::Select::keyed : WaiterFilter::Select::first) {}
  /// When it has ended the waiter was woken, by this or another, or finds another epoch and does not wait.
  [[nodiscard]] static constexpr WatchNotify late(SlotId waiter) noexcept {
    WatchNotify n;
    n.key_ = raw(waiter);
    n.select_ = WaiterFilter::Select::slot;
    return n;
  }

  [[nodiscard]] constexpr SyncStep next(Word result) noexcept {
    switch (phase_) {
      case Phase::start: return go(Phase::word_read, SyncStep::load(SyncField::word));
      case Phase::word_read: return notify(result);
      case Phase::notified: {
        if (result != seen_) return notify(result);
        const WatchStep s = notifying_step();
        if (s.action != WatchAction::begin) return SyncStep::done(s.action);
        batch_ = WatchWord::unpack(seen_).newest;
        seen_ = s.next.pack();
        return go(Phase::fifo_read, SyncStep::load(SyncField::fifo));
      }
      case Phase::fifo_read: fifo_ = stored_ = slot_of_link(result); return filter(select_);
      case Phase::filtering: return filtered(result);
      case Phase::fifo_written: return serve();
      case Phase::served:
        if (result == seen_) return served();
        seen_ = result;
        return serve();
    }
    return SyncStep::done(WatchAction::no_waiter);
  }

 private:
  enum class Phase : std::uint32_t { start, word_read, notified, fifo_read, filtering, fifo_written, served };

  constexpr SyncStep go(Phase p, SyncStep s) noexcept {
    phase_ = p;
    return s;
  }
  [[nodiscard]] constexpr WatchStep notifying_step() const noexcept {
    return ult::next(WatchWord::unpack(seen_), WatchEvent::notify);
  }
  [[nodiscard]] constexpr WatchStep serving_step() const noexcept {
    return ult::next(WatchWord::unpack(seen_),
                     fifo_ == kNoSlot ? WatchEvent::serve_empty : WatchEvent::serve);
  }
  constexpr SyncStep notify(Word seen) noexcept {
    seen_ = seen;
    const WatchStep s = notifying_step();
    if (s.action == WatchAction::no_waiter) return SyncStep::done(s.action);
    return go(Phase::notified, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep filter(WaiterFilter::Select select) noexcept {
    filter_ = WaiterFilter(select, fifo_, batch_, key_);
    batch_ = kNoSlot;
    return filtered(0);
  }
  constexpr SyncStep filtered(Word result) noexcept {
    const SyncStep s = filter_.next(result);
    if (s.kind != SyncStep::Kind::done) return go(Phase::filtering, s);
    fifo_ = filter_.oldest();
    return serve();
  }
  constexpr SyncStep serve() noexcept {
    const WatchStep s = serving_step();
    if (s.action == WatchAction::end && fifo_ != stored_) {
      stored_ = fifo_;  // before the word says that there is no server: the next server reads it
      return go(Phase::fifo_written, SyncStep::store(SyncField::fifo, link_to(fifo_)));
    }
    return go(Phase::served, SyncStep::compare_swap(seen_, s.next.pack()));
  }
  constexpr SyncStep served() noexcept {
    const WatchStep s = serving_step();
    const SlotId newest = WatchWord::unpack(seen_).newest;
    seen_ = s.next.pack();
    if (s.action == WatchAction::end) return SyncStep::done(s.action);
    batch_ = newest;
    return filter(WaiterFilter::Select::all);
  }

  Word seen_ = 0;
  std::uint32_t key_ = 0;
  WaiterFilter::Select select_ = WaiterFilter::Select::first;
  SlotId fifo_ = kNoSlot;    ///< the server's copy
  SlotId stored_ = kNoSlot;  ///< the record's
  SlotId batch_ = kNoSlot;
  Phase phase_ = Phase::start;
  WaiterFilter filter_;
};

}  // namespace kasane::ult
