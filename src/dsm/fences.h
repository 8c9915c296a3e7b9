// SPDX-License-Identifier: Apache-2.0
// Releases and acquires of the rank: sends changes and notices at a release, drops or refreshes copies at an
// acquire (BACKER's reconcile and flush; Endo's thesis §6.2). Design: docs/design/dsm.md.
//
// Thread safety: every call from any thread, each with a ThreadContext of its own; also inside a fault
// handler. A call holds nothing but busy bits while it waits.
// Consistency: release_all makes all earlier stores of all threads of this rank visible to every rank that
// acquires later. acquire_noticed makes visible what was released by the ranks whose notices have arrived
// here; acquire_all makes all that was released visible.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/notes.h"
#include "base/time_spent.h"
#include "dsm/blocks.h"
#include "dsm/fetches.h"
#include "dsm/frames.h"
#include "dsm/parts.h"
#include "dsm/rewritten.h"
#include "dsm/rounds.h"
#include "gas/mover.h"

namespace kasane::dsm {

class Fences {
 public:
  /// Sets kReleaseHandler and kChangesHandler.
  Fences(Blocks&, const Frames&, Fetches&, gas::Mover&);

  // Account: whose time the fences below are.
  void release_all(ThreadContext&, Account = Account::fence_others);
  /// The same, if no more than so many blocks have changed: a number since which this rank has released.
  /// 0: nothing was done.
  std::uint32_t release_little(ThreadContext&, std::uint32_t blocks, Account);
  /// The number of the last release that has begun. A thread that reads it after its stores and a full fence
  /// knows that they are released when a release with a higher number has ended.
  [[nodiscard]] const std::atomic<std::uint64_t>& releases_begun() const noexcept {
    return release_rounds_.began();
  }
  /// Drops the blocks for which notices have arrived: all that was released before by the ranks that this
  /// thread's edges come from.
  void acquire_noticed(ThreadContext&, Account = Account::fence_others);
  /// Drops all that is cached. Afterwards also direct puts of other ranks are visible that were not released
  /// yet.
  void acquire_all(ThreadContext&, Account = Account::fence_others);
  /// Number of acquires so far.
  [[nodiscard]] std::uint64_t acquires() const noexcept { return acquires_.load(); }

  /// Asks rank `source` to release and waits for it. Returns at once if that rank has no changes, or has
  /// released since the number `since` was read there (its lower bits; 0: none was). Returns how many
  /// releases have ended there since; 0: it was asked for one.
  std::uint32_t ask_release(ThreadContext&, Rank source, Account = Account::fence_others,
                            std::uint32_t since = 0);
  /// Called by the service thread: releases for the ranks that have asked. True if there was something to do.
  bool serve(ThreadContext&);
  /// Called by a worker between two threads' steps: runs handlers of messages that have arrived, and releases
  /// for the ranks that have asked, so that the service thread need not be woken.
  void answer(ThreadContext&);
  /// Has another rank asked for a release? Cheap; the service thread calls it before it sleeps.
  [[nodiscard]] bool asked() const noexcept { return asked_.any(); }

  /// The step of one block, waiting if another thread has claimed it. counters: null: not counted.
  void fence(comm::Blocking&, Counters*, BlockId, BlockEvent);
  /// Sends changes to their owners without a release, so that their blocks can be dropped.
  void clean(comm::Blocking&);

  // ---- atomics of the program, executed at the owner (bytes within one block; words.cpp) ----
  /// Called before: what this rank has stored to these bytes has arrived at their owner afterwards.
  void send_bytes(ThreadContext&, std::uint64_t offset, std::size_t bytes);
  /// Called after the owner's bytes were changed for this rank: its copy of them is as new.
  void renew_bytes(ThreadContext&, std::uint64_t offset, std::size_t bytes);

 private:
  friend class Fence;

  void flush_changed(ThreadContext&);
  gas::Sharing::Inspection inspect(PageId, bool watch) noexcept;
  void drop_cached(ThreadContext&);
  void drop_noticed(ThreadContext&);
  [[nodiscard]] bool has_copies_beside(PageId, gas::PartMask) const noexcept;
  template <class F>
  void for_each_cached(PageId, gas::PartMask, const F&) const;
  static void on_release(void* self, const comm::Message&) noexcept;
  static void on_changes(void* self, const comm::Message&) noexcept;

  Blocks& blocks_;
  const Frames& frames_;
  Fetches& fetches_;
  gas::Mover& mover_;
  const Parts& p_ = blocks_.parts();
  const mem::Pages& pages_ = p_.pages();
  std::atomic<std::uint64_t> acquires_{0};
  Rewritten rewritten_{p_.releases_until_open};
  Rounds release_rounds_, acquire_rounds_, notice_rounds_;
  Notes<comm::ReplyToken, 4096> asked_;      ///< requests for a release
  std::atomic<std::uint32_t> answering_{0};  ///< threads that run handlers and will call serve() afterwards
};

}  // namespace kasane::dsm
