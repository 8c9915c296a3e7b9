// SPDX-License-Identifier: Apache-2.0
// Which control blocks and which call stacks of this rank are free. A thread has a stack until it has ended,
// and a control block until it has been joined. So a million threads that wait to be joined need few stacks,
// and those stay warm. Free ones of each kind are kept in stages, from fast to slow:
//
//   FreeCache        one a worker: a small LIFO, so that a fork reuses what is warm
//   free list        of the rank, behind a mutex, in batches of half a cache
//   returned list    of the rank: control blocks that other ranks freed (with their stacks, if those are
//                    elsewhere), by a push of Words; taken over when a free list is empty or a worker is idle
//   never used       by counting up; each stack is prepared (Config::prepare_stack) when it is first taken
//
// Thread safety: FreeCache is its worker's; Slots from any worker.
// Invariants: each control block and stack is in at most one of these; a stack whose pages are elsewhere
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

template <class T>
class FreeCache {
 public:
  static constexpr std::uint32_t kMost = 64;
  explicit FreeCache(std::uint32_t capacity) noexcept : capacity_(capacity) {}
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == capacity_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void push(T value) noexcept { values_[count_++] = value; }
  T pop() noexcept { return values_[--count_]; }

 private:
  std::uint32_t count_ = 0;
  std::uint32_t capacity_;
  std::array<T, kMost> values_;
};
using SlotCache = FreeCache<SlotControl*>;
using StackCache = FreeCache<Word>;  ///< of SlotControl::stack_end

class Slots {
 public:
  Slots(const Config& config, const Controls& controls);

  /// How many of `all` a worker's cache may hold: few enough that all caches together hold at most an eighth.
  [[nodiscard]] std::uint32_t cache_capacity(std::uint32_t all) const noexcept;
  /// A free slot of this rank, its flags 0. Throws std::runtime_error if there is none.
  SlotControl& take(SlotCache& cache) {
    SlotControl& control = cache.empty() ? refill(cache) : *cache.pop();
    sanitizer.reuse(controls_.slot_of(control));
    return control;
  }
  /// The end of a free stack of this rank. Throws std::runtime_error if there is none.
  Word take_stack(StackCache& cache) {
    const Word end = cache.empty() ? refill(cache) : cache.pop();
    sanitizer.reuse_stack(end);
    return end;
  }
  /// The end of the stack of a root: there is one root at a time.
  Word take_stack_of_root(StackCache& cache);
  /// False: the former root's thread has not left it yet.
  bool try_take_first_stack();
  /// Frees an unused stack of this rank whose pages are here.
  void release_stack(StackCache& cache, Word end) {
    if (end == first_end_) [[unlikely]]
      return release_first_stack();
    if (cache.full()) [[unlikely]]
      spill(cache);
    cache.push(end);
  }
  /// Frees a slot whose thread has been joined or was detached and is off its stack: any slot of the job.
  void release(SlotCache& cache, SlotId slot) {
    if (!controls_.is_local(slot)) return return_to_birth_rank(slot);
    SlotControl& control = *controls_.local(slot);
    // relaxed: a rank where the thread exited set the flag before the join record, which this worker has
    // read.
    if (atomic(control.flags).load(std::memory_order_relaxed) != 0) [[unlikely]]
      return release_moved(slot, control);
    release_clean(cache, control);
  }
  /// A local slot whose flags are 0. In two parts, so that the usual one needs no Slots.
  void release_clean(SlotCache& cache, SlotControl& control) {
    end_generation(control);
    if (cache.full()) [[unlikely]]
      return spill_and_push(cache, control);
    cache.push(&control);
  }
  static void end_generation(SlotControl& control) noexcept {
    // relaxed: a join of the old id finds a new generation or a free record, in either order; both refuse it.
    atomic(control.id).store(control.id + kNextGeneration, std::memory_order_relaxed);
    atomic(control.join).store(0, std::memory_order_relaxed);
  }
  [[gnu::noinline]] void spill_and_push(SlotCache& cache, SlotControl& control);
  /// As take() and release(), for an OS thread that waits.
  SlotControl& take_for_os_thread() {
    SlotCache none(1);
    return take(none);
  }
  void release_of_os_thread(SlotControl& control) {
    end_generation(control);
    SlotCache one(1);
    one.push(&control);
    spill(one);
  }
  /// Takes over what other ranks freed, if anything.
  void drain_returned();
  /// See Pool::trim_stacks(). What workers keep to themselves is warm, and stays.
  std::uint32_t trim(std::uint32_t most);
  /// Before the stack that holds the address, of another rank, is used here for the first time.
  void prepare_foreign(std::uintptr_t address);

  /// The stack that holds the address.
  [[nodiscard]] StackId stack_at(std::uintptr_t address) const noexcept { return config_.stack_at(address); }
  /// The stack's highest address, exclusive.
  [[nodiscard]] Word stack_end(StackId stack) const noexcept { return config_.stack_end(stack); }
  /// Was a thread refused because no stack was left? From any thread, also from a fault handler.
  [[nodiscard]] bool has_refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

  /// Slots below this index have been taken at least once. For reports.
  [[nodiscard]] std::uint32_t used() const noexcept {
    return std::atomic_ref(const_cast<std::uint32_t&>(used_)).load(std::memory_order_relaxed);
  }

  SanitizerSlots sanitizer;

 private:
  /// By two: always odd, so that no id is 0.
  static constexpr Word kFirstGeneration = Word{1} << 32, kNextGeneration = Word{2} << 32;

  [[gnu::noinline]] SlotControl& refill(SlotCache& cache);
  [[gnu::noinline]] Word refill(StackCache& cache);
  [[gnu::noinline]] void release_moved(SlotId slot, SlotControl& control);
  void spill(SlotCache& cache);
  [[gnu::noinline]] void spill(StackCache& cache);
  [[gnu::noinline]] void return_to_birth_rank(SlotId slot);
  SlotControl* take_never_used();
  Word take_never_used_stack();
  void release_first_stack();
  Word take_trimmed_stack();
  bool refill_from_free(SlotCache& cache);
  bool refill_from_free(StackCache& cache);

  const Config& config_;
  const Controls& controls_;
  /// The end of the first thread's stack; 0: there is no such stack here.
  const Word first_end_;
  bool first_used_ = false, first_prepared_ = false;  ///< under mutex_
  std::atomic<bool> refused_{false};                  ///< relaxed: for a message
  /// held for a batch; never over a switch or a communication; trim() holds it for a system call
  std::mutex mutex_;
  SlotId free_ = kNoSlot;   ///< list through SlotControl::next
  std::uint32_t used_ = 0;  ///< slots below this index have been taken at least once
  /// the first free_stack_count_ are ends of free stacks; room for all of the rank, untouched until needed
  std::unique_ptr<Word[]> free_stacks_;
  std::uint32_t free_stack_count_ = 0;
  std::uint32_t trimmed_stacks_ = 0;  ///< so many of these, from the first, have given back their frames
  std::uint32_t used_stacks_ = 0;
  /// a bit a stack of the job: prepare_stack ran in this process; null if there is none
  std::unique_ptr<std::atomic<std::uint64_t>[]> prepared_;
};

}  // namespace kasane::ult
