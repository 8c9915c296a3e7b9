// SPDX-License-Identifier: Apache-2.0
// Where mutexes, condition variables, barriers, semaphores and latches live: 64-byte records in the threads
// region of the rank that made them, outside V (rule 7). The user's object holds the record's name and
// nothing else, and that never changes. So the object may lie anywhere, in V or on a stack, and any rank may
// use it.
//
// Thread safety: take and give_back from any thread of any rank, lock-free. Invariants: a record is taken or
// free; a taken one starts zeroed; the free list's head carries a tag that grows with every change, so that a
// compare-swap notices reuse.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "ult/controls.h"
#include "ult/edges.h"
#include "ult/layout.h"
#include "ult/pool.h"
#include "ult/sync_record_step.h"
#include "ult/timed_wait.h"

namespace kasane::ult {

/// A record's name in the whole job: rank 32 | index 32.
struct SyncHandle {
  std::uint64_t value = 0;

  [[nodiscard]] static constexpr SyncHandle of(Rank rank, std::uint32_t index) noexcept {
    return {std::uint64_t{raw(rank)} << 32 | index};
  }
  [[nodiscard]] constexpr Rank rank() const noexcept { return Rank{static_cast<std::uint32_t>(value >> 32)}; }
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(value); }
  friend constexpr bool operator==(SyncHandle, SyncHandle) = default;
};

/// What a record is for.
enum class SyncKind : std::uint8_t {
  mutex,
  condition_variable,
  barrier,
  shared_mutex,
  semaphore,
  latch,
  once
};

/// The pool of the calling thread. A check failure naming `what` where no user-level thread runs (main, a
/// std::thread).
[[nodiscard]] Pool& pool_of_thread(const char* what);

/// The records of a job as one rank sees them. Cheap to make; holds nothing.
class SyncRecords {
 public:
  explicit SyncRecords(Pool& pool) noexcept;

  /// A zeroed record of this rank. Throws std::runtime_error when all kSyncRecords are in use.
  [[nodiscard]] SyncHandle take();
  /// From any rank; the record must be unused.
  void give_back(SyncHandle);
  /// The object of that kind at `address` was constructed with the record, and is not destroyed yet.
  void note_object(SyncHandle, SyncKind, const void* address) const;
  /// The kind of the object that was constructed at `address` with the record and never destroyed; empty if
  /// there is none. The handle may be any value, such as what uninitialised memory holds.
  [[nodiscard]] std::optional<SyncKind> object_at(SyncHandle, const void* address) const;

  [[nodiscard]] Word load(SyncHandle, SyncField) const;
  void store(SyncHandle, SyncField, Word) const;
  /// Returns the old value.
  Word compare_swap(SyncHandle, SyncField, Word expected, Word desired) const;

  /// The edge of rule 1, for a thread that has just come to hold the mutex in the record: nothing if the last
  /// holder was on this rank. Returns what Edges::cross() does; 1 if there was none.
  std::uint32_t cross_from_last(SyncHandle) const;

  /// The thread's wait with a deadline, and one event of it; refused events change nothing.
  [[nodiscard]] TimedWord timed(SlotId) const;
  TimedStep advance(SlotId, TimedEvent, std::uint64_t round = 0) const;
  /// Its wait is over. True: it goes on now, and the caller makes it ready; false: its timer makes it ready.
  [[nodiscard]] bool settle(SlotId, TimedOutcome) const;

  /// Performs a step other than requeue and done; see sync_record_step.h. A settled thread is woken.
  Word perform(SyncHandle, const SyncStep&) const;
  /// As run(), of a record whose words the CPU's atomics reach: loads, stores and compare-swaps of its own
  /// fields are carried out in place.
  template <class Outcome, class Machine>
  static Outcome run_near(Pool& pool, SyncHandle record, SyncRecord& near, Machine machine) {
    SyncStep s = machine.next(0);
    while (s.kind != SyncStep::Kind::done) {
      Word* const word = s.field == SyncField::word   ? &near.word
                         : s.field == SyncField::fifo ? &near.fifo
                         : s.field == SyncField::last ? &near.last
                                                      : nullptr;
      Word result = 0;
      // seq_cst, as Words are
      if (word != nullptr && s.kind == SyncStep::Kind::load) {
        result = atomic(*word).load();
      } else if (word != nullptr && s.kind == SyncStep::Kind::store) {
        atomic(*word).store(s.value);
      } else if (word != nullptr && s.kind == SyncStep::Kind::compare_swap) {
        result = s.expected;
        atomic(*word).compare_exchange_strong(result, s.value);
      } else {
        result = SyncRecords(pool).perform(record, s);
      }
      s = machine.next(result);
    }
    return static_cast<Outcome>(s.value);
  }
  /// Runs a protocol that needs no requeue to its end. Returns its outcome.
  template <class Outcome, class Machine>
  Outcome run(SyncHandle record, Machine machine) const {
    SyncStep s = machine.next(0);
    while (s.kind != SyncStep::Kind::done) s = machine.next(perform(record, s));
    return static_cast<Outcome>(s.value);
  }

 private:
  [[nodiscard]] std::uint64_t offset(SyncHandle, SyncField) const noexcept;
  [[nodiscard]] std::uint32_t take_free();
  [[nodiscard]] std::uint32_t take_new();

  Pool& pool_;
  Words& words_;
  Layout layout_;
};

}  // namespace kasane::ult
