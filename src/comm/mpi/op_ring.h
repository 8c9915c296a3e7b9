// SPDX-License-Identifier: Apache-2.0
// The outstanding one-sided operations of this rank to one peer, in the order in which they were posted. They
// form a ring, so that a fence is one more operation, which completes when all operations before it have.
//
//        low                                 tail
//   … ──►│ done │ outstanding │ done │ fence │──► …          position p lies in slot p mod capacity
//
// turn of the slot of position p is p: free, for the thread that claims p; p + 1: outstanding; p + capacity:
// ended, that is, free for position p + capacity.
//
// Thread safety: claim() and publish() by any thread; end() and take_fence() inside the transport's gate.
// Invariant: low ≤ tail; every position below low has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/assert.h"
#include "base/atomics.h"
#include "comm/transport.h"

namespace kasane::comm::mpi {

struct RmaOperation {
  Completion* completion = nullptr;
  void* to = nullptr;               ///< read: where the data goes
  std::uint64_t* result = nullptr;  ///< atomic: where the old value goes, or null
  std::uint64_t bytes = 0;          ///< read: how many bytes are expected
  /// events that must still happen; only the gate's holder changes it once published
  std::uint8_t parts = 1;
  bool fence = false;
};

template <class Atomics = StdAtomics>
class OpRing {
 public:
  explicit OpRing(std::uint32_t capacity) : mask_(capacity - 1), slots_(new Slot[capacity]) {
    // relaxed: not shared yet
    for (std::uint32_t i = 0; i < capacity; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// A position to fill and publish, or none if all slots are in use.
  [[nodiscard]] std::optional<std::uint64_t> claim() noexcept {
    std::uint64_t p = tail_.load(std::memory_order_relaxed);  // relaxed: a guess, checked below
    for (;;) {
      // acquire: pairs with end(): the slot's last operation has ended.
      const auto ahead = static_cast<std::int64_t>(slot(p).turn.load(std::memory_order_acquire) - p);
      if (ahead < 0) return std::nullopt;
      if (ahead > 0) {
        p = tail_.load(std::memory_order_relaxed);  // relaxed: another thread took p; try the next
      } else if (tail_.compare_exchange_strong(p, p + 1, std::memory_order_seq_cst,
                                               std::memory_order_relaxed)) {
        return p;  // seq_cst: idle() compares tail with low. A failure only loads a new guess.
      }
    }
  }
  [[nodiscard]] RmaOperation& at(std::uint64_t position) noexcept { return slot(position).op; }
  [[nodiscard]] RmaOperation& in_slot(std::uint16_t index) noexcept { return slots_[index].op; }
  [[nodiscard]] std::uint16_t index(std::uint64_t position) const noexcept {
    return static_cast<std::uint16_t>(position & mask_);
  }
  void publish(std::uint64_t position) noexcept {
    // release: a thread that sees the operation outstanding sees its content.
    slot(position).turn.store(position + 1, std::memory_order_release);
  }

  /// Have all operations claimed so far ended? Any thread.
  [[nodiscard]] bool idle() const noexcept {
    // low first: it never exceeds tail, so if they are equal, nothing was outstanding at some moment in
    // between. seq_cst, both: fences of two threads agree on an order with claim().
    const std::uint64_t low = low_.load(std::memory_order_seq_cst);
    return tail_.load(std::memory_order_seq_cst) == low;
  }

  /// The operation in slot index if it is outstanding, in place; else null.
  [[nodiscard]] RmaOperation* under_way(std::uint16_t index) noexcept {
    KASANE_CHECK_OP(index, <=, mask_);
    Slot& s = slots_[index];
    const std::uint64_t turn = s.turn.load(std::memory_order_acquire);  // acquire: pairs with publish()
    return (turn & mask_) == ((index + 1u) & mask_) ? &s.op : nullptr;
  }
  /// The operation in slot index has ended; its slot can be claimed again.
  void end(std::uint16_t index) noexcept {
    Slot& s = slots_[index];
    // relaxed: outstanding, so only we change it
    const std::uint64_t position = s.turn.load(std::memory_order_relaxed) - 1;
    // release: our use of op is over
    s.turn.store(position + mask_ + 1, std::memory_order_release);
    skip_ended();
  }
  /// The slot of a fence for which all operations before it have ended. The caller ends it.
  [[nodiscard]] std::optional<std::uint16_t> take_fence() noexcept {
    skip_ended();
    const std::uint64_t low = low_.load(std::memory_order_relaxed);  // relaxed: written in the gate only
    Slot& s = slot(low);
    // acquire: pairs with publish()
    if (s.turn.load(std::memory_order_acquire) != low + 1 || !s.op.fence) return std::nullopt;
    return index(low);
  }

 private:
  struct alignas(64) Slot {
    typename Atomics::template Atomic<std::uint64_t> turn;
    RmaOperation op;
  };
  Slot& slot(std::uint64_t position) noexcept { return slots_[position & mask_]; }
  void skip_ended() noexcept {
    std::uint64_t low = low_.load(std::memory_order_relaxed);  // relaxed: written in the gate only
    // ≥: the slot may be in use for its next position already. acquire: pairs with end() by an earlier holder
    // of the gate.
    while (slot(low).turn.load(std::memory_order_acquire) >= low + mask_ + 1) ++low;
    low_.store(low, std::memory_order_seq_cst);  // seq_cst: see idle()
  }

  std::uint64_t mask_;
  std::unique_ptr<Slot[]> slots_;
  alignas(64) typename Atomics::template Atomic<std::uint64_t> tail_{0};
  alignas(64) typename Atomics::template Atomic<std::uint64_t> low_{0};
};

}  // namespace kasane::comm::mpi
