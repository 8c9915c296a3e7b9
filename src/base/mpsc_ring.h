// SPDX-License-Identifier: Apache-2.0
// A bounded ring of equal cells: any number of producers, one consumer that may sleep, no locks. After Endo's
// command queue ("distributed shared memory and user-level threads …", thesis, 2017, §4.4.1 and §4.4.2).
//
//   producers: room by head? ─▶ claim a position (compare-swap of tail) ─▶ fill its cell ─▶ publish (turn)
//              ─▶ told to wake? ring the consumer's bell
//   consumer:  published? (turn of the cell at head) ─▶ use it in place ─▶ next …
//              ─▶ hand the cells back (head), several at once
//
// tail = 2 · positions claimed + (the consumer sleeps). Each push writes an even tail. So exactly one
// producer's compare-swap clears the bit, and that producer learns by this very instruction that it has to
// wake the consumer. While the consumer is awake, a push reads nothing else of it.
//
// turn of a cell: 1 + the last position that was published in it. The consumer never writes to a cell, and
// writes head seldom: cells travel one way only, and a producer's look for room mostly hits its own cache.
//
// **No wake-up is lost.** announce_sleep() is a compare-swap of tail from "nothing beyond head" to the same
// with the bit: all pushes and the announcement have one order in tail. A push before it makes it fail. A
// push after it clears the bit, and rings. So the consumer must do, in this order: read its bell's count,
// find nothing, announce_sleep(), sleep on that count. (docs/design/comm_offload.md has the table.)
//
// Thread safety: try_push(), try_fill() by any thread; the rest by one thread at a time (a hand-over between
// consumers needs its own synchronisation).
// Invariants: head <= head_ <= tail / 2 <= head + capacity; positions only grow (63 bits do not wrap); the
// bit is set only while tail / 2 == head_.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/assert.h"
#include "base/atomics.h"

namespace kasane {

/// The result of a push. wake: it is in the ring, and the consumer sleeps or is about to; the caller must
/// ring its bell.
enum class [[nodiscard]] Push : std::uint8_t { full, done, wake };

template <class T, class Atomics = StdAtomics>
class MpscRing {
  static_assert(std::is_trivially_copyable_v<T>, "a cell is overwritten, never destroyed");

 public:
  /// capacity: a power of two, at least 2.
  explicit MpscRing(std::size_t capacity)
      : mask_(capacity - 1),
        hand_back_at_(std::max<std::uint64_t>(1, std::min<std::uint64_t>(capacity / 4, kHandBack))),
        cells_(new Cell[capacity]) {
    KASANE_CHECK(std::has_single_bit(capacity) && capacity >= 2, "a position's cell is found by a mask");
  }
  MpscRing(const MpscRing&) = delete;
  MpscRing& operator=(const MpscRing&) = delete;

  /// Copies value into the ring. full: nothing happened. That is the result when the ring holds capacity()
  /// values, and perhaps a little earlier (up to 16 or a quarter of the cells) while the consumer works.
  Push try_push(const T& value) noexcept {
    return try_fill([&](T& cell) { cell = value; });
  }

  /// As try_push(), but fill(T&) writes the cell in place. fill must not throw nor wait: the consumer waits
  /// for it.
  template <class Fill>
  Push try_fill(const Fill& fill) noexcept {
    // relaxed: a first guess; the compare-swap checks it.
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
      // acquire: pairs with hand_back(): the consumer has finished with the cell that we will overwrite.
      // Signed: head may be newer than our tail.
      const std::uint64_t head = head_shared_.load(std::memory_order_acquire);
      // Full now, not only by our old tail, which is never too large.
      if (static_cast<std::int64_t>((tail >> 1) - head) > static_cast<std::int64_t>(mask_)) return Push::full;
      // relaxed: the claim orders nothing: turn publishes the value, and the bit is only ever compared with
      // tail itself. A failure loads the newer tail.
      if (tail_.compare_exchange_strong(tail, (tail | 1) + 1, std::memory_order_relaxed,
                                        std::memory_order_relaxed))
        break;
    }
    const std::uint64_t position = tail >> 1;
    Cell& cell = cells_[position & mask_];
    fill(cell.value);
    // release: a thread that sees position + 1 sees the value.
    cell.turn.store(position + 1, std::memory_order_release);
    return (tail & 1) != 0 ? Push::wake : Push::done;
  }

  /// Consumer. The oldest value, in place until pop(), or null: nothing is there, or its producer has not
  /// finished.
  [[nodiscard]] T* front() noexcept {
    Cell& cell = cells_[head_ & mask_];
    // acquire: pairs with the release in try_fill().
    if (cell.turn.load(std::memory_order_acquire) == head_ + 1) return &cell.value;
    hand_back();  // the consumer keeps no free cells while it waits for producers
    return nullptr;
  }

  /// Consumer, after front() returned a value: it has finished with it.
  void pop() noexcept {
    ++head_;
    if (head_ - handed_back_ >= hand_back_at_) hand_back();
  }

  /// Consumer. Frees every cell that was popped for the producers; called when the consumer stops polling for
  /// a while.
  void hand_back() noexcept {
    if (handed_back_ == head_) return;
    handed_back_ = head_;
    // release: our reads of the values are over before a producer overwrites them.
    head_shared_.store(head_, std::memory_order_release);
  }

  /// Consumer. Copies the oldest value out, if there is one.
  [[nodiscard]] bool try_pop(T& value) noexcept {
    T* oldest = front();
    if (oldest == nullptr) return false;
    value = *oldest;
    pop();
    return true;
  }

  /// Consumer, before it sleeps: the next push is told to wake it. False: a position was claimed that it has
  /// not popped; look again.
  [[nodiscard]] bool announce_sleep() noexcept {
    hand_back();
    std::uint64_t nothing_more = head_ << 1;
    // relaxed: see try_fill(); what the waker did is seen through the bell.
    return tail_.compare_exchange_strong(nothing_more, head_ << 1 | 1, std::memory_order_relaxed,
                                         std::memory_order_relaxed);
  }

  /// Consumer, awake again (nothing was popped since): no push needs to wake it. Without this call the next
  /// push only rings needlessly.
  void retract_sleep() noexcept {
    std::uint64_t announced = head_ << 1 | 1;
    // relaxed: as above. It fails where a push has cleared the bit.
    tail_.compare_exchange_strong(announced, head_ << 1, std::memory_order_relaxed,
                                  std::memory_order_relaxed);
  }

  /// Any thread. How many positions have been claimed so far.
  [[nodiscard]] std::uint64_t claimed() const noexcept {
    // relaxed: a thread sees its own pushes, and those that it learnt of, by coherence.
    return tail_.load(std::memory_order_relaxed) >> 1;
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  static constexpr std::uint64_t kHandBack = 16;

  struct alignas(64) Cell {
    typename Atomics::template Atomic<std::uint64_t> turn{0};
    T value{};
  };

  alignas(64) typename Atomics::template Atomic<std::uint64_t> tail_{0};  // producers'
  // Written by the consumer, read by producers
  alignas(64) typename Atomics::template Atomic<std::uint64_t> head_shared_{0};
  alignas(64) std::uint64_t head_ = 0;  // the consumer's own
  std::uint64_t handed_back_ = 0;       // = head_shared_
  // Read by all, written by none
  alignas(64) const std::uint64_t mask_;
  const std::uint64_t hand_back_at_;
  const std::unique_ptr<Cell[]> cells_;
};

}  // namespace kasane
