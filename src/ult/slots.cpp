// SPDX-License-Identifier: Apache-2.0
#include "ult/slots.h"

#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/assert.h"
#include "ult/runtime_section.h"

namespace kasane::ult {

Slots::Slots(const Config& config, const Controls& controls)
    : sanitizer(controls, config),
      config_(config),
      controls_(controls),
      first_end_(config.first_stack_bytes != 0 && raw(config.rank) == 0
                     ? config.stack_end(StackId{0}) - Config::kReservedOfFirstStack
                     : 0),
      free_stacks_(std::make_unique_for_overwrite<Word[]>(config.stacks_per_rank)) {
  if (first_end_ != 0) used_stacks_ = 1;
  if (config.prepare_stack && config.ranks > 1)
    prepared_ = std::make_unique<std::atomic<std::uint64_t>[]>(
        (std::size_t{config.ranks} * config.stacks_per_rank + 63) / 64);
}

std::uint32_t Slots::cache_capacity(std::uint32_t all) const noexcept {
  return std::clamp(all / (8 * config_.workers), 1u, SlotCache::kMost);
}

// ---- control blocks ----

SlotControl& Slots::refill(SlotCache& cache) {
  {
    RuntimeSection section;
    if (refill_from_free(cache)) return *cache.pop();
    drain_returned();
    if (refill_from_free(cache)) return *cache.pop();
    if (SlotControl* fresh = take_never_used()) return *fresh;
  }
  // Outside of the section: the exception is the user's and may travel.
  throw std::runtime_error("rank " + std::to_string(raw(config_.rank)) +
                           " has no place left for another thread: all " +
                           std::to_string(config_.slots_per_rank) +
                           " run, or have ended and were not joined; join threads sooner, or give each rank "
                           "more (kasane run --slots, or KASANE_SLOTS)");
}

bool Slots::refill_from_free(SlotCache& cache) {
  std::scoped_lock lock(mutex_);
  const std::uint32_t batch = (cache.capacity() + 1) / 2;
  for (std::uint32_t i = 0; i < batch && free_ != kNoSlot; ++i) {
    SlotControl* const control = controls_.local(free_);
    cache.push(control);
    free_ = slot_of_link(control->next);
  }
  return !cache.empty();
}

void Slots::release_moved(SlotId slot, SlotControl& control) {
  end_generation(control);
  controls_.push(controls_.own_rank(), Layout::returned_head(), slot);
}

void Slots::spill_and_push(SlotCache& cache, SlotControl& control) {
  spill(cache);
  cache.push(&control);
}

void Slots::spill(SlotCache& cache) {
  std::scoped_lock lock(mutex_);
  for (std::uint32_t i = (cache.capacity() + 1) / 2; i > 0; --i) {
    SlotControl* const control = cache.pop();
    control->next = link_to(free_);
    free_ = controls_.slot_of(*control);
  }
}

SlotControl* Slots::take_never_used() {
  std::uint32_t index;
  {
    std::scoped_lock lock(mutex_);
    if (used_ == config_.slots_per_rank) return nullptr;
    index = used_++;
  }
  const SlotId slot = controls_.layout().slot_at(config_.rank, index);
  SlotControl* const control = controls_.local(slot);
  control->id = kFirstGeneration | raw(slot);
  control->rank = raw(config_.rank);
  return control;
}

void Slots::drain_returned() {
  // relaxed: a hint; take_all is the acquire.
  if (atomic(controls_.own_word(Layout::returned_head())).load(std::memory_order_relaxed) == 0) return;
  SlotId slot = controls_.take_all(Layout::returned_head());
  while (slot != kNoSlot) {
    SlotControl& control = *controls_.local(slot);
    const SlotId following_slot = controls_.next(slot);
    const Word flags = std::exchange(control.flags, 0);
    if (flags & kSlotMoved) config_.mover->reclaim(stack_at(control.stack_end - 1));
    control.rank = raw(config_.rank);
    std::scoped_lock lock(mutex_);
    if (flags & (kSlotMoved | kSlotAbandoned)) {
      if (control.stack_end == first_end_)
        first_used_ = false;
      else
        free_stacks_[free_stack_count_++] = control.stack_end;
    }
    control.next = link_to(free_);
    free_ = slot;
    slot = following_slot;
  }
}

void Slots::return_to_birth_rank(SlotId slot) {
  controls_.put(slot, offsetof(SlotControl, id),
                controls_.get(slot, offsetof(SlotControl, id)) + kNextGeneration);
  controls_.put(slot, offsetof(SlotControl, join), 0);
  controls_.push(controls_.layout().birth_rank(slot), Layout::returned_head(), slot);
}

// ---- stacks ----

Word Slots::refill(StackCache& cache) {
  {
    RuntimeSection section;
    if (refill_from_free(cache)) return cache.pop();
    drain_returned();
    if (refill_from_free(cache)) return cache.pop();
    if (const Word trimmed = take_trimmed_stack(); trimmed != 0) return trimmed;
    if (const Word fresh = take_never_used_stack(); fresh != 0) return fresh;
  }
  refused_.store(true, std::memory_order_relaxed);
  // Outside of the section: the exception is the user's and may travel.
  throw std::runtime_error("rank " + std::to_string(raw(config_.rank)) +
                           " has no call stack left for another thread: all " +
                           std::to_string(config_.stacks_per_rank) +
                           " are in use by threads that have not ended; fork less deeply, or give each rank "
                           "more (kasane run --slots, or KASANE_SLOTS)");
}

bool Slots::try_take_first_stack() {
  drain_returned();  // the former root may have ended on another rank
  std::scoped_lock lock(mutex_);
  return !std::exchange(first_used_, true);
}

Word Slots::take_stack_of_root(StackCache& cache) {
  if (first_end_ == 0) return take_stack(cache);
  // The former root has ended, which wakes main, but the worker that ran it may be about to return its stack.
  while (!try_take_first_stack()) ::sched_yield();
  const bool prepared = std::exchange(first_prepared_, true);
  if (!prepared && config_.prepare_stack) config_.prepare_stack(config_.stack_context, StackId{0});
  sanitizer.reuse_stack(first_end_);
  return first_end_;
}

void Slots::release_first_stack() {
  std::scoped_lock lock(mutex_);
  first_used_ = false;
}

bool Slots::refill_from_free(StackCache& cache) {
  std::scoped_lock lock(mutex_);
  for (std::uint32_t i = (cache.capacity() + 1) / 2; i > 0 && free_stack_count_ != trimmed_stacks_; --i)
    cache.push(free_stacks_[--free_stack_count_]);
  return !cache.empty();
}

/// Takes one trimmed stack, since the thread that will use it waits for room; or a stack that was freed
/// meanwhile. 0: there is none.
Word Slots::take_trimmed_stack() {
  Word end;
  {
    std::scoped_lock lock(mutex_);
    if (free_stack_count_ == 0) return 0;
    end = free_stacks_[--free_stack_count_];
    if (free_stack_count_ >= trimmed_stacks_) return end;
    trimmed_stacks_ = free_stack_count_;
  }
  config_.use_trimmed_stack(config_.stack_context, stack_at(end - 1));
  return end;
}

std::uint32_t Slots::trim(std::uint32_t most) {
  if (config_.trim_stack == nullptr) return 0;
  std::uint32_t n = 0;
  for (; n < most; ++n) {
    // a stack at a time: a worker that needs a batch waits for one system call
    std::scoped_lock lock(mutex_);
    if (trimmed_stacks_ == free_stack_count_) break;
    config_.trim_stack(config_.stack_context, stack_at(free_stacks_[trimmed_stacks_++] - 1));
  }
  return n;
}

void Slots::spill(StackCache& cache) {
  std::scoped_lock lock(mutex_);
  for (std::uint32_t i = (cache.capacity() + 1) / 2; i > 0; --i)
    free_stacks_[free_stack_count_++] = cache.pop();
}

Word Slots::take_never_used_stack() {
  std::uint32_t index;
  {
    std::scoped_lock lock(mutex_);
    if (used_stacks_ == config_.stacks_per_rank) return 0;
    index = used_stacks_++;
  }
  const StackId stack{raw(config_.rank) * config_.stacks_per_rank + index};
  if (config_.prepare_stack) config_.prepare_stack(config_.stack_context, stack);
  return stack_end(stack);
}

void Slots::prepare_foreign(std::uintptr_t address) {
  if (!prepared_) return;
  const StackId stack = stack_at(address);
  auto& word = prepared_[raw(stack) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (raw(stack) % 64);
  // relaxed: the stack itself is held by one worker at a time, handed on through lists that order memory.
  if (word.load(std::memory_order_relaxed) & bit) return;
  config_.prepare_stack(config_.stack_context, stack);
  word.fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace kasane::ult
