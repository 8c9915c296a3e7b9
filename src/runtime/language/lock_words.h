// SPDX-License-Identifier: Apache-2.0
// What a thread makes of the word of a mutex, a shared mutex, a call_once, a semaphore or a barrier
// (lock_calls.cpp drives these functions, tests/model/lock_words_test.cpp walks them). A thread that is to
// wait sleeps while the word is the one that the step leaves, and tries again after that.
//
//   mutex          0 free, 1 locked, 2 locked and perhaps awaited
//     try_lock       0 → 1: has           1, 2: refused
//     lock           0 → 2: has           1, 2 → 2: waits
//     unlock         1 → 0                2 → 0: wakes one
//   shared mutex   kWriter, kAwaited, number of readers
//     try_lock       no writer, no reader → with kWriter: has       else refused
//     try_shared     no writer → one reader more: has               else refused
//     announce       no writer, no reader: tries again              else → with kAwaited: waits
//     unlock         the last one → 0, wakes all if awaited         else → one reader less
//   once           0, kRuns, kRuns | kAwaitedRun, kDone
//     enter          0 → kRuns: has       kDone: done               else → with kAwaitedRun: waits
//     end, abort     → kDone, → 0: wakes all if awaited
//   semaphore      permits
//     acquire        n → n - 1: has       0: waits
//     release        n → n + 1: wakes one
//   barrier        arrived, and a word of its own for the phases
//     arrive         the last one → 0, then the phase is counted up, and all are woken; else waits for that
//     leave          each counts itself in a third word, and uses the barrier no more
//     destroy        waits until as many have left as have come
#pragma once

#include <cstdint>

namespace kasane::runtime {

enum class LockAction : std::uint8_t { none, has, refused, again, done, wait, wake_one, wake_all };
struct LockStep {
  std::uint32_t word = 0;
  LockAction action = LockAction::none;
};

enum class MutexEvent : std::uint8_t { try_lock, lock, unlock };
[[nodiscard]] constexpr LockStep next(MutexEvent event, std::uint32_t word) noexcept {
  switch (event) {
    case MutexEvent::try_lock:
      return word == 0 ? LockStep{1, LockAction::has} : LockStep{word, LockAction::refused};
    // It may not have been the only one that waited.
    case MutexEvent::lock: return {2, word == 0 ? LockAction::has : LockAction::wait};
    case MutexEvent::unlock: break;
  }
  return {0, word == 2 ? LockAction::wake_one : LockAction::none};
}

enum class SharedEvent : std::uint8_t { try_lock, try_shared, announce, unlock };
inline constexpr std::uint32_t kWriter = 1u << 31, kAwaited = 1u << 30;
[[nodiscard]] constexpr LockStep next(SharedEvent event, std::uint32_t word) noexcept {
  const bool free = (word & ~kAwaited) == 0;
  switch (event) {
    case SharedEvent::try_lock:
      return free ? LockStep{word | kWriter, LockAction::has} : LockStep{word, LockAction::refused};
    case SharedEvent::try_shared:
      return (word & kWriter) == 0 ? LockStep{word + 1, LockAction::has}
                                   : LockStep{word, LockAction::refused};
    case SharedEvent::announce:
      return free ? LockStep{word, LockAction::again} : LockStep{word | kAwaited, LockAction::wait};
    case SharedEvent::unlock: break;
  }
  if ((word & kWriter) != 0 || (word & ~kAwaited) == 1)
    return {0, (word & kAwaited) != 0 ? LockAction::wake_all : LockAction::none};
  return {word - 1, LockAction::none};
}

enum class OnceEvent : std::uint8_t { enter, end, abort };
inline constexpr std::uint32_t kRuns = 1, kDone = 2, kAwaitedRun = 4;
[[nodiscard]] constexpr LockStep next(OnceEvent event, std::uint32_t word) noexcept {
  if (event != OnceEvent::enter)
    return {event == OnceEvent::end ? kDone : 0,
            (word & kAwaitedRun) != 0 ? LockAction::wake_all : LockAction::none};
  if (word == 0) return {kRuns, LockAction::has};
  return word == kDone ? LockStep{kDone, LockAction::done} : LockStep{kRuns | kAwaitedRun, LockAction::wait};
}

enum class SemaphoreEvent : std::uint8_t { acquire, release };
[[nodiscard]] constexpr LockStep next(SemaphoreEvent event, std::uint32_t word) noexcept {
  if (event == SemaphoreEvent::release) return {word + 1, LockAction::wake_one};
  return word != 0 ? LockStep{word - 1, LockAction::has} : LockStep{0, LockAction::wait};
}

/// The word is the number of threads that have arrived, count that of all.
[[nodiscard]] constexpr LockStep next_at_barrier(std::uint32_t word, std::uint32_t count) noexcept {
  return word + 1 == count ? LockStep{0, LockAction::wake_all} : LockStep{word + 1, LockAction::wait};
}

/// No thread uses the barrier: of all phases all threads have left.
[[nodiscard]] constexpr bool may_destroy_barrier(std::uint32_t phase, std::uint32_t count,
                                                 std::uint32_t left) noexcept {
  return left == phase * count;
}

}  // namespace kasane::runtime
