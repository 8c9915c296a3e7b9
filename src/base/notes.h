// SPDX-License-Identifier: Apache-2.0
// A bounded first-in-first-out list of notes that handlers and fault handlers leave for a service thread. It
// never blocks and never allocates.
// Thread safety: every call from any thread, also in a handler that may not wait; the flag is held for a few
// instructions, never across a wait or a fault.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace kasane {

template <class T, std::uint32_t kMost>
class Notes {
 public:
  /// False: there is no room.
  bool add(const T& note) noexcept {
    lock();
    const std::uint32_t n = count_.load(std::memory_order_relaxed);  // the flag is held
    if (n != kMost) {
      notes_[(first_ + n) % kMost] = note;
      // seq_cst: the adding thread rings a doorbell next, and the thread that sleeps on it calls any()
      // before.
      count_.store(n + 1);
    }
    unlock();
    return n != kMost;
  }
  /// False: there is none.
  bool take(T& note) noexcept {
    if (!any()) return false;
    lock();
    const std::uint32_t n = count_.load(std::memory_order_relaxed);  // the flag is held
    if (n != 0) {
      note = notes_[first_];
      first_ = (first_ + 1) % kMost;
      count_.store(n - 1);
    }
    unlock();
    return n != 0;
  }
  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }

 private:
  void lock() noexcept {
    // acquire, release: the list as the last holder left it.
    while (flag_.test_and_set(std::memory_order_acquire)) relax();
  }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

  std::atomic_flag flag_;
  std::atomic<std::uint32_t> count_{0};
  std::uint32_t first_ = 0;
  std::array<T, kMost> notes_;
};

}  // namespace kasane
