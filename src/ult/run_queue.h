// SPDX-License-Identifier: Apache-2.0
// A worker's continuations, youngest last: a Chase–Lev deque in the threads region, from which any worker can
// steal the oldest, and a private overflow list for what does not fit.
//
//   oldest                                    youngest
//   [ deque: stealable ........................ ] [ overflow: not stealable ]
//
// Thread safety: push, pop, empty_for_owner: the worker. steal, stealable: any worker of this rank; thieves
// of other ranks use one-sided operations instead.
// Invariant: pop returns what was pushed last and not stolen. Overflow is used only while the deque is full
// or the overflow is not empty, so order holds; meanwhile the deque is shut.
#pragma once

#include <cstddef>

#include "base/deque.h"
#include "ult/controls.h"

namespace kasane::ult {

class RunQueue {
 public:
  RunQueue(std::byte* region, const Layout& layout, std::uint32_t worker)
      : deque_(Deque<>::create(region + layout.deque(worker), layout.deque_entries())) {}

  void push(const Controls& controls, SlotId slot) {
    if (overflow_ != kNoSlot || !deque_->push(raw(slot))) push_overflow(controls, slot);
  }
  [[nodiscard]] SlotId pop(const Controls& controls) {
    if (overflow_ != kNoSlot) [[unlikely]]
      return pop_overflow(controls);
    std::uint64_t value;
    return deque_->pop(value) ? SlotId{static_cast<std::uint32_t>(value)} : kNoSlot;
  }

  /// The owner takes the oldest, as a thief would.
  [[nodiscard]] SlotId take_oldest() const noexcept {
    SlotId slot;
    return steal(slot) == Steal::taken ? slot : kNoSlot;
  }

  // The usual halves of push and pop, for callers that keep the other out of line.
  /// False: push() it.
  [[nodiscard]] bool try_push(SlotId slot) noexcept { return deque_->push_below_limit(raw(slot)); }
  /// Pops what try_push() pushed, the last of those that are still here, unless it was stolen. slot() says
  /// what it was. In two halves: see Deque.
  [[nodiscard]] std::uint64_t begin_pop() noexcept {
    KASANE_ASSERT(overflow_ == kNoSlot);
    return deque_->begin_pop();
  }
  template <class Slot>
  [[nodiscard]] bool end_pop(std::uint64_t begun, Slot&& slot) noexcept {
    return deque_->end_pop(begun, [&] { return raw(slot()); });
  }

  [[nodiscard]] bool empty_for_owner() const noexcept {
    return overflow_ == kNoSlot && deque_->size_hint() == 0;
  }

  Steal steal(SlotId& slot) const noexcept {
    std::uint64_t value = raw(kNoSlot);
    const Steal outcome = deque_->steal(value);
    slot = SlotId{static_cast<std::uint32_t>(value)};
    return outcome;
  }
  /// How many can be stolen, at some recent time.
  [[nodiscard]] std::uint64_t size_hint() const noexcept { return deque_->size_hint(); }
  /// Is there something to steal? A hint.
  [[nodiscard]] bool stealable() const noexcept { return deque_->size_hint() != 0; }

 private:
  [[gnu::noinline]] void push_overflow(const Controls& controls, SlotId slot) {
    controls.put(slot, offsetof(SlotControl, next), link_to(overflow_));
    overflow_ = slot;
    deque_->shut();  // so that try_push need not ask for the overflow
  }
  [[gnu::noinline]] SlotId pop_overflow(const Controls& controls) {
    const SlotId slot = overflow_;
    overflow_ = controls.next(slot);
    return slot;
  }

  Deque<>* deque_;
  SlotId overflow_ = kNoSlot;  ///< newest of a list through SlotControl::next
};

}  // namespace kasane::ult
