// SPDX-License-Identifier: Apache-2.0
#include "ult/sync_record.h"

#include <cstddef>
#include <stdexcept>
#include <string>

#include "base/assert.h"
#include "base/counters.h"
#include "ult/pool_core.h"

namespace kasane::ult {
namespace {

// Words are sequentially consistent. The records rely on that in one way only: a compare-swap or swap that
// publishes a record or a waiter makes the links and fields written before it visible to its readers.

constexpr std::uint32_t kNone = 0xFFFFFFFFu;

/// The head of the free list: tag 32 | index + 1 32.
constexpr Word head(Word old, std::uint32_t index_plus_1) noexcept {
  return ((old >> 32) + 1) << 32 | index_plus_1;
}
constexpr std::uint32_t first(Word head) noexcept { return static_cast<std::uint32_t>(head); }

constexpr std::size_t field_offset(SyncField f) noexcept {
  switch (f) {
    case SyncField::word: return offsetof(SyncRecord, word);
    case SyncField::fifo: return offsetof(SyncRecord, fifo);
    case SyncField::last: return offsetof(SyncRecord, last);
    case SyncField::data0: return offsetof(SyncRecord, data);
    case SyncField::object: return offsetof(SyncRecord, object);
    case SyncField::since: return offsetof(SyncRecord, data[1]);
    case SyncField::next:
    case SyncField::timed: break;
  }
  return offsetof(SyncRecord, next_free);
}

/// SyncRecord::object.
constexpr unsigned kAddressBits = 56;
Word object_word(SyncKind kind, const void* address) noexcept {
  return (Word{static_cast<std::uint8_t>(kind)} + 1) << kAddressBits | reinterpret_cast<Word>(address);
}

}  // namespace

Pool& pool_of_thread(const char* what) {
  Pool* pool = Pool::current();
  if (pool == nullptr || Pool::self() == kNoSlot) {
    check_failed("called on a Kasane thread", what, 0,
                 "mutexes, condition variables and barriers work only on threads of a run, not in main or on "
                 "a std::thread");
  }
  return *pool;
}

SyncRecords::SyncRecords(Pool& pool) noexcept
    : pool_(pool), words_(pool.words()), layout_(pool.config().workers, pool.config().slots_per_rank) {}

std::uint64_t SyncRecords::offset(SyncHandle record, SyncField field) const noexcept {
  return layout_.sync_record(record.index()) + field_offset(field);
}

Word SyncRecords::load(SyncHandle record, SyncField field) const {
  return words_.load(record.rank(), offset(record, field));
}

void SyncRecords::store(SyncHandle record, SyncField field, Word value) const {
  words_.store(record.rank(), offset(record, field), value);
}

Word SyncRecords::compare_swap(SyncHandle record, SyncField field, Word expected, Word desired) const {
  return words_.compare_swap(record.rank(), offset(record, field), expected, desired);
}

std::uint32_t SyncRecords::cross_from_last(SyncHandle record) const {
  const Word last = load(record, SyncField::last);
  if (last == 0) return 1;
  return pool_.cross(rank_of(last), Account::fence_locks, mark_of(last));
}

TimedWord SyncRecords::timed(SlotId slot) const {
  return TimedWord::unpack(
      words_.load(layout_.birth_rank(slot), layout_.word(slot, offsetof(SlotControl, timed))));
}

TimedStep SyncRecords::advance(SlotId slot, TimedEvent event, std::uint64_t round) const {
  TimedWord seen = timed(slot);
  for (;;) {
    const TimedStep step = next(seen, event, round);
    if (step.next == seen) return step;
    const Word old =
        words_.compare_swap(layout_.birth_rank(slot), layout_.word(slot, offsetof(SlotControl, timed)),
                            seen.pack(), step.next.pack());
    if (old == seen.pack()) return step;
    seen = TimedWord::unpack(old);
  }
}

bool SyncRecords::settle(SlotId slot, TimedOutcome outcome) const {
  const TimedStep step =
      advance(slot, outcome == TimedOutcome::granted ? TimedEvent::grant : TimedEvent::expire);
  KASANE_CHECK(step.action != TimedAction::refuse, "a thread's wait ends twice");
  return step.action == TimedAction::go;
}

Word SyncRecords::perform(SyncHandle record, const SyncStep& s) const {
  const bool link = s.field == SyncField::next;
  switch (s.kind) {
    case SyncStep::Kind::load:
      if (s.field == SyncField::timed) return timed(s.slot).pack();
      return link ? words_.load(layout_.birth_rank(s.slot), layout_.word(s.slot, offsetof(SlotControl, next)))
                  : load(record, s.field);
    case SyncStep::Kind::store:
      if (link)
        words_.store(layout_.birth_rank(s.slot), layout_.word(s.slot, offsetof(SlotControl, next)), s.value);
      else
        store(record, s.field, s.value);
      return 0;
    case SyncStep::Kind::compare_swap: return compare_swap(record, s.field, s.expected, s.value);
    case SyncStep::Kind::wake: {
      const Word rank =
          words_.load(layout_.birth_rank(s.slot), layout_.word(s.slot, offsetof(SlotControl, rank)));
      if (rank == kOsThread) [[unlikely]] {
        pool_.core().wake_os_thread(s.slot);
        return 0;
      }
      pool_.make_ready(s.slot, Rank{static_cast<std::uint32_t>(rank)});
      return 0;
    }
    case SyncStep::Kind::settle:
      if (settle(s.slot, static_cast<TimedOutcome>(s.value))) perform(record, SyncStep::wake(s.slot));
      return 0;
    case SyncStep::Kind::requeue:
    case SyncStep::Kind::done: break;
  }
  KASANE_CHECK(false, "a step that only its own object performs");
  return 0;
}

// Between the load of next_free and the compare-swap another thread may take the record, use it and free it:
// then the tag has grown and the swap fails. A stale next_free is read, never used.
std::uint32_t SyncRecords::take_free() {
  const Rank here = pool_.config().rank;
  Word seen = words_.load(here, Layout::sync_free_head());
  while (first(seen) != 0) {
    const std::uint32_t index = first(seen) - 1;
    const Word after = load(SyncHandle::of(here, index), SyncField::next);
    const Word old = words_.compare_swap(here, Layout::sync_free_head(), seen,
                                         head(seen, static_cast<std::uint32_t>(after)));
    if (old == seen) return index;
    seen = old;
  }
  return kNone;
}

std::uint32_t SyncRecords::take_new() {
  const Rank here = pool_.config().rank;
  Word seen = words_.load(here, Layout::sync_used());
  while (seen < kSyncRecords) {
    const Word old = words_.compare_swap(here, Layout::sync_used(), seen, seen + 1);
    if (old == seen) return static_cast<std::uint32_t>(seen);
    seen = old;
  }
  return kNone;
}

SyncHandle SyncRecords::take() {
  std::uint32_t index = take_free();
  if (index == kNone) index = take_new();
  if (index == kNone) {
    throw std::runtime_error(
        "rank " + std::to_string(raw(pool_.config().rank)) + " has initialised " +
        std::to_string(kSyncRecords) +
        " mutexes, condition variables, barriers and others that were not destroyed, which is the limit: "
        "destroy them (kasane_mutex_destroy and its kin) before their memory is freed or used for others");
  }
  const SyncHandle record = SyncHandle::of(pool_.config().rank, index);
  for (SyncField f : {SyncField::word, SyncField::fifo, SyncField::last, SyncField::data0, SyncField::since})
    store(record, f, 0);
  return record;
}

void SyncRecords::note_object(SyncHandle record, SyncKind kind, const void* address) const {
  store(record, SyncField::object, object_word(kind, address));
}

std::optional<SyncKind> SyncRecords::object_at(SyncHandle record, const void* address) const {
  // Zeros are what most memory holds. They name a record, too: its object is then not found.
  if (record.value == 0 || record.index() >= kSyncRecords || raw(record.rank()) >= pool_.config().ranks)
    return std::nullopt;
  const Word object = load(record, SyncField::object);
  if (object == 0) return std::nullopt;
  const auto kind = static_cast<SyncKind>((object >> kAddressBits) - 1);
  return object == object_word(kind, address) ? std::optional(kind) : std::nullopt;
}

// The object's name goes first: the record is never free while an object is found with it.
void SyncRecords::give_back(SyncHandle record) {
  store(record, SyncField::object, 0);
  const Rank rank = record.rank();
  Word seen = words_.load(rank, Layout::sync_free_head());
  for (;;) {
    store(record, SyncField::next, first(seen));
    const Word old =
        words_.compare_swap(rank, Layout::sync_free_head(), seen, head(seen, record.index() + 1));
    if (old == seen) return;
    seen = old;
  }
}

}  // namespace kasane::ult
