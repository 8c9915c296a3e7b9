// SPDX-License-Identifier: Apache-2.0
// The frames of a user-level thread that is suspended, and what it waits for, read from a copy of its stack:
// so the thread may be resumed meanwhile (its frames are then wrong or missing, and no more), and a stack
// that is not here is noticed instead of faulting.
//
// Thread safety: an object belongs to one OS thread, which is no worker. No malloc, no lock.
#pragma once

#include <cstddef>

#include "runtime/report/crash_stack.h"
#include "ult/waits_for.h"

namespace kasane::runtime {

class SuspendedStack {
 public:
  /// largest: bytes of a call stack.
  explicit SuspendedStack(std::size_t largest) noexcept;
  SuspendedStack(const SuspendedStack&) = delete;
  SuspendedStack& operator=(const SuspendedStack&) = delete;
  ~SuspendedStack();

  /// Copies a stack, whose saved stack pointer is sp. False: it is not here, or no thread's.
  [[nodiscard]] bool copy(ult::Word sp, ult::Word stack_end) noexcept;
  /// What the thread waits for. False: it can run.
  [[nodiscard]] bool waits_for(ult::WaitsFor& out) const noexcept;
  /// Its frames, the innermost first; those of the runtime at both ends are left out. Spoils the copy.
  void unwind(Backtrace& out) noexcept;

 private:
  static constexpr std::size_t kBelow = 64 * 1024;  ///< for the unwinder's own frames

  static constexpr std::size_t kAlignment = 4096;  ///< the copy has the stack's own, as code relies on it

  std::byte* map_ = nullptr;
  std::byte* copy_ = nullptr;
  std::size_t map_bytes_;
  ult::Word sp_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace kasane::runtime
