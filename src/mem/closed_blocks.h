// SPDX-License-Identifier: Apache-2.0
// A few blocks of V that are closed to all threads by a mapping without access: accesses that the handler
// refused to a thread that sleeps in the kernel. The thread wakes, repeats the access, and gets what an
// access to no memory gets: SIGSEGV in place with the right address, registers and error code, or, in a
// system call, EFAULT. (A signal sent to the thread would not do: it does not end a wait in a system call,
// and carries no kind of access.)
//
// The number of closed blocks is bounded, since each splits a mapping: the oldest is opened for a new one. A
// thread that accesses it again faults again and is refused again.
//
// Thread safety: any thread; async-signal-safe. The lock is held for two system calls, never by a thread that
// touches V.
// Invariant: when open() of a run returns, none of its blocks is closed that close() may find allowed.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/assert.h"
#include "mem/space.h"

namespace kasane::mem {

class ClosedBlocks {
 public:
  explicit ClosedBlocks(const AddressMap& map) noexcept : map_(map) {}

  /// Closes the block unless allowed(). allowed() is called when the thread that may make the block allowed
  /// can see it closed; that thread then opens it.
  template <class Allowed>
  void close(BlockId block, const Allowed& allowed) noexcept {
    const Locked locked(lock_);
    // seq_cst, with the load in open(): either open() sees the number, or allowed() sees what was done before
    // open().
    count_.fetch_add(1);
    if (allowed() || holds(block)) {
      count_.fetch_sub(1);
      return;
    }
    std::uint64_t& slot = slots_[oldest_];
    oldest_ = (oldest_ + 1) % slots_.size();
    if (slot != 0) protect(slot - 1, PROT_READ | PROT_WRITE), count_.fetch_sub(1);
    slot = raw(block) + 1;
    protect(raw(block), PROT_NONE);
  }

  /// Called after the blocks of the run are allowed, or where the access is to be tried. True: one of them
  /// was closed.
  bool open(BlockRange run) noexcept {
    if (count_.load() == 0) [[likely]]
      return false;  // seq_cst: see close()
    const Locked locked(lock_);
    bool any = false;
    for (std::uint64_t& slot : slots_) {
      if (slot == 0 || slot - 1 - raw(run.first) >= run.count) continue;
      protect(slot - 1, PROT_READ | PROT_WRITE);
      slot = 0;
      count_.fetch_sub(1);
      any = true;
    }
    return any;
  }

 private:
  class Locked {
   public:
    explicit Locked(std::atomic_flag& flag) noexcept : flag_(flag) {
      // acquire, release: the slots as the last holder left them.
      while (flag_.test_and_set(std::memory_order_acquire)) ::sched_yield();
    }
    ~Locked() { flag_.clear(std::memory_order_release); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    std::atomic_flag& flag_;
  };

  [[nodiscard]] bool holds(BlockId block) const noexcept {
    for (const std::uint64_t slot : slots_)
      if (slot == raw(block) + 1) return true;
    return false;
  }
  void protect(std::uint64_t block, int protection) const noexcept {
    KASANE_CHECK(::mprotect(map_.address(block * kBlockBytes), kBlockBytes, protection) == 0,
                 "the kernel allows no more mappings: raise vm.max_map_count");
  }

  const AddressMap& map_;  ///< the engine's
  std::atomic_flag lock_;
  std::atomic<std::uint32_t> count_{0};
  std::array<std::uint64_t, 64> slots_{};  ///< block + 1; 0: none
  std::size_t oldest_ = 0;
};

}  // namespace kasane::mem
