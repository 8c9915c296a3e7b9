// SPDX-License-Identifier: Apache-2.0
// The names of this process and its threads in messages: "rank 2 worker 1". The runtime sets them once; logs
// and failed checks print them. A process-wide name, not state of a rank: several ranks simulated in one
// process share it.
// Thread safety: any. Everything here is async-signal-safe.
#pragma once

#include <cstddef>

#include "base/ids.h"

namespace kasane {

/// This process runs rank. Before, messages name the process by its pid only.
void set_process_rank(Rank rank) noexcept;
[[nodiscard]] Rank process_rank() noexcept;  ///< kNoRank until set

/// The calling OS thread's role, such as "worker 1" or "service"; copied, cut to 15 characters.
void set_thread_role(const char* role) noexcept;

/// Writes "rank 2 worker 1", "pid 4711" … to text, cut to bytes - 1 characters, zero-terminated; returns its
/// length.
std::size_t describe_self(char* text, std::size_t bytes) noexcept;

}  // namespace kasane
