// SPDX-License-Identifier: Apache-2.0
// Sizes that sanitizers can bear: they run everything many times slower, and look at other things than how
// many random histories there are.
#pragma once

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized =
    true;  // which knows at most 8128 fibers at a time, each of one process's pool
#else
inline constexpr bool kThreadSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// An eighth of `all` under a sanitizer, rounded up.
constexpr unsigned fewer_if_sanitized(unsigned all) { return kSanitized ? (all + 7) / 8 : all; }
