// SPDX-License-Identifier: Apache-2.0
// What to pass an operation as its callback when the caller only wants to know later how it ended: small
// objects on the engine's callbacks, no part of the engine.
//
//   Counter writes;
//   for (…) post(engine.try_write_async({…, writes.callback()}));
//   writes.wait(waiter, n);
//
// Thread safety: callbacks complete on any thread; wait() on the thread that owns the object. The callback's
// last access to the object is the store that the waiting thread sees, so the object may be destroyed as soon
// as wait() has returned.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/operations.h"
#include "comm/waiter.h"

namespace kasane::comm {

/// One operation: has it completed, and how?
///   Flag done;  while (!engine.try_write_async({…, done.callback()})) …;
///   done.wait(waiter);
class Flag {
 public:
  [[nodiscard]] Callback callback() noexcept { return {&Flag::complete, this}; }
  // acquire: pairs with complete(), so the operation's effects are visible.
  [[nodiscard]] bool ready() const noexcept { return state_.load(std::memory_order_acquire) != 0; }
  /// After ready().
  [[nodiscard]] Status status() const noexcept {
    return static_cast<Status>(state_.load(std::memory_order_acquire) - 1);
  }
  Status wait(Waiter& waiter) const {
    waiter.until([this] { return ready(); });
    return status();
  }
  /// For another operation; the last one has completed.
  void reset() noexcept { state_.store(0, std::memory_order_relaxed); }  // relaxed: posting publishes it

 private:
  static void complete(void* flag, Status status) noexcept {
    // release: what the operation brought.
    static_cast<Flag*>(flag)->state_.store(static_cast<std::uint8_t>(1 + raw(status)),
                                           std::memory_order_release);
  }
  std::atomic<std::uint8_t> state_{0};  ///< 0: outstanding, else 1 + Status
};

/// Any number of operations: how many have completed?
///   Counter reads;  for (int i = 0; i < 8; ++i) while (!engine.try_read_async({…, reads.callback()})) …;
///   reads.wait(waiter, 8);
class Counter {
 public:
  [[nodiscard]] Callback callback() noexcept { return {&Counter::complete, this}; }
  // acquire: pairs with complete()
  [[nodiscard]] std::uint64_t completed() const noexcept { return count_.load(std::memory_order_acquire); }
  /// The worst status so far: ok, unless any operation was refused or its peer lost.
  // relaxed: ordered by completed()
  [[nodiscard]] Status status() const noexcept { return worst_.load(std::memory_order_relaxed); }
  Status wait(Waiter& waiter, std::uint64_t operations) const {
    waiter.until([&] { return completed() >= operations; });
    return status();
  }

 private:
  static void complete(void* counter, Status status) noexcept {
    auto& self = *static_cast<Counter*>(counter);
    // relaxed: published by the next line
    if (status != Status::ok) self.worst_.store(status, std::memory_order_relaxed);
    // release: also what the operation brought
    self.count_.fetch_add(1, std::memory_order_release);
  }
  std::atomic<std::uint64_t> count_{0};
  std::atomic<Status> worst_{Status::ok};
};

}  // namespace kasane::comm
