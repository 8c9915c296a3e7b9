// SPDX-License-Identifier: Apache-2.0
// The block table: one 32-bit word a block, which alone says what this rank has of the block. The coherence
// protocol defines the bits (dsm/protocol.h). Here are the storage and the sets of blocks and pages.
//
// Thread safety: words are atomics; NumberSet's operations are lock-free. Memory is reserved, not committed:
// only words and parts of sets that were touched cost DRAM. Nothing allocates after create(), so all of it
// may run in a fault handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

/// A set of numbers below a limit: a bitmap under levels of counters, so that a walk of a sparse set touches
/// only what is set.
///
///   counts_[2]   one for 64 of counts_[1]     how many of those are not zero, or a little more
///   counts_[1]   one for 64 of counts_[0]     how many of those are not zero, or a little more
///   counts_[0]   one for 64 words of bits_    how many of those are not zero, or a little more
///   bits_        a bit a number
///
/// The summaries are counts, not bits. A summary bit would be cleared by a thread that has just seen the
/// level below empty. An insertion may come in between, and its member would be invisible for a moment. A
/// count has no such moment:
///
/// Invariant: a thread that makes a word or count non-zero has counted above *before*, and counts down above
/// only *after* that word or count went back to zero. So a count is never less than the number of non-zero
/// words or counts below it. Proof. A period of a word is from one 0→non-zero change to the next change back.
/// Its +1 above happens before it starts, its −1 after it ends. So in the modification order of the count
/// above, every prefix holds each period's +1 before its −1: no period ever adds less than 0 to the value,
/// and one that has begun and not ended adds exactly 1. An attempt that turns out to find the word non-zero
/// takes back its own +1, so it never adds less than 0 either. The argument climbs level by level. A thread
/// that joins a running period (sets a bit in a non-zero word) has acquired that word, hence sees its +1 as
/// done.
class NumberSet {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  static Result<NumberSet> create(std::uint64_t limit);
  NumberSet(NumberSet&&) noexcept;
  NumberSet& operator=(NumberSet&&) = delete;
  ~NumberSet();

  /// True: it was no member.
  bool insert(std::uint64_t) noexcept;
  void erase(std::uint64_t) noexcept;
  [[nodiscard]] bool contains(std::uint64_t) const noexcept;
  /// The first member >= from, or kNone. A walk sees a member that is there throughout; one that is inserted
  /// or erased meanwhile may be seen or not. The walking thread itself may insert and erase.
  [[nodiscard]] std::uint64_t next(std::uint64_t from) const noexcept;

 private:
  static constexpr int kLevels = 3;

  NumberSet() = default;
  void raise(int level, std::uint64_t index) noexcept;
  void lower(int level, std::uint64_t index) noexcept;
  [[nodiscard]] std::uint64_t next_word(std::uint64_t from) const noexcept;
  [[nodiscard]] std::uint64_t next_count(int level, std::uint64_t from) const noexcept;

  std::atomic<std::uint64_t>* bits_ = nullptr;
  std::atomic<std::uint32_t>* counts_[kLevels] = {};
  std::uint64_t words_ = 0;               // of bits_
  std::uint64_t counters_[kLevels] = {};  // of counts_[k]
  std::uint64_t limit_ = 0;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

/// A NumberSet of block, page or stack ids.
template <class Id>
class Set {
 public:
  static Result<Set> create(std::uint64_t ids) {
    auto made = NumberSet::create(ids);
    KASANE_TRY(made);
    return Set(std::move(*made));
  }
  bool insert(Id id) noexcept { return numbers_.insert(raw(id)); }
  void erase(Id id) noexcept { numbers_.erase(raw(id)); }
  [[nodiscard]] bool contains(Id id) const noexcept { return numbers_.contains(raw(id)); }
  [[nodiscard]] std::uint64_t next(std::uint64_t from) const noexcept { return numbers_.next(from); }
  /// Calls f(Id) for every member, in ascending order.
  template <class F>
  void for_each(F&& f) const {
    for (std::uint64_t n = next(0); n != NumberSet::kNone; n = next(n + 1))
      f(Id{static_cast<std::underlying_type_t<Id>>(n)});
  }

 private:
  explicit Set(NumberSet&& numbers) noexcept : numbers_(std::move(numbers)) {}
  NumberSet numbers_;
};
using BlockSet = Set<BlockId>;
using PageSet = Set<PageId>;

/// A word for each block or page.
template <class Word, class Id = BlockId>
class WordTable {
 public:
  static Result<WordTable> create(std::uint64_t ids);
  WordTable(WordTable&&) noexcept;
  WordTable& operator=(WordTable&&) = delete;
  ~WordTable();

  [[nodiscard]] std::atomic<Word>& operator[](Id id) noexcept { return words_[raw(id)]; }
  [[nodiscard]] const std::atomic<Word>& operator[](Id id) const noexcept { return words_[raw(id)]; }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  /// Sets the words of these blocks to 0 and gives their memory back; the words fill whole OS pages. No other
  /// thread may change them meanwhile; a reader sees the old word or 0. False: nothing was changed (the
  /// program has locked its memory).
  [[nodiscard]] bool drop(BlockRange) noexcept;

 private:
  WordTable() = default;
  std::atomic<Word>* words_ = nullptr;
  std::uint64_t blocks_ = 0;
};
using BlockTable = WordTable<std::uint32_t>;
extern template class WordTable<std::uint32_t>;
extern template class WordTable<std::uint64_t>;
extern template class WordTable<std::uint32_t, PageId>;
extern template class WordTable<std::uint64_t, PageId>;

}  // namespace kasane::mem
