// SPDX-License-Identifier: Apache-2.0
// Futexes between processes (never the private kind: the words lie in shared memory). Async-signal-safe:
// errno is kept, because a fault handler may run between user code's system call and its look at errno.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

namespace kasane {

/// Sleeps while word == expected, until woken, interrupted by a signal, or timeout_ns passed (< 0: no limit).
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t timeout_ns) noexcept {
  const int saved = errno;
  const timespec limit{.tv_sec = timeout_ns / 1'000'000'000, .tv_nsec = timeout_ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
  errno = saved;
}

inline void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  const int saved = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = saved;
}

}  // namespace kasane
