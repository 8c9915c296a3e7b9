// SPDX-License-Identifier: Apache-2.0
// Futexes: of words in shared memory, or of one process. Async-signal-safe: errno is kept, because a fault
// handler may run between user code's system call and its look at errno.
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

/// Who sleeps on a word and wakes.
enum class FutexOf : int { host = 0, process = FUTEX_PRIVATE_FLAG };

/// Sleeps while word == expected, until woken, interrupted by a signal, or timeout_ns passed (< 0: no limit).
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t timeout_ns, FutexOf of = FutexOf::host) noexcept {
  const int saved = errno;
  const timespec limit{.tv_sec = timeout_ns / 1'000'000'000, .tv_nsec = timeout_ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT | static_cast<int>(of), expected, timeout_ns < 0 ? nullptr : &limit,
            nullptr, 0);
  errno = saved;
}

inline void futex_wake(const std::atomic<std::uint32_t>& word, int most, FutexOf of) noexcept {
  const int saved = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE | static_cast<int>(of), most, nullptr, nullptr, 0);
  errno = saved;
}
inline void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexOf of = FutexOf::host) noexcept {
  futex_wake(word, INT_MAX, of);
}

}  // namespace kasane
