// SPDX-License-Identifier: Apache-2.0
// An alternate signal stack for the calling OS thread. Fault handlers run there, since the fault may be of
// the running stack.
//
//   [ guard page | 256 KiB, grows down ]   a fault handler communicates, so the network library may run on it
//
// Thread safety: create() and the destructor run on the same OS thread, not in a signal handler; the object
// may be moved between scopes.
// Invariant: while the object lives, it is the thread's alternate stack; afterwards the thread has the one
// from before (a sanitizer's, say).
#pragma once

#include <signal.h>

#include <cstddef>

#include "base/result.h"

namespace kasane::mem {

class AltStack {
 public:
  static constexpr std::size_t kBytes = 256 * 1024;

  static Result<AltStack> create(std::size_t bytes = kBytes);
  AltStack(AltStack&&) noexcept;
  AltStack& operator=(AltStack&&) = delete;
  ~AltStack();

 private:
  AltStack() = default;
  std::byte* map_ = nullptr;  // the guard page, then the stack
  std::size_t bytes_ = 0;     // of the stack
  stack_t previous_{};
};

}  // namespace kasane::mem
