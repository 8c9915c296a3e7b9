// SPDX-License-Identifier: Apache-2.0
// The control blocks of all slots of the job, seen from one rank: a pointer for slots born here, Words for
// the others.
//
// Thread safety: any thread; the protocol of each word says which thread may change it when.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/assert.h"
#include "ult/edges.h"
#include "ult/layout.h"

namespace kasane::ult {

/// A word of a threads region as an atomic.
[[nodiscard]] inline std::atomic_ref<Word> atomic(Word& word) noexcept { return std::atomic_ref<Word>(word); }

class Controls {
 public:
  Controls(Layout layout, Rank own, std::byte* region, Words* words) noexcept
      : layout_(layout),
        own_(own),
        first_(raw(layout.slot_at(own, 0))),
        region_(region),
        words_(words),
        controls_(reinterpret_cast<SlotControl*>(region + layout.controls())) {}

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] Rank own_rank() const noexcept { return own_; }
  /// The word at offset of this rank's region.
  [[nodiscard]] Word& own_word(std::uint64_t offset) const noexcept {
    return *reinterpret_cast<Word*>(region_ + offset);
  }

  [[nodiscard]] bool is_local(SlotId slot) const noexcept {
    return raw(slot) - first_ < layout_.slots_per_rank();
  }
  /// The control block of a slot born here.
  [[nodiscard]] SlotControl* local(SlotId slot) const noexcept { return controls_ + (raw(slot) - first_); }
  [[nodiscard]] SlotId slot_of(const SlotControl& control) const noexcept {
    return SlotId{first_ + static_cast<std::uint32_t>(&control - controls_)};
  }
  [[nodiscard]] SlotControl* local_or_null(SlotId slot) const noexcept {
    return is_local(slot) ? local(slot) : nullptr;
  }

  /// Field (offsetof in SlotControl) of any slot. acquire / release: a reader that finds a fact also finds
  /// what led to it.
  [[nodiscard]] Word get(SlotId slot, std::size_t field) const {
    if (is_local(slot)) return local_field(slot, field).load(std::memory_order_acquire);
    return words_->load(layout_.birth_rank(slot), layout_.word(slot, field));
  }
  void put(SlotId slot, std::size_t field, Word value) const {
    // release: pairs with get()
    if (is_local(slot)) return local_field(slot, field).store(value, std::memory_order_release);
    words_->store(layout_.birth_rank(slot), layout_.word(slot, field), value);
  }
  /// True if expected was there; else expected becomes what was.
  bool compare_swap(SlotId slot, std::size_t field, Word& expected, Word desired) const {
    // acq_rel: the exiter publishes what the thread wrote, the joiner what its waiting thread saved.
    if (is_local(slot))
      return local_field(slot, field).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
    return remote_compare_swap(layout_.birth_rank(slot), layout_.word(slot, field), expected, desired);
  }

  /// Puts slot on the list whose head is at offset head of rank's region (ready or returned list).
  void push(Rank rank, std::uint64_t head, SlotId slot) const {
    // Another rank's list is empty as a rule; a wrong guess costs no more than a look would.
    Word newest = rank == own_ ? atomic(own_word(head)).load(std::memory_order_relaxed) : 0;
    do put(slot, offsetof(SlotControl, next), newest);
    while (!swing(rank, head, newest, link_to(slot)));
  }
  /// Takes the whole list at offset head of this rank; walk it with next().
  [[nodiscard]] SlotId take_all(std::uint64_t head) const noexcept {
    // acquire: pairs with the pushes, so that next and the saved contexts are seen.
    return slot_of_link(atomic(own_word(head)).exchange(0, std::memory_order_acquire));
  }
  [[nodiscard]] SlotId next(SlotId slot) const {
    return slot_of_link(get(slot, offsetof(SlotControl, next)));
  }

 private:
  [[nodiscard]] std::atomic_ref<Word> local_field(SlotId slot, std::size_t field) const noexcept {
    return atomic(*reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(local(slot)) + field));
  }
  bool swing(Rank rank, std::uint64_t head, Word& expected, Word desired) const {
    // seq_cst: also the push half of the sleepers' handshake (ult/idle_workers.h); release publishes the
    // entry.
    if (rank == own_)
      return atomic(own_word(head)).compare_exchange_weak(expected, desired, std::memory_order_seq_cst);
    return remote_compare_swap(rank, head, expected, desired);
  }
  [[gnu::noinline]] bool remote_compare_swap(Rank rank, std::uint64_t offset, Word& expected,
                                             Word desired) const {
    const Word found = words_->compare_swap(rank, offset, expected, desired);
    const bool swapped = found == expected;
    expected = found;
    return swapped;
  }

  Layout layout_;
  Rank own_;
  std::uint32_t first_;
  std::byte* region_;
  Words* words_;
  SlotControl* controls_;
};

}  // namespace kasane::ult
