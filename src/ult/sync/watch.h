// SPDX-License-Identifier: Apache-2.0
// Waiting for a word of the space to change, for the waits of atomics: threads on any ranks, on any word,
// without a record of its own (watch_record.h).
//
//   a waiter       prepare() ─► read the word: as before? ─► wait(epoch): suspended, unless a notify() came
//                  since prepare(); then from the start
//   a changer      change the word ─► notify()
//
// The list of a word is one of kWatchLists of the rank that its 64 KiB fall to; list and key together name
// the word exactly.
//
// No change is lost: reads and changes of the word, and prepare() and notify(), are each complete at the rank
// of the datum when they return, in one order for all ranks (Words). Either the read sees the change; or the
// read came before the change, then prepare() came before notify(), which finds the waiter.
// An OS thread that is no worker waits in the list with a slot of its rank, and sleeps on a word of it. Whose
// deadline has passed is taken out of the list by a notification for it alone: by a timer of its rank
// (ult/timers.h), or by the OS thread itself.
//
// Consistency: none; the word's reads and changes have their own. Wake-ups without a change are possible.
// Thread safety: every call on any thread of any rank.
#pragma once

#include <cstdint>

#include "ult/sync_record.h"
#include "ult/timers.h"

namespace kasane::ult {

class Watch {
 public:
  /// offset: of the word in the space, a multiple of 4. ranks: of the job. word: where it is, for reports.
  Watch(std::uint64_t offset, std::uint32_t ranks, const void* word = nullptr);

  /// On any OS thread, as notify. On a user-level thread it may have come from another rank since.
  [[nodiscard]] std::uint32_t prepare(Pool& here) const;
  [[nodiscard]] std::uint32_t prepare() const { return prepare(pool_of_thread("atomic::wait")); }
  /// On a user-level thread. Returns after a notify() that came since prepare() returned epoch, or after
  /// until_ns, a time of now_ns(); perhaps on another rank. call: in reports.
  void wait(std::uint32_t epoch, const char* call = "atomic::wait",
            std::uint64_t until_ns = Timers::kNever) const;
  /// As wait(), for any other OS thread of the program, which sleeps. May return at once.
  void sleep(Pool& here, std::uint32_t epoch, std::uint64_t until_ns = Timers::kNever) const;
  /// On any OS thread. here: the pool of the calling rank.
  void notify_one(Pool& here) const { notify(here, /*all=*/false); }
  void notify_all(Pool& here) const { notify(here, /*all=*/true); }

 private:
  void notify(Pool& here, bool all) const;
  SyncHandle list_;
  std::uint32_t key_;
  const void* word_;
};

}  // namespace kasane::ult
