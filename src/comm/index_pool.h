// SPDX-License-Identifier: Apache-2.0
// The free indices of a bounded table of records, as a stack without a lock. Records never move; only indices
// do.
//
//   head = count of changes (32) | index of the first free record (32)      next[i] = the free record below i
//
// The count makes a compare-swap fail when the stack has changed and changed back in between (ABA): then the
// next[i] that was read belongs to an earlier use of i.
//
// Thread safety: everything from any thread, also from a fault handler.
// Invariant: an index is on the stack or taken, never both.
#pragma once

#include <cstdint>
#include <memory>

#include "base/atomics.h"

namespace kasane::comm {

template <class Atomics = StdAtomics>
class IndexPool {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  explicit IndexPool(std::uint32_t count)
      : next_(std::make_unique<typename Atomics::template Atomic<std::uint32_t>[]>(count)),
        head_(count == 0 ? kNone : 0) {
    // relaxed: the thread that passes the pool to others publishes this.
    for (std::uint32_t i = 0; i < count; ++i)
      next_[i].store(i + 1 < count ? i + 1 : kNone, std::memory_order_relaxed);
  }

  /// kNone: all are taken.
  [[nodiscard]] std::uint32_t take() noexcept {
    // acquire: pairs with put(), so next and what the record's last user wrote are visible.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::uint32_t>(head);
      if (index == kNone) return kNone;
      // relaxed: may belong to a later use of the record; the compare-swap fails then.
      const std::uint32_t below = next_[index].load(std::memory_order_relaxed);
      // acquire, both: as the load above
      if (head_.compare_exchange_strong(head, changed(head) | below, std::memory_order_acquire,
                                        std::memory_order_acquire))
        return index;
    }
  }

  /// Waits until one is free.
  template <class Waiter>
  [[nodiscard]] std::uint32_t take(Waiter& waiter) {
    std::uint32_t index = kNone;
    // may be called again after it was true
    waiter.until([&] { return index != kNone || (index = take()) != kNone; });
    return index;
  }

  void put(std::uint32_t index) noexcept {
    std::uint64_t head = head_.load(std::memory_order_relaxed);  // relaxed: nothing is read through it
    do {
      // relaxed: published by the next line
      next_[index].store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      // release: next, and the last user's writes. A release sequence: take() continues it.
    } while (!head_.compare_exchange_strong(head, changed(head) | index, std::memory_order_release,
                                            std::memory_order_relaxed));
  }

 private:
  static constexpr std::uint64_t changed(std::uint64_t head) noexcept { return ((head >> 32) + 1) << 32; }

  std::unique_ptr<typename Atomics::template Atomic<std::uint32_t>[]> next_;
  alignas(64) typename Atomics::template Atomic<std::uint64_t> head_;
};

}  // namespace kasane::comm
