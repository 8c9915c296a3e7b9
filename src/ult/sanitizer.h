// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer and AddressSanitizer which stack runs; nothing in other builds.
//
// Each switch is bracketed: leaving_to_*() just before it on the old stack, arrived() just after it on the
// new one.
// TSan: one fiber a slot, created at its first use; a switch counts as synchronisation, which hides races
// between two threads that run one after the other on one worker, but none between workers.
// ASan must run with detect_stack_use_after_return=0 (the default of g++ 12): frames on a fake stack belong
// to an OS thread and cannot move with a user-level one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "ult/controls.h"
#include "ult/pool.h"

#if defined(__SANITIZE_THREAD__)
#include <atomic>
#include <memory>
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old, std::size_t* size_old);
}
#endif

// A function that is entered on one stack and left on another: TSan would push its frame on one fiber and pop
// it from the other.
#if defined(__SANITIZE_THREAD__)
#define KASANE_ULT_SWITCHES [[gnu::no_sanitize_thread]]
#else
#define KASANE_ULT_SWITCHES
#endif

namespace kasane::ult {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)

/// What TSan must know of a worker's own stack.
struct SanitizerWorker {
  void* fiber = nullptr;
  void attach() noexcept { fiber = __tsan_get_current_fiber(); }
};

class SanitizerSlots {
 public:
  SanitizerSlots(const Controls&, const Config& config) : fibers_(config.ranks * config.slots_per_rank) {}
  ~SanitizerSlots() {
    for (auto& f : fibers_)
      if (void* fiber = f.load(std::memory_order_relaxed)) __tsan_destroy_fiber(fiber);
  }
  // relaxed: a slot is handed from one user to the next through a list or a deque, which orders these
  // accesses.
  void reuse(SlotId slot) noexcept {
    auto& fiber = fibers_[raw(slot)];
    if (!fiber.load(std::memory_order_relaxed))
      fiber.store(__tsan_create_fiber(0), std::memory_order_relaxed);
  }
  static void reuse_stack(Word) noexcept {}
  /// The thread left its stack without returning: TSan's shadow of its calls must not pile up.
  void ended(SlotId slot) noexcept {
    __tsan_destroy_fiber(fibers_[raw(slot)].exchange(nullptr, std::memory_order_relaxed));
  }
  KASANE_ULT_SWITCHES void leaving_to_thread(SlotId slot) noexcept {
    __tsan_switch_to_fiber(fibers_[raw(slot)].load(std::memory_order_relaxed), 0);
  }
  KASANE_ULT_SWITCHES static void leaving_to_worker(SanitizerWorker& w) noexcept {
    __tsan_switch_to_fiber(w.fiber, 0);
  }
  static void arrived() noexcept {}

 private:
  std::vector<std::atomic<void*>> fibers_;
};

#elif defined(__SANITIZE_ADDRESS__)

struct SanitizerWorker {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  /// The stack that runs now: ASan names it when it is left, so it is left for a moment.
  void attach() noexcept {
    __sanitizer_start_switch_fiber(nullptr, this, 1);
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    __sanitizer_start_switch_fiber(nullptr, bottom, bytes);
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  }
};

class SanitizerSlots {
 public:
  SanitizerSlots(const Controls& controls, const Config& config) : controls_(controls), config_(config) {}
  static void reuse(SlotId) noexcept {}
  /// Frames that never returned left their red zones behind.
  void reuse_stack(Word stack_end) noexcept {
    const std::size_t bytes = bytes_below(stack_end);
    ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(stack_end - bytes), bytes);
  }
  static void ended(SlotId) noexcept {}
  void leaving_to_thread(SlotId slot) noexcept {
    const Word end = controls_.get(slot, offsetof(SlotControl, stack_end));
    const std::size_t bytes = bytes_below(end);
    __sanitizer_start_switch_fiber(nullptr, reinterpret_cast<void*>(end - bytes), bytes);
  }
  static void leaving_to_worker(SanitizerWorker& w) noexcept {
    __sanitizer_start_switch_fiber(nullptr, w.bottom, w.bytes);
  }
  static void arrived() noexcept { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }

 private:
  std::size_t bytes_below(Word end) const noexcept {
    const StackId stack = config_.stack_at(end - 1);
    return config_.bytes_of_stack(stack) - (config_.stack_end(stack) - end);
  }
  const Controls& controls_;
  const Config& config_;
};

#else

struct SanitizerWorker {
  static void attach() noexcept {}
};

class SanitizerSlots {
 public:
  SanitizerSlots(const Controls&, const Config&) {}
  static void reuse(SlotId) noexcept {}
  static void reuse_stack(Word) noexcept {}
  static void ended(SlotId) noexcept {}
  static void leaving_to_thread(SlotId) noexcept {}
  static void leaving_to_worker(SanitizerWorker&) noexcept {}
  static void arrived() noexcept {}
};

#endif

/// An OS thread that switches to another stack outside of the workers and comes back, as main does.
struct SanitizerStackSwitch {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;  // of the stack it came from
  std::size_t bytes = 0;
  static void leaving(const void* to, std::size_t to_bytes) noexcept {
    __sanitizer_start_switch_fiber(nullptr, to, to_bytes);
  }
  void arrived() noexcept { __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes); }
#else
  static void leaving(const void*, std::size_t) noexcept {}
  static void arrived() noexcept {}
#endif
};

}  // namespace kasane::ult
