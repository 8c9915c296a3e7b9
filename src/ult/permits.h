// SPDX-License-Identifier: Apache-2.0
// Takes and gives the permits of a record (permits_record.h) for the calling thread, without any fence. What semaphore.cpp and shared_mutex.cpp share.
// Thread safety: on any thread of any rank.
#pragma once

#include <cstdint>

#include "ult/permits_record.h"
#include "ult/sync_record.h"

namespace kasane::ult {

/// Waits until it has them. The thread may be on another rank afterwards.
void take_permits(SyncHandle, std::uint32_t amount, const char* what);
[[nodiscard]] bool try_take_permits(SyncHandle, std::uint32_t amount, const char* what);
/// False: there would be more than `most`.
[[nodiscard]] bool give_permits(SyncHandle, std::uint32_t amount, const char* what, std::uint32_t most = kMostPermits);

}  // namespace kasane::ult
