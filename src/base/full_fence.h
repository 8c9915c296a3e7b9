// SPDX-License-Identifier: Apache-2.0
// A fence of the CPU. By another name than the standard's: GCC warns that the thread sanitizer does not model
// it.
// Thread safety: any thread.
#pragma once

namespace kasane {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
/// What was stored before is visible to all threads and ranks before anything is loaded after.
inline void full_fence() noexcept { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace kasane
