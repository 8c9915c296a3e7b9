// SPDX-License-Identifier: Apache-2.0
// An alternate signal stack for the calling OS thread. Fault handlers run there, since the fault may be of
// the running stack.
//
//   [ guard page | 256 KiB, grows down ]   a fault handler communicates, so the network library may run on it
//
// The program's own sigaltstack() is only remembered (of_program): its stack may be too small for a handler
// of ours, or memory of the space, which the kernel does not find where it is absent. Handlers of the
// program's run on ours, too. A thread without an AltStack has what it asks the kernel for.
//
// Thread safety: create() and the destructor run on the same OS thread, not in a signal handler; the object
// may be moved between scopes. of_program(): async-signal-safe.
// Invariant: while the object lives, it is the thread's alternate stack; afterwards the thread has the one
// from before (a sanitizer's, say).
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"

namespace kasane::traps {

class AltStack {
 public:
  static constexpr std::size_t kBytes = 256 * 1024;

  static Result<AltStack> create(std::size_t bytes = kBytes);
  AltStack(AltStack&&) noexcept;
  AltStack& operator=(AltStack&&) = delete;
  ~AltStack();

  /// sigaltstack() of the program, whose stack pointer is sp: 0 or -errno. Nothing: the calling thread has no
  /// AltStack, and the call is the kernel's.
  static std::optional<int> of_program(const stack_t* wanted, stack_t* old, std::uintptr_t sp) noexcept;

  struct OfThread {
    std::byte* map = nullptr;  ///< the guard page, then the stack; null: the thread has none of ours
    std::size_t bytes = 0;     ///< of the stack
  };

 private:
  AltStack() = default;
  OfThread mine_, outer_;
  stack_t previous_{};
};

}  // namespace kasane::traps
