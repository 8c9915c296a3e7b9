// SPDX-License-Identifier: Apache-2.0
// Takes and gives the permits of a record (semaphore_record.h) for the calling thread, without any fence.
// Shared by semaphore.cpp and shared_mutex.cpp.
// Thread safety: on any thread of any rank.
#pragma once

#include <cstdint>

#include "ult/sync/semaphore_record.h"
#include "ult/sync_record.h"

namespace kasane::ult {

/// Waits until it has them. The thread may be on another rank afterwards. object: the program's, for reports.
void acquire_permits(SyncHandle, std::uint32_t amount, const char* what, const void* object);
/// As acquire_permits, but no longer than to a time of the job's clock (Pool::clock_ns). False: that has
/// passed, and it has none.
[[nodiscard]] bool acquire_permits_until(SyncHandle, std::uint32_t amount, std::uint64_t deadline_ns,
                                         const char* what, const void* object);
[[nodiscard]] bool try_acquire_permits(SyncHandle, std::uint32_t amount, const char* what);
/// False: there would be more than `most`.
[[nodiscard]] bool release_permits(SyncHandle, std::uint32_t amount, const char* what,
                                   std::uint32_t most = kMaxPermits);

}  // namespace kasane::ult
