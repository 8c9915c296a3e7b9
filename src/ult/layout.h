// SPDX-License-Identifier: Apache-2.0
// The threads region of a rank: every word of the scheduler that another rank may have to read or change, and
// nothing else. It lies in registered memory outside V (docs/design/sched.md, "Memory"). All ranks pass the
// same two numbers, so each can compute where a word of any rank is:
//
//   0      ready list head     (its own cache line)       see Link; times that the list was taken
//   64     returned list head  (own line)
//   128    idle-ranks word     (own line)                 a bit a rank, and kRequestPending
//   192    sync records: free list head, number ever used (own line)
//   256    thread-local keys: number created, destructors (rank 0's are the job's; ult/locals.h)
//   320    hungry workers      (own line)                 of the rank: searching or asleep
//   384    deques              one a worker: base/deque.h
//          lazy threads        LazyWorker[workers]: ult/lazy.h
//          slot controls       SlotControl[slots_per_rank]
//          sync records        SyncRecord[kSyncRecords]   the tail stays unpopulated until used
//          watch lists         SyncRecord[kWatchLists]    as records from kSyncRecords on; unpopulated, too
//
// Thread safety: pure arithmetic. Invariant: the region starts zeroed, and zero is a valid state of every
// word (empty list, empty deque, free slot, free mutex).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/deque.h"
#include "base/ids.h"

namespace kasane::ult {

/// A word of a threads region. Shared ones are accessed through std::atomic_ref or Words, never plainly.
using Word = std::uint64_t;

/// A slot in a list word: the slot id + 1; 0 ends the list.
[[nodiscard]] constexpr Word link_to(SlotId slot) noexcept {
  return slot == kNoSlot ? 0 : Word{raw(slot)} + 1;
}
[[nodiscard]] constexpr SlotId slot_of_link(Word link) noexcept {
  return link == 0 ? kNoSlot : SlotId{static_cast<std::uint32_t>(link - 1)};
}

/// Bits of the idle-ranks word: the ranks', and one that says "look at your messages".
inline constexpr std::uint32_t kIdleRankBits = 63;
inline constexpr Word kRequestPending = Word{1} << kIdleRankBits;

inline constexpr std::uint32_t kLocalKeys = 4;  ///< thread_local-like values a thread has (ult/locals.h)

/// One thread, from its allocation to its join. Lives at the slot's birth rank wherever the thread runs. Its
/// call stack, of the same rank, lives only until the thread has ended.
/// Fork and join touch the first cache line; only blocked, moved or failing threads need the second.
struct alignas(128) SlotControl {
  Word sp;    ///< saved stack pointer while the thread does not run; first (context_x86_64.S)
  Word join;  ///< the join record: ult/join_record.h
  Word next;  ///< Link to the next slot while in one list (ready, returned, free, waiters)
  /// SlotFlags; changed only by the worker that runs, resumes, ends or frees the thread; of a free slot: 0,
  /// or moved
  Word flags;
  /// the thread's name (ThreadId): generation 32 | slot 32; the generation is odd, and grows when the slot is
  /// freed
  Word id;
  Word rank;       ///< the rank that runs the thread, or ran it last, or kOsThread; free: its birth rank
  Word exception;  ///< what it exited with: the pointer inside a std::exception_ptr, or 0
  Word stack_end;  ///< highest address of its stack, exclusive

  Word eh[2];  ///< its __cxa_eh_globals while it does not run (ult/exception_state.h)
  Word timed;  ///< the thread's wait with a deadline (ult/timed_wait.h)
  Word awake;  ///< of an OS thread that waits with this slot (kOsThread): 0 until it is woken
  Word locals[kLocalKeys];
};
static_assert(sizeof(SlotControl) == 128);
static_assert(offsetof(SlotControl, sp) == 0 && offsetof(SlotControl, eh) == 64);

/// In SlotControl::rank: no thread has the slot. An OS thread of the birth rank waits with it in a list
/// (ult/sync/watch.h), and sleeps on `awake`.
inline constexpr Word kOsThread = Word{1} << 32;

enum SlotFlags : Word {
  kSlotResumed = 1,         ///< was switched out at least once: it may not return into its parent
  kSlotExceptionState = 2,  ///< eh[] holds something
  /// exited on another rank: the birth rank must reclaim() its stack, which is the slot's until then
  kSlotMoved = 4,
  kSlotLocals = 8,      ///< locals[] holds something
  kSlotException = 16,  ///< exception holds something
  kSlotAbandoned = 32,  ///< given back by another rank before it ran: its stack is still the slot's
  /// only of stand-ins (ult/worker.h): the thread's control block is another rank's, or there is no thread
  kSlotElsewhere = 64,
  kSlotReturnsSlowly = 128,  ///< its parent is not to be returned into by the short way (pool.cpp)
};

/// A mutex, condition variable or barrier (ult/sync/mutex.h …), or a watch list (ult/sync/watch.h). Its
/// protocol defines what the words mean; next_free and object belong to the allocator.
struct alignas(64) SyncRecord {
  Word word;
  Word fifo;
  Word last;
  Word next_free;  ///< index + 1 of the next free record while this one is free
  Word data[3];
  Word object;  ///< kind + 1 8 | address 56 of the public object; 0: no such object
};
static_assert(sizeof(SyncRecord) == 64);

inline constexpr std::uint32_t kSyncRecords = 1u << 17;
/// How many lists a rank has of threads that wait for an atomic to change; they lie behind the records.
inline constexpr std::uint32_t kWatchLists = 1u << 13;

/// Where each word of a rank's threads region is. Equal arguments give equal layouts on every rank.
class Layout {
 public:
  constexpr Layout(std::uint32_t workers, std::uint32_t slots_per_rank) noexcept
      : workers_(workers), slots_(slots_per_rank), deque_entries_(entries_for(slots_per_rank)) {}

  [[nodiscard]] constexpr std::uint32_t workers() const noexcept { return workers_; }
  [[nodiscard]] constexpr std::uint32_t slots_per_rank() const noexcept { return slots_; }

  [[nodiscard]] static constexpr std::uint64_t ready_head() noexcept { return 0; }
  /// How often a worker of the rank has taken the ready list.
  [[nodiscard]] static constexpr std::uint64_t ready_taken() noexcept { return 8; }
  [[nodiscard]] static constexpr std::uint64_t returned_head() noexcept { return 64; }
  [[nodiscard]] static constexpr std::uint64_t idle_ranks() noexcept { return 128; }
  /// Free sync records: tag 32 | index + 1 32. The tag grows with each change, so that compare-swap sees
  /// reuse.
  [[nodiscard]] static constexpr std::uint64_t sync_free_head() noexcept { return 192; }
  /// Number of sync records ever taken; beyond the free list the next one is this one.
  [[nodiscard]] static constexpr std::uint64_t sync_used() noexcept { return 200; }
  /// Number of thread-local keys created, in rank 0's region; then the destructor of each.
  [[nodiscard]] static constexpr std::uint64_t local_keys() noexcept { return 256; }
  [[nodiscard]] static constexpr std::uint64_t local_destructor(std::uint32_t key) noexcept {
    return 264 + key * 8;
  }

  /// The number of the rank's workers that search or sleep: a hint for other ranks.
  [[nodiscard]] static constexpr std::uint64_t hungry_workers() noexcept { return 320; }

  // ---- the deque of a worker: a base/deque.h Deque of deque_entries() slot ids, which defines offsets
  // within it ----
  [[nodiscard]] constexpr std::uint32_t deque_entries() const noexcept { return deque_entries_; }
  [[nodiscard]] constexpr std::uint64_t deque(std::uint32_t worker) const noexcept {
    return kDeques + worker * deque_bytes();
  }
  [[nodiscard]] constexpr std::uint64_t deque_bytes() const noexcept {
    return Deque<>::bytes(deque_entries_);
  }

  /// What the worker keeps for lazy threads; its first word is `wanted` (ult/lazy.h).
  [[nodiscard]] constexpr std::uint64_t lazy(std::uint32_t worker) const noexcept {
    return kDeques + workers_ * deque_bytes() + worker * kLazyBytes;
  }
  static constexpr std::uint64_t kLazyBytes = 256;

  // ---- slots: SlotId = birth rank × slots_per_rank + index ----
  [[nodiscard]] constexpr Rank birth_rank(SlotId slot) const noexcept { return Rank{raw(slot) / slots_}; }
  [[nodiscard]] constexpr std::uint32_t slot_index(SlotId slot) const noexcept { return raw(slot) % slots_; }
  [[nodiscard]] constexpr SlotId slot_at(Rank birth, std::uint32_t index) const noexcept {
    return SlotId{raw(birth) * slots_ + index};
  }
  [[nodiscard]] constexpr std::uint64_t controls() const noexcept { return lazy(workers_); }
  /// Offset of the slot's control block in the region of its birth rank.
  [[nodiscard]] constexpr std::uint64_t control(SlotId slot) const noexcept {
    return controls() + std::uint64_t{slot_index(slot)} * sizeof(SlotControl);
  }
  /// Offset of one word of it: layout.word(slot, offsetof(SlotControl, join)).
  [[nodiscard]] constexpr std::uint64_t word(SlotId slot, std::size_t field) const noexcept {
    return control(slot) + field;
  }

  // ---- sync records ----
  [[nodiscard]] constexpr std::uint64_t sync_records() const noexcept {
    return controls() + std::uint64_t{slots_} * sizeof(SlotControl);
  }
  [[nodiscard]] constexpr std::uint64_t sync_record(std::uint32_t index) const noexcept {
    return sync_records() + std::uint64_t{index} * sizeof(SyncRecord);
  }

  /// The whole region, a multiple of 4096.
  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept {
    return (sync_records() + std::uint64_t{kSyncRecords + kWatchLists} * sizeof(SyncRecord) + 4095) &
           ~std::uint64_t{4095};
  }

 private:
  static constexpr std::uint64_t kDeques = 384;
  static constexpr std::uint32_t kMaxDequeEntries = 1u << 14;

  // All of a rank's own threads fit into one deque, up to a bound. Past it continuations go to the worker's
  // private overflow list.
  static constexpr std::uint32_t entries_for(std::uint32_t slots) noexcept {
    return slots >= kMaxDequeEntries ? kMaxDequeEntries : std::bit_ceil(slots < 64 ? 64u : slots);
  }

  std::uint32_t workers_, slots_, deque_entries_;
};

/// Bytes of a rank's threads region.
[[nodiscard]] constexpr std::size_t threads_region_bytes(std::uint32_t workers,
                                                         std::uint32_t slots_per_rank) noexcept {
  return Layout(workers, slots_per_rank).bytes();
}

static_assert(Layout(3, 4096).controls() % alignof(SlotControl) == 0);
static_assert(Layout(3, 4096).sync_records() % alignof(SyncRecord) == 0);
static_assert(Layout(1, 1).deque_entries() == 64 && Layout(1, 5000).deque_entries() == 8192);

}  // namespace kasane::ult
