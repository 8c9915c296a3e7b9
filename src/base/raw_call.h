// SPDX-License-Identifier: Apache-2.0
// A system call without libc: for code that runs before or beside it, and for functions that hide libc's
// (x86-64).
// Thread safety: any thread; async-signal-safe.
#pragma once

#include <cerrno>

namespace kasane {

/// The kernel's answer: -errno for an error. always_inline: a caller may have no frame to return to.
[[gnu::always_inline]] inline long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                            long e = 0, long f = 0) noexcept {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

[[gnu::always_inline]] inline bool call_failed(long answer) noexcept { return answer < 0 && answer > -4096; }

/// The answer as libc's functions have it, with errno.
inline long as_libc(long answer) noexcept {
  if (!call_failed(answer)) return answer;
  errno = static_cast<int>(-answer);
  return -1;
}

}  // namespace kasane
