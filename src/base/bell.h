// SPDX-License-Identifier: Apache-2.0
// A doorbell (an event count): a futex word that counts events, and the number of threads that sleep on it.
// Any thread rings, any thread sleeps. It may lie in memory that several processes map; zeroed memory is a
// doorbell that was never rung.
//
//   waker:     events + 1, then sleepers != 0? FUTEX_WAKE
//   sleeper:   sleepers + 1, then events == seen? FUTEX_WAIT(seen)
//
// **No wake-up is lost.** All four operations on events and sleepers are seq_cst, so they have one order. If
// the waker's addition is before the sleeper's look, the sleeper sees events != seen and returns. Else the
// look, and with it sleepers + 1, is before the addition and so before the waker's look: the waker sees a
// sleeper and calls FUTEX_WAKE. The kernel compares events with seen and queues the sleeper in one step with
// respect to FUTEX_WAKE: either the comparison sees the event (no sleep), or the sleeper is queued and woken.
//
// Not std::atomic::wait: libstdc++'s yields its core four times before it sleeps, and a thread that has
// yielded is not woken; on busy cores it returns only when the time slices of other threads are over.
//
// Thread safety: everything from any thread, also from a signal handler (errno is kept).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"

namespace kasane {

struct alignas(64) Bell {
  std::atomic<std::uint32_t> events;
  std::atomic<std::uint32_t> sleepers;

  /// The number of events so far. Read it, look for work, then sleep().
  [[nodiscard]] std::uint32_t activity() const noexcept {
    // acquire: what was done before the ring is visible to a thread that read the count. seq_cst on top: a
    // caller that announces itself elsewhere before it looks for work (sched) must not have this load moved
    // over its announcement.
    return events.load(std::memory_order_seq_cst);
  }

  /// Adds an event, or several, and wakes the sleepers. Without sleepers it is one addition and one load.
  void ring(std::uint32_t n = 1) noexcept {
    // seq_cst, here and in sleep(): one order of all four, so no wake-up is lost (see the head of this file).
    events.fetch_add(n, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(events);
  }

  /// Sleeps until activity() != seen, a signal, or timeout_ns passed (< 0: no limit).
  void sleep(std::uint32_t seen, std::int64_t timeout_ns) noexcept {
    // seq_cst: as in ring()
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (events.load(std::memory_order_seq_cst) == seen) futex_wait(events, seen, timeout_ns);
    sleepers.fetch_sub(1, std::memory_order_relaxed);  // relaxed: seen late, it costs a needless system call
  }
};

}  // namespace kasane
