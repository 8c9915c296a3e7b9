// SPDX-License-Identifier: Apache-2.0
// Waiting for a word of the program to change, between the ranks of a job (futex_calls.cpp says how).
// Thread safety: any thread of the program; a user-level thread is suspended, and may go on elsewhere.
#pragma once

#include <time.h>

#include <array>
#include <cstdint>

namespace kasane::runtime {

struct Deadline {
  clockid_t clock;
  timespec time;
};

/// Returns when the word is not `expected`, or perhaps after a wake_word(): 0; or after the deadline, which
/// may be any time: ETIMEDOUT; EINVAL: it is no time. call: in reports. Keeps errno.
int wait_for_word(void* word, std::uint32_t expected, const Deadline* deadline, const char* call) noexcept;
void wake_word(void* word, bool all) noexcept;

/// wait_for_word() in two steps. The second one, but for a deadline that has come, does not look at the word,
/// which may be gone: it returns at once where there was a wake_word() since the first one. Both on one OS
/// thread, or on one user-level thread.
struct PreparedWait {
  std::uint32_t epoch, seen;
};
[[nodiscard]] PreparedWait prepare_wait(void* word) noexcept;
int wait_prepared(void* word, const PreparedWait&, const Deadline*, const char* call) noexcept;

/// Whether `caller`, which calls syscall(SYS_futex), is the program, or the word is.
[[nodiscard]] bool is_futex_of_program(const void* word, const void* caller) noexcept;
/// Such a call, with libc's convention for errors.
using FutexArguments = std::array<long, 6>;
long call_futex(const FutexArguments&) noexcept;

}  // namespace kasane::runtime
