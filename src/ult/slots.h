// SPDX-License-Identifier: Apache-2.0
// Which stack slots of this rank are free. Three stages, from fast to slow:
//
//   SlotCache        one a worker: a small LIFO, so that a fork reuses the stack that is warm
//   free list        of the rank, behind a mutex, in batches of half a cache
//   returned list    of the rank: freed by other ranks, by a push of Words; taken over when the free list is empty, or when a worker is idle
//   never used       by counting up; each slot is prepared (Config::prepare_slot) when it is first taken
//
// Thread safety: SlotCache is its worker's; Slots from any worker. Invariants: a slot is in at most one of these; one whose pages are elsewhere
// (kSlotMoved) is reclaimed before it is handed out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ult/controls.h"
#include "ult/pool.h"
#include "ult/sanitizer.h"

namespace kasane::ult {

class SlotCache {
 public:
  static constexpr std::uint32_t kMost = 64;
  explicit SlotCache(std::uint32_t capacity) noexcept : capacity_(capacity) {}
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == capacity_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void push(SlotId slot) noexcept { slots_[count_++] = slot; }
  SlotId pop() noexcept { return slots_[--count_]; }

 private:
  std::uint32_t count_ = 0;
  std::uint32_t capacity_;
  std::array<SlotId, kMost> slots_;
};

class Slots {
 public:
  Slots(const Config& config, const Controls& controls);

  /// How many a worker may keep to itself: few enough that all caches together hold at most an eighth of the rank's slots.
  [[nodiscard]] std::uint32_t cache_capacity() const noexcept;
  /// A free slot of this rank, its flags 0. Throws std::runtime_error if there is none.
  SlotId take(SlotCache& cache) {
    const SlotId slot = cache.empty() ? refill(cache) : cache.pop();
    sanitizer.reuse(slot);
    return slot;
  }
  /// Frees a slot whose thread has been joined or was detached and is off its stack: any slot of the job.
  void release(SlotCache& cache, SlotId slot) {
    if (!controls_.is_local(slot)) return return_to_birth_rank(slot);
    release_local(cache, slot, *controls_.local(slot));
  }
  void release_local(SlotCache& cache, SlotId slot, SlotControl& control) {
    // relaxed: whoever exited it elsewhere set the flag before the join record, which we have read.
    if (atomic(control.flags).load(std::memory_order_relaxed) != 0) [[unlikely]] return release_moved(slot, control);
    release_clean(cache, slot, control);
  }
  /// A local slot whose flags are 0.
  void release_clean(SlotCache& cache, SlotId slot, SlotControl& control) {
    end_generation(control);
    if (cache.full()) [[unlikely]] return spill_and_push(cache, slot);
    cache.push(slot);
  }
  /// Takes over what other ranks freed, if anything.
  void drain_returned();
  /// Before a slot born elsewhere runs here for the first time.
  void prepare_foreign(SlotId slot);

  /// Highest address of the slot's stack, exclusive.
  [[nodiscard]] std::uintptr_t stack_end(SlotId slot) const noexcept {
    return slots_ + (std::uintptr_t{raw(slot)} + 1) * slot_bytes_;
  }

  SanitizerSlots sanitizer;

 private:
  static void end_generation(SlotControl& control) noexcept {
    // relaxed: a join of the old id finds a new generation or a free record, in either order; both refuse it. By two: always odd, so that no id is 0.
    atomic(control.generation).store(control.generation + 2, std::memory_order_relaxed);
    atomic(control.join).store(0, std::memory_order_relaxed);
  }
  [[gnu::noinline]] SlotId refill(SlotCache& cache);
  [[gnu::noinline]] void release_moved(SlotId slot, SlotControl& control);
  [[gnu::noinline]] void spill_and_push(SlotCache& cache, SlotId slot);
  void spill(SlotCache& cache);
  [[gnu::noinline]] void return_to_birth_rank(SlotId slot);
  SlotId take_never_used();
  bool refill_from_free(SlotCache& cache);

  const Config& config_;
  const Controls& controls_;
  std::uintptr_t slots_;
  std::size_t slot_bytes_;
  std::mutex mutex_;              ///< held for a batch; never over a switch or a communication
  SlotId free_ = kNoSlot;         ///< list through SlotControl::next
  std::uint32_t used_ = 0;        ///< slots below this index have been taken at least once
  std::unique_ptr<std::atomic<std::uint64_t>[]> prepared_;   ///< a bit a slot of the job: prepare_slot ran in this process; null if there is none
};

}  // namespace kasane::ult
