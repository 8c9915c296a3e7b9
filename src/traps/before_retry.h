// SPDX-License-Identifier: Apache-2.0
// Lets a thread whose access has faulted wait in ordinary code, on its own stack, before the access is tried
// again.
//
//   access ─▶ fault ─▶ handler, on the alternate stack: a range's function calls call_before_retry()
//     ▲                  ─▶ the handler returns to another instruction ─▶ below the thread's red zone:
//     └───────────────── all registers, flags, vector registers, x87 and errno ◀── function(argument)
//
// The interrupted code finds nothing changed, whatever its instruction was: it runs again as a whole, or, of
// a repeated one, from the registers that the fault has left.
//
// Thread safety: for the calling OS thread. Async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::traps {

/// Runs on the interrupted thread's stack; the OS thread is the same at its end.
using BeforeRetry = void (*)(void* context, std::uint64_t argument) noexcept;

/// The instruction and the stack pointer of the access whose fault the calling thread serves.
struct FaultingCode {
  std::uintptr_t instruction = 0, stack_pointer = 0;
};
[[nodiscard]] FaultingCode faulting_code() noexcept;

/// So many bytes of the thread's stack are used by it, without what function() uses.
inline constexpr std::size_t kBeforeRetryBytes = 3072;

/// In a range's function, which then answers true: function(context, argument) runs before the access runs
/// again. False: the thread has state that is not kept (matrix tiles).
[[nodiscard]] bool call_before_retry(BeforeRetry function, void* context, std::uint64_t argument) noexcept;

}  // namespace kasane::traps
