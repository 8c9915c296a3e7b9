// SPDX-License-Identifier: Apache-2.0
// Monotonic time, in nanoseconds. Async-signal-safe.
#pragma once

#include <time.h>

#include <cstdint>

namespace kasane {

[[nodiscard]] inline std::uint64_t now_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

/// Tells the core that the calling thread spins.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace kasane
