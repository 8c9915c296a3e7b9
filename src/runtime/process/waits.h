// SPDX-License-Identifier: Apache-2.0
// How a user-level thread makes a system call that may wait, without keeping its worker:
//
//   does the call have to wait? ─ no ──► it is made on the worker, as ever
//     │ yes, or perhaps
//     └─► an OS thread of the pool's makes it (Pool::call_outside); the worker runs other threads, or sleeps
//
// So the kernel does the waiting, and what a call means is the kernel's. The thread stays on its rank, which
// has the descriptor, and on its worker. functions: runtime/process/waiting_calls.cpp.
//
// Thread safety: any user-level thread. "The kernel's answer": -errno for an error.
#pragma once

#include <sys/types.h>

#include "traps/caught_calls.h"

namespace kasane::runtime {

/// A call from `caller`, code of the program or of its libraries, by a user-level thread in user code, on its
/// own stack (not in a signal handler), that holds no mutex of libc's: another thread of its worker that
/// wanted it would keep the worker.
[[nodiscard]] bool waits_without_worker(const void* caller) noexcept;

/// Before a call of such a thread is made on its worker: the memory that it transfers from or to, at most
/// CallMemory::room_of_calls(), comes while the worker runs other threads. The thread holds no turn.
void bring_memory_of(const traps::CaughtCall&) noexcept;

/// The call while the worker runs other threads; the kernel's answer. Made on the worker where the system has
/// no OS thread for it. name: a literal, for reports. restarts: only handlers without SA_RESTART interrupt
/// it.
[[nodiscard]] long wait_in(const char* name, const traps::CaughtCall&, bool restarts = true) noexcept;

/// A call for input (output of few bytes) on the descriptor that is its first argument; the kernel's answer.
[[nodiscard]] long wait_for_input(const char* name, const traps::CaughtCall&) noexcept;
[[nodiscard]] long wait_for_output(const char* name, const traps::CaughtCall&) noexcept;

/// S_IFMT of its mode; 0: it is not open, or has none.
[[nodiscard]] mode_t kind_of(int descriptor) noexcept;
[[nodiscard]] bool is_non_blocking(int descriptor) noexcept;
/// Bytes that can be read now.
[[nodiscard]] long readable_bytes(int descriptor) noexcept;
/// If the descriptor is of another rank, the calling thread goes there.
void go_to_descriptor(int descriptor) noexcept;

}  // namespace kasane::runtime
