// SPDX-License-Identifier: Apache-2.0
// The words of the program's mutexes and their like (runtime/language/lock_words.h): three threads, each
// access and each sleep a step of its own, in every order. A thread that is to wait compares the word and
// sleeps in one step, as futex_calls.h promises (model_watch walks that); a wake-up of one finds any that
// sleeps.
//
// Checked: one writer, or readers; permits; one initialisation that succeeds; no thread passes a barrier
// before all have come, and none uses one that was destroyed; a signal is not lost; all threads end.
#include "runtime/language/lock_words.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "model/walk.h"

namespace kasane::model {
namespace {

using namespace runtime;  // NOLINT(google-build-using-namespace): the functions that are walked

constexpr std::uint8_t kThreads = 3;

enum class Without : std::uint8_t {
  none,
  waking,         ///< no thread is woken
  waking_all,     ///< one thread is woken instead of all
  awaited,        ///< a thread that waits does not say so in the word
  rounds,         ///< a barrier's phase is counted up before the arrivals begin anew
  leaving,        ///< a barrier is destroyed by who has passed, whoever else still uses it
  mutex_at_wait,  ///< a condition's number is read after the mutex was unlocked
};

/// What all walks share: threads at numbered places, words, sleepers.
struct State {
  std::array<std::uint32_t, 2> word;
  std::array<std::uint8_t, kThreads> at, asleep, round, seen;  // asleep: 1 + the word's index
  std::uint32_t inside;                                        // what the walk counts
  std::uint32_t threw;
};

template <class Walk>
struct Threads {
  Without without = Without::none;
  static constexpr std::uint8_t kEnd = 255;

  using State = model::State;
  State initial() const { return Walk::initial(); }
  const char* violation(const State& s) const { return Walk::violation(s); }
  bool finished(const State& s) const { return s.at[0] == kEnd && s.at[1] == kEnd && s.at[2] == kEnd; }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + " at " + std::to_string(x.kind);
  }
  std::string show(const State& s) const {
    return "words " + std::to_string(s.word[0]) + ", " + std::to_string(s.word[1]);
  }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < kThreads; ++t) {
      if (s.at[t] == kEnd || s.asleep[t] != 0) continue;
      Walk::step(s, t, without, [&](const State& n) { emit(n, Step{s.at[t], t, 0}); });
    }
  }
};

template <class Go>
void sleep(State n, std::uint8_t t, std::uint8_t word, std::uint32_t expected, std::uint8_t then, Go&& go) {
  n.at[t] = then;
  if (n.word[word] == expected) n.asleep[t] = static_cast<std::uint8_t>(1 + word);
  go(n);
}
/// The thread goes on at `then`, and those that the action names wake up.
template <class Go>
void wake(State n, std::uint8_t t, std::uint8_t word, LockAction action, Without without, std::uint8_t then,
          Go&& go) {
  n.at[t] = then;
  if (without == Without::waking) action = LockAction::none;
  if (without == Without::waking_all && action == LockAction::wake_all) action = LockAction::wake_one;
  const auto sleeps = [&](std::uint8_t u) { return n.asleep[u] == 1 + word; };
  bool any = false;
  for (std::uint8_t u = 0; u < kThreads && action == LockAction::wake_one; ++u) {
    if (!sleeps(u)) continue;
    State woken = n;
    woken.asleep[u] = 0;
    any = true;
    go(woken);
  }
  if (any) return;
  for (std::uint8_t u = 0; u < kThreads && action == LockAction::wake_all; ++u)
    if (sleeps(u)) n.asleep[u] = 0;
  go(n);
}

constexpr std::uint8_t kEnd = Threads<void>::kEnd;

/// The thread has given something back: whom to wake is done at `then`, its next step.
template <class Go>
void wake_next(State n, std::uint8_t t, LockAction action, std::uint8_t then, Go&& go) {
  n.seen[t] = static_cast<std::uint8_t>(action);
  n.at[t] = then;
  go(n);
}
/// That step; everything twice, from `again` on.
template <class Go>
void wake_and_repeat(State s, std::uint8_t t, Without without, std::uint8_t again, Go&& go) {
  const LockAction action{std::exchange(s.seen[t], std::uint8_t{0})};
  const std::uint8_t then = ++s.round[t] == 2 ? kEnd : again;
  wake(s, t, 0, action, without, then, go);
}

/// Each thread locks twice; the first time it tries only.
struct Mutexes {
  static State initial() { return {}; }
  static const char* violation(const State& s) {
    return s.inside > 1 ? "two threads have the mutex" : nullptr;
  }
  enum : std::uint8_t { kTry, kLock, kWait, kHas, kWake };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    const auto take = [&](MutexEvent event) {
      LockStep step = next(event, s.word[0]);
      if (without == Without::awaited && event == MutexEvent::lock) step.word = 1;
      n.word[0] = step.word;
      return step.action;
    };
    switch (s.at[t]) {
      case kTry:
      case kLock: {
        const bool has = take(s.at[t] == kTry ? MutexEvent::try_lock : MutexEvent::lock) == LockAction::has;
        n.inside += has ? 1 : 0;
        n.at[t] = has ? kHas : s.at[t] == kTry ? kLock : kWait;
        return go(n);
      }
      case kWait: return sleep(s, t, 0, without == Without::awaited ? 1 : 2, kLock, go);
      case kHas: --n.inside; return wake_next(n, t, take(MutexEvent::unlock), kWake, go);
      default: return wake_and_repeat(s, t, without, kTry, go);
    }
  }
};

/// Two readers and a writer, twice each.
struct SharedMutexes {
  static State initial() { return {}; }
  static const char* violation(const State& s) {
    return (s.inside >= 16 && s.inside != 16) ? "a writer is not alone" : nullptr;
  }
  enum : std::uint8_t { kTry, kAnnounce, kWait, kHas, kWake };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    const std::uint32_t weight = t == 0 ? 16 : 1;
    const auto take = [&](SharedEvent event) {
      const LockStep step = next(event, s.word[0]);
      n.word[0] = step.word;
      return step.action;
    };
    switch (s.at[t]) {
      case kTry: {
        const bool has = take(t == 0 ? SharedEvent::try_lock : SharedEvent::try_shared) == LockAction::has;
        n.inside += has ? weight : 0;
        n.at[t] = has ? kHas : kAnnounce;
        return go(n);
      }
      case kAnnounce: {
        const bool waits = take(SharedEvent::announce) == LockAction::wait;
        // The word for which the thread waits is one of few: the number of readers, or the writer.
        n.seen[t] =
            static_cast<std::uint8_t>((n.word[0] & ~kWriter & ~kAwaited) | ((n.word[0] & kWriter) ? 8 : 0));
        if (without == Without::awaited) n.word[0] = s.word[0];
        n.at[t] = waits ? kWait : kTry;
        return go(n);
      }
      case kWait: {
        std::uint32_t expected = (s.seen[t] & 7u) | ((s.seen[t] & 8) != 0 ? kWriter : 0);
        if (without != Without::awaited) expected |= kAwaited;
        n.seen[t] = 0;
        return sleep(n, t, 0, expected, kTry, go);
      }
      case kHas: n.inside -= weight; return wake_next(n, t, take(SharedEvent::unlock), kWake, go);
      default: return wake_and_repeat(s, t, without, kTry, go);
    }
  }
};

/// The function may throw once in each thread's call.
struct Onces {
  static State initial() { return {}; }
  static const char* violation(const State& s) {
    if (s.inside > 1) return "it runs twice at once, or again after it has succeeded";
    for (const auto at : s.at)
      if (at == kEnd && s.word[0] != kDone) return "a thread has returned too early";
    return nullptr;
  }
  enum : std::uint8_t { kEnter, kWait, kRun, kWake, kThrown };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    switch (s.at[t]) {
      case kEnter: {
        const LockStep step = next(OnceEvent::enter, s.word[0]);
        n.word[0] = without == Without::awaited && step.action == LockAction::wait ? s.word[0] : step.word;
        n.inside += step.action == LockAction::has ? 1 : 0;
        n.at[t] = step.action == LockAction::has    ? std::uint8_t{kRun}
                  : step.action == LockAction::done ? kEnd
                                                    : std::uint8_t{kWait};
        return go(n);
      }
      case kWait:
        return sleep(s, t, 0, without == Without::awaited ? kRuns : kRuns | kAwaitedRun, kEnter, go);
      case kRun:
        for (const OnceEvent event : {OnceEvent::end, OnceEvent::abort}) {
          if (event == OnceEvent::abort && s.round[t] == 1) continue;
          State left = s;
          const LockStep step = next(event, s.word[0]);
          left.word[0] = step.word;
          left.seen[t] = static_cast<std::uint8_t>(step.action);
          if (event == OnceEvent::abort) left.round[t] = 1, --left.inside;
          left.at[t] = event == OnceEvent::abort ? kThrown : kWake;
          go(left);
        }
        return;
      default:
        n.seen[t] = 0;
        return wake(n, t, 0, LockAction{s.seen[t]}, without, s.at[t] == kWake ? kEnd : std::uint8_t{kEnter},
                    go);
    }
  }
};

/// One permit, which each thread takes and gives back twice.
struct Semaphores {
  static State initial() {
    State s{};
    s.word[0] = 1;
    return s;
  }
  static const char* violation(const State& s) {
    return s.inside > 1 ? "two threads have the permit" : nullptr;
  }
  enum : std::uint8_t { kAcquire, kWait, kHas, kWake };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    switch (s.at[t]) {
      case kAcquire: {
        const LockStep step = next(SemaphoreEvent::acquire, s.word[0]);
        n.word[0] = step.word;
        n.inside += step.action == LockAction::has ? 1 : 0;
        n.at[t] = step.action == LockAction::has ? kHas : kWait;
        return go(n);
      }
      case kWait: return sleep(s, t, 0, 0, kAcquire, go);
      case kHas:
        --n.inside;
        n.word[0] = next(SemaphoreEvent::release, s.word[0]).word;
        return wake_next(n, t, LockAction::wake_one, kWake, go);
      default: return wake_and_repeat(s, t, without, kAcquire, go);
    }
  }
};

/// Three times; then the thread that came last destroys it. inside: threads that have left, threw: destroyed.
struct Barriers {
  static State initial() { return {}; }
  static const char* violation(const State& s) {
    for (std::uint8_t t = 0; t < kThreads; ++t)
      for (std::uint8_t u = 0; u < kThreads; ++u)
        if (s.round[t] > s.round[u] + (s.at[u] == kLook || s.at[u] == kLeave ? 0 : 1))
          return "a thread has passed before all have come";
    for (std::uint8_t t = 0; t < kThreads && s.threw != 0; ++t)
      if (s.at[t] != kEnd) return "a thread uses a barrier that was destroyed";
    return nullptr;
  }
  enum : std::uint8_t { kLook, kArrive, kWait, kBegin, kCount, kWake, kLeave, kDestroy };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    const bool early = without == Without::rounds;
    switch (s.at[t]) {
      case kLook:
        n.seen[t] = static_cast<std::uint8_t>(s.word[1]);
        n.at[t] = kArrive;
        return go(n);
      case kArrive: {
        const LockStep step = next_at_barrier(s.word[0], kThreads);
        n.word[0] = s.word[0] + 1;  // the last one's store is a step of its own
        n.at[t] = step.action == LockAction::wait ? kWait : early ? kCount : kBegin;
        return go(n);
      }
      case kBegin:
        n.word[0] = 0;
        n.at[t] = early ? kWake : kCount;
        return go(n);
      case kCount:
        ++n.word[1];
        n.at[t] = early ? kBegin : kWake;
        return go(n);
      case kWait:
        if (s.word[1] == s.seen[t]) return sleep(s, t, 1, s.seen[t], kWait, go);
        ++n.round[t];
        n.seen[t] = 0;
        n.at[t] = kLeave;
        return go(n);
      case kLeave:
        ++n.inside;
        n.at[t] = n.round[t] != 3 ? std::uint8_t{kLook} : n.seen[t] != 0 ? std::uint8_t{kDestroy} : kEnd;
        return go(n);
      case kDestroy:
        if (!may_destroy_barrier(s.word[1], kThreads, s.inside) && without != Without::leaving) return;
        n.threw = 1;
        n.at[t] = kEnd;
        return go(n);
      default:
        ++n.round[t];
        n.seen[t] = 1;  // it destroys the barrier after the last round
        return wake(n, t, 1, LockAction::wake_all, without, std::uint8_t{kLeave}, go);
    }
  }
};

/// Word 0 is the condition's, word 1 a mutex that a thread takes where it is free. Thread 0 stores, with the
/// mutex, and signals; the others wait for that.
struct Conditions {
  static State initial() { return {}; }
  static const char* violation(const State&) { return nullptr; }
  enum : std::uint8_t { kLock, kLook, kNumber, kUnlock, kSleep, kStore, kSignal, kNotify };
  template <class Go>
  static void step(const State& s, std::uint8_t t, Without without, Go&& go) {
    State n = s;
    const bool late = without == Without::mutex_at_wait;
    const auto at = [&](std::uint8_t then) { n.at[t] = then, go(n); };
    switch (s.at[t]) {
      case kLock:
        if (s.word[1] != 0) return;
        n.word[1] = 1;
        return at(t == 0 ? kStore : kLook);
      case kStore: n.inside = 1, n.word[1] = 0; return at(kSignal);
      case kSignal: ++n.word[0]; return at(kNotify);
      case kNotify: return wake(s, t, 0, LockAction::wake_all, without, kEnd, go);
      case kLook:
        if (s.inside == 0) return at(late ? kUnlock : kNumber);
        n.word[1] = 0;
        return at(kEnd);
      case kNumber: n.seen[t] = static_cast<std::uint8_t>(s.word[0]); return at(late ? kSleep : kUnlock);
      case kUnlock: n.word[1] = 0; return at(late ? kNumber : kSleep);
      default: return sleep(s, t, 0, s.seen[t], kLock, go);
    }
  }
};

TEST(LockWords, HoldAndLoseNoThread) {
  expect_sound(Threads<Mutexes>{});
  expect_sound(Threads<SharedMutexes>{});
  expect_sound(Threads<Onces>{});
  expect_sound(Threads<Semaphores>{});
  expect_sound(Threads<Barriers>{});
  expect_sound(Threads<Conditions>{});
}

TEST(LockWords, WithoutARuleTheyDoNot) {
  expect_needed<Threads<Mutexes>>({Without::waking, Without::awaited});
  expect_needed<Threads<SharedMutexes>>({Without::waking, Without::waking_all, Without::awaited});
  expect_needed<Threads<Onces>>({Without::waking, Without::waking_all, Without::awaited});
  expect_needed<Threads<Semaphores>>({Without::waking});
  expect_needed<Threads<Barriers>>({Without::waking, Without::waking_all, Without::rounds, Without::leaving});
  expect_needed<Threads<Conditions>>({Without::waking, Without::waking_all, Without::mutex_at_wait});
}

}  // namespace
}  // namespace kasane::model
