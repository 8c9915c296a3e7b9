// SPDX-License-Identifier: Apache-2.0
// A std::mutex held over a fork or a join is a bug that shows itself rarely: the thread may continue on
// another OS thread, or on another rank, which does not own the mutex (rule 14). In builds with assertions
// (KASANE_ASSERT_LEVEL ≥ 1) this file defines pthread_mutex_lock, trylock and unlock for the whole program,
// counts per OS thread the mutexes that user-level threads hold, and reports those that are held over a fork
// or join. kasane::mutex may be held, and so may any mutex of the program's (lock_calls.h).
// Thread safety: any thread.
#pragma once

#include "base/assert.h"

namespace kasane::runtime {

/// Ends the program with a message if the calling user-level thread holds a pthread or std::mutex. where:
/// "fork" or "join". Nothing in release builds.
#if KASANE_ASSERT_LEVEL >= 1
void check_no_mutex_held(const char* where);
#else
inline void check_no_mutex_held(const char*) {}
#endif

/// Whether the calling user-level thread holds a mutex that is libc's, not the program's. With a sanitizer it
/// is not known: false. Without assertions lock_calls.cpp counts.
[[nodiscard]] bool holds_mutex_of_libc() noexcept;

}  // namespace kasane::runtime
