// SPDX-License-Identifier: Apache-2.0
// The threads of a worker that wait for something outside of the job: calls that callers make for them
// (ult/outside_callers.h), and the time. A thread goes on on its worker: descriptors, children and
// thread_locals are of that process and that OS thread.
//
// Thread safety: the worker's OS thread; deliver() is its callers', note_handler() its signal handlers'.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/malloc_allocator.h"
#include "ult/outside_callers.h"

namespace kasane::ult {

/// A thread that sleeps; it lies on that thread's stack.
struct OutsideSleep {
  std::uint64_t until_ns;  ///< of now_ns()
  WorkerWait* wait = nullptr;
  bool interrupted = false;
};

class OutsideWaits {
 public:
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  /// Whether a thread waits. relaxed: a hint for reports; else its own.
  [[nodiscard]] bool any() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }
  /// Whether collect() has something to do.
  [[nodiscard]] bool ready() const noexcept;
  /// How long the worker may sleep, if it is not ready.
  [[nodiscard]] std::int64_t limit_ns() const noexcept;
  /// go_on(WorkerWait&) for each thread whose wait is over; interrupts calls after handlers.
  template <class GoOn>
  void collect(const GoOn& go_on) {
    if (handlers() != seen_ || (signals_ && now_ns() >= again_ns_)) [[unlikely]]
      interrupt();
    // acquire: the result. relaxed: a hint.
    if (delivered_.load(std::memory_order_relaxed) != nullptr)
      for (OutsideCaller* at = take_delivered(); at != nullptr;) {
        OutsideCaller* const caller = at;
        at = caller->delivered_before;
        remove(*caller);
        go_on(*caller->wait);
      }
    if (sleeps_.empty()) return;
    for (const std::uint64_t now = now_ns(); !sleeps_.empty() && sleeps_.begin()->first <= now;) {
      WorkerWait& wait = *sleeps_.begin()->second->wait;
      remove_first_sleep();
      go_on(wait);
    }
  }

  void add(OutsideCaller&) noexcept;
  void add(OutsideSleep&);
  /// A caller's, at the end of its call.
  void deliver(OutsideCaller&) noexcept;
  /// In a handler of a signal: one of the program's has run.
  void note_handler(bool restarts) noexcept {
    all_ = all_ + 1;
    if (!restarts) without_restart_ = without_restart_ + 1;
  }

 private:
  static constexpr std::uint64_t kAgainNs = 1'000'000;
  using Sleeper = std::pair<std::uint64_t, OutsideSleep*>;

  [[nodiscard]] HandlersRun handlers() const noexcept { return {all_, without_restart_}; }
  [[nodiscard]] OutsideCaller* take_delivered() noexcept;
  void remove(OutsideCaller&) noexcept;
  void remove_first_sleep();
  void count(int change) noexcept;
  [[gnu::noinline]] void interrupt() noexcept;

  volatile std::uint32_t all_ = 0, without_restart_ = 0;
  HandlersRun seen_;  ///< what has interrupted the threads that wait
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<OutsideCaller*> delivered_{nullptr};
  OutsideCaller* calls_ = nullptr;
  std::set<Sleeper, std::less<>, MallocAllocator<Sleeper>> sleeps_;
  bool signals_ = false;  ///< a call was interrupted and has not ended: again then
  std::uint64_t again_ns_ = 0;
};

}  // namespace kasane::ult
