// SPDX-License-Identifier: Apache-2.0
// What the words of records say of all kinds of objects alike. Pure.
#pragma once

#include "ult/sync/barrier_record.h"
#include "ult/sync/latch_record.h"
#include "ult/sync/semaphore_record.h"
#include "ult/sync_record.h"

namespace kasane::ult {

/// Whether no thread holds the object, waits for it or changes it, as its record's word says.
[[nodiscard]] constexpr bool is_idle(SyncKind kind, Word word) noexcept {
  switch (kind) {
    case SyncKind::mutex:
    case SyncKind::once:
    case SyncKind::condition_variable: return word == 0;
    case SyncKind::barrier: return BarrierWord::unpack(word).newest == kNoSlot;
    case SyncKind::latch: return LatchWord::unpack(word).newest == kNoSlot;
    case SyncKind::semaphore: return !SemaphoreWord::unpack(word).waited_for();
    case SyncKind::shared_mutex: return word == SemaphoreWord{kNoSlot, kMaxPermits}.pack();
  }
  return false;
}

}  // namespace kasane::ult
