// SPDX-License-Identifier: Apache-2.0
// The mutexes of libc's (std::mutex and its like outside of the program's variables and global memory) that
// user-level threads hold: lock_calls.cpp counts them per OS thread. One that is held over a fork or a join
// is a bug that shows itself rarely: the thread may continue on another OS thread, or on another rank, which
// does not own the mutex (rule 14). Builds with assertions (KASANE_ASSERT_LEVEL ≥ 1) report it. kasane::mutex
// may be held, and so may any mutex of the program's (lock_calls.h). A sanitizer has its own
// pthread_mutex_lock, so nothing is counted there.
// Thread safety: any thread.
#pragma once

#include "base/assert.h"

namespace kasane::runtime {

/// The calling thread has locked (1) or unlocked (-1) one. OS threads outside of user-level threads do not
/// count.
void count_held(int change) noexcept;

/// Whether the calling user-level thread holds one.
[[nodiscard]] bool holds_mutex_of_libc() noexcept;

/// Ends the program with a message if it does. where: "fork" or "join".
void refuse_held_mutex(const char* where);

// always_inline: a program may be built with assertions and the library without.
[[gnu::always_inline]] inline void check_no_mutex_held([[maybe_unused]] const char* where) {
#if KASANE_ASSERT_LEVEL >= 1
  refuse_held_mutex(where);
#endif
}

}  // namespace kasane::runtime
