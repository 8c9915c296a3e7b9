// SPDX-License-Identifier: Apache-2.0
// A bounded ring of equal cells: any number of producers, one consumer, no locks. After Dmitry Vyukov's bounded MPMC
// queue, with the consumer's side reduced to one thread.
//
//   producers claim a position (fetch of tail by compare-swap) ─▶ fill its cell ─▶ publish (turn)
//   consumer looks at the cell at head: published? ─▶ use it in place ─▶ give it back (turn)
//
// turn of the cell of position p: p = empty, for the producer that claims p; p + 1 = published; p + capacity = empty again.
// A producer that is stopped between claim and publish holds up the consumer at its cell, and nobody else.
// The ring holds no pointer, so it may lie in memory that several processes map.
//
// Thread safety: try_push() by anybody; front(), pop(), try_pop() by one thread at a time (a hand-over between
// consumers needs its own synchronisation).
// Invariants: head <= tail <= head + Capacity; positions only grow (64 bits do not wrap).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/atomics.h"

namespace kasane {

template <class T, std::size_t Capacity, class Atomics = StdAtomics>
class MpscRing {
  static_assert(std::has_single_bit(Capacity) && Capacity >= 2, "a position's cell is found by a mask");
  static_assert(std::is_trivially_copyable_v<T>, "cells may lie in memory shared between processes");

 public:
  MpscRing() noexcept {
    // relaxed: whoever hands the ring to other threads publishes this.
    for (std::size_t i = 0; i < Capacity; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  MpscRing(const MpscRing&) = delete;
  MpscRing& operator=(const MpscRing&) = delete;

  /// Copies value into the ring. False, and nothing happened, if it is full.
  [[nodiscard]] bool try_push(const T& value) noexcept {
    return try_fill([&](T& cell) { cell = value; });
  }

  /// As try_push(), but fill(T&) writes the cell in place. fill must not throw nor wait: the consumer waits for it.
  template <class Fill>
  [[nodiscard]] bool try_fill(const Fill& fill) noexcept {
    // relaxed: a first guess; the compare-swap checks it.
    std::uint64_t p = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[p & kMask];
      // acquire: pairs with the release in pop(): the consumer is done with the cell that we will overwrite.
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::int64_t>(turn - p);
      if (ahead < 0) return false;  // still holds position p - Capacity: full
      if (ahead > 0) {
        p = tail_.load(std::memory_order_relaxed);  // relaxed: somebody claimed p; a newer guess
        continue;
      }
      // relaxed: the claim orders nothing; the value is published by turn. A failure loads the newer tail into p.
      if (!tail_.compare_exchange_strong(p, p + 1, std::memory_order_relaxed, std::memory_order_relaxed)) continue;
      fill(cell.value);
      // release: who sees p + 1 sees the value.
      cell.turn.store(p + 1, std::memory_order_release);
      return true;
    }
  }

  /// Consumer. The oldest value, in place until pop(), or null: nothing is there, or its producer is not done yet.
  [[nodiscard]] T* front() noexcept {
    Cell& cell = cells_[head_ & kMask];
    // acquire: pairs with the release in try_fill().
    return cell.turn.load(std::memory_order_acquire) == head_ + 1 ? &cell.value : nullptr;
  }

  /// Consumer, after front() returned a value: its cell is free for a producer.
  void pop() noexcept {
    // release: our reads of the value are over before a producer sees the cell empty.
    cells_[head_ & kMask].turn.store(head_ + Capacity, std::memory_order_release);
    ++head_;
  }

  /// Consumer. Copies the oldest value out, if there is one.
  [[nodiscard]] bool try_pop(T& value) noexcept {
    T* oldest = front();
    if (oldest == nullptr) return false;
    value = *oldest;
    pop();
    return true;
  }

  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return Capacity; }

 private:
  static constexpr std::uint64_t kMask = Capacity - 1;

  struct Cell {
    typename Atomics::template Atomic<std::uint64_t> turn{0};
    T value{};
  };

  alignas(64) typename Atomics::template Atomic<std::uint64_t> tail_{0};  // producers'
  alignas(64) std::uint64_t head_ = 0;                                    // the consumer's
  alignas(64) Cell cells_[Capacity];
};

}  // namespace kasane
