// SPDX-License-Identifier: Apache-2.0
// A few blocks of V that a mapping without access keeps everybody out of: what a thread that sleeps in the kernel may not have. It wakes, tries again, and gets what an access to no memory
// gets: SIGSEGV in place with the right address, registers and error code, or, in a system call, EFAULT. (A signal sent to it would not do: it ends no wait in a system call, and tells no
// kind of access.)
//
// Only so many are closed at once, since each splits a mapping; the oldest is opened for a new one. Who tries that then faults anew, and is told anew.
//
// Thread safety: any thread; async-signal-safe. The lock is held for two system calls, never by who touches V.
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
  explicit ClosedBlocks(std::byte* v) noexcept : v_(v) {}

  /// Unless allowed(), which is asked after whoever makes the block allowed can know: then he opens it.
  template <class Allowed>
  void close(BlockId block, const Allowed& allowed) noexcept {
    const Locked locked(lock_);
    // seq_cst, with the load in open(): either that sees the number, or allowed() what was done before open().
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

  /// After the blocks of the run are allowed, or where that is to be tried. True: one of them was closed.
  bool open(BlockRange run) noexcept {
    if (count_.load() == 0) [[likely]] return false;   // seq_cst: see close()
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
      while (flag_.test_and_set(std::memory_order_acquire)) ::sched_yield();   // acquire, release: the slots as the last holder left them
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
    KASANE_CHECK(::mprotect(v_ + block * kBlockBytes, kBlockBytes, protection) == 0, "the kernel allows no more mappings: raise vm.max_map_count");
  }

  std::byte* const v_;
  std::atomic_flag lock_;
  std::atomic<std::uint32_t> count_{0};
  std::array<std::uint64_t, 64> slots_{};   ///< block + 1; 0: none
  std::size_t oldest_ = 0;
};

}  // namespace kasane::mem
