// SPDX-License-Identifier: Apache-2.0
// One anonymous MAP_NORESERVE mapping for each table and set: untouched parts read as zero and cost no
// memory, and zero is the right start for words, bits and counts.
#include "mem/block_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.h"
#include "base/memory_file.h"
#include "mem/page_tables.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kFanOut = 64;

constexpr std::uint64_t groups(std::uint64_t n) { return (n + kFanOut - 1) / kFanOut; }

}  // namespace

template <class Word, class Id>
Result<WordTable<Word, Id>> WordTable<Word, Id>::create(std::uint64_t blocks) {
  if (blocks == 0) return fail(Errc::invalid_argument, "a block table of 0 blocks");
  auto map = map_sparse(blocks * sizeof(std::atomic<Word>), "the block table");
  KASANE_TRY(map);
  WordTable table;
  table.words_ = reinterpret_cast<std::atomic<Word>*>(*map);
  table.blocks_ = blocks;
  return table;
}

template <class Word, class Id>
WordTable<Word, Id>::WordTable(WordTable&& o) noexcept
    : words_(std::exchange(o.words_, nullptr)), blocks_(std::exchange(o.blocks_, 0)) {}

template <class Word, class Id>
WordTable<Word, Id>::~WordTable() {
  if (words_) ::munmap(words_, blocks_ * sizeof *words_);
}

template <class Word, class Id>
bool WordTable<Word, Id>::drop(BlockRange blocks) noexcept {
  constexpr std::uint64_t kOfAPage = kBlockBytes / sizeof(std::atomic<Word>);
  KASANE_ASSERT(kasane::raw(blocks.first) % kOfAPage == 0 && blocks.count % kOfAPage == 0);
  // The kernel has dropped the translations on every core when it returns: at least a fence for a reader that
  // sees the zeros.
  return drop_translations(reinterpret_cast<std::byte*>(words_ + kasane::raw(blocks.first)),
                           blocks.count * sizeof *words_);
}

template class WordTable<std::uint32_t>;
template class WordTable<std::uint64_t>;
template class WordTable<std::uint32_t, PageId>;
template class WordTable<std::uint64_t, PageId>;

Result<NumberSet> NumberSet::create(std::uint64_t limit) {
  if (limit == 0) return fail(Errc::invalid_argument, "a set of 0 numbers");
  NumberSet s;
  s.limit_ = limit;
  s.words_ = groups(limit);
  std::size_t bytes = s.words_ * sizeof *s.bits_;
  for (int level = 0; level < kLevels; ++level) {
    s.counters_[level] = groups(level == 0 ? s.words_ : s.counters_[level - 1]);
    bytes += s.counters_[level] * sizeof *s.counts_[level];
  }
  auto map = map_sparse(bytes, "a set of numbers");
  KASANE_TRY(map);
  s.mapped_ = *map;
  s.mapped_bytes_ = bytes;
  s.bits_ = reinterpret_cast<std::atomic<std::uint64_t>*>(*map);
  auto* counts = reinterpret_cast<std::atomic<std::uint32_t>*>(s.bits_ + s.words_);
  for (int level = 0; level < kLevels; ++level) {
    s.counts_[level] = counts;
    counts += s.counters_[level];
  }
  return s;
}

NumberSet::NumberSet(NumberSet&& o) noexcept
    : bits_(std::exchange(o.bits_, nullptr)),
      words_(std::exchange(o.words_, 0)),
      limit_(std::exchange(o.limit_, 0)),
      mapped_(std::exchange(o.mapped_, nullptr)),
      mapped_bytes_(std::exchange(o.mapped_bytes_, 0)) {
  std::copy(std::begin(o.counts_), std::end(o.counts_), counts_);
  std::copy(std::begin(o.counters_), std::end(o.counters_), counters_);
}

NumberSet::~NumberSet() {
  if (mapped_) ::munmap(mapped_, mapped_bytes_);
}

// One more non-zero word or count below counts_[level][index]. If that count is not zero, the levels above
// are right already. Else they are raised first, and lowered again if another thread made this count non-zero
// meanwhile.
void NumberSet::raise(int level, std::uint64_t index) noexcept {
  if (level == kLevels) return;
  std::atomic<std::uint32_t>& count = counts_[level][index];
  // acquire: joins a running period, whose count above must be visible before ours is published.
  std::uint32_t old = count.load(std::memory_order_acquire);
  while (old != 0)
    // acq_rel: acquire to join; release, so that a thread that joins later sees what this one saw.
    if (count.compare_exchange_weak(old, old + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      return;
  raise(level + 1, index / kFanOut);
  if (count.fetch_add(1, std::memory_order_acq_rel) != 0) lower(level + 1, index / kFanOut);
}

void NumberSet::lower(int level, std::uint64_t index) noexcept {
  if (level == kLevels) return;
  // acq_rel: the +1 of this period above (acquired through this count) must come before our -1 there.
  if (counts_[level][index].fetch_sub(1, std::memory_order_acq_rel) == 1) lower(level + 1, index / kFanOut);
}

bool NumberSet::insert(std::uint64_t number) noexcept {
  KASANE_ASSERT(number < limit_);
  const std::uint64_t index = number / kFanOut;
  const std::uint64_t bit = std::uint64_t{1} << (number % kFanOut);
  std::atomic<std::uint64_t>& word = bits_[index];
  // acquire: as in raise().
  std::uint64_t old = word.load(std::memory_order_acquire);
  while (old != 0)
    // A member already? The read-modify-write is done all the same: insert() always orders what the caller
    // stored before it (a dirty block) before a later erase(). acq_rel: as in raise().
    if (word.compare_exchange_weak(old, old | bit, std::memory_order_acq_rel, std::memory_order_acquire))
      return (old & bit) == 0;
  raise(0, index / kFanOut);
  old = word.fetch_or(bit, std::memory_order_acq_rel);
  if (old != 0) lower(0, index / kFanOut);
  return (old & bit) == 0;
}

void NumberSet::erase(std::uint64_t number) noexcept {
  KASANE_ASSERT(number < limit_);
  const std::uint64_t index = number / kFanOut;
  const std::uint64_t bit = std::uint64_t{1} << (number % kFanOut);
  // acq_rel: as in lower(). Only the call that empties the word counts down, so erasing twice is harmless.
  if (bits_[index].fetch_and(~bit, std::memory_order_acq_rel) == bit) lower(0, index / kFanOut);
}

bool NumberSet::contains(std::uint64_t number) const noexcept {
  KASANE_ASSERT(number < limit_);
  // acquire: a member that is found shows what its inserter did before.
  return (bits_[number / kFanOut].load(std::memory_order_acquire) >> (number % kFanOut)) & 1;
}

std::uint64_t NumberSet::next(std::uint64_t from) const noexcept {
  if (from >= limit_) return kNone;
  std::uint64_t word = from / kFanOut;
  std::uint64_t mask = ~std::uint64_t{0} << (from % kFanOut);
  while (true) {
    // acquire: as contains().
    const std::uint64_t members = bits_[word].load(std::memory_order_acquire) & mask;
    if (members != 0) return word * kFanOut + static_cast<std::uint64_t>(std::countr_zero(members));
    word = next_word(word + 1);
    if (word == kNone) return kNone;
    mask = ~std::uint64_t{0};
  }
}

// The first word >= from that is not zero. Counts may be too high, never too low: an empty group is skipped.
std::uint64_t NumberSet::next_word(std::uint64_t from) const noexcept {
  while (from < words_) {
    const std::uint64_t group = next_count(0, from / kFanOut);
    if (group == kNone) return kNone;
    const std::uint64_t end = std::min(words_, (group + 1) * kFanOut);
    for (from = std::max(from, group * kFanOut); from < end; ++from)
      // relaxed: next() loads the word again, with acquire.
      if (bits_[from].load(std::memory_order_relaxed) != 0) return from;
  }
  return kNone;
}

// The first index >= from of counts_[level] that is not zero; the same walk, one level up.
std::uint64_t NumberSet::next_count(int level, std::uint64_t from) const noexcept {
  while (from < counters_[level]) {
    std::uint64_t end = counters_[level];
    if (level + 1 < kLevels) {
      const std::uint64_t group = next_count(level + 1, from / kFanOut);
      if (group == kNone) return kNone;
      from = std::max(from, group * kFanOut);
      end = std::min(end, (group + 1) * kFanOut);
    }
    for (; from < end; ++from)
      // relaxed: the counts of a member that was there before this walk are visible, too (coherence); the
      // walk promises no other member.
      if (counts_[level][from].load(std::memory_order_relaxed) != 0) return from;
  }
  return kNone;
}

}  // namespace kasane::mem
