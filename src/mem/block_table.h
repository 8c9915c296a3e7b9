// SPDX-License-Identifier: Apache-2.0
// The block table: one 32-bit word a block that alone says what this rank has of it. The meaning of the bits is the
// coherence protocol's (dsm/protocol.h); here are storage, the sets of blocks and nothing else.
//
// Thread safety: words are atomics; BlockSet's operations are lock-free. Memory is reserved, not committed: only words and
// set pages that were touched cost DRAM. Nothing here allocates after create(), so all of it may run in a fault handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

/// A set of block numbers: a bitmap under levels of counters, so that walking a sparse set touches only what is set.
///
///   counts_[2]   one a 64 of counts_[1]      how many of those are not zero, or a little more
///   counts_[1]   one a 64 of counts_[0]      how many of those are not zero, or a little more
///   counts_[0]   one a 64 words of bits_     how many of those are not zero, or a little more
///   bits_        a bit a block
///
/// Summaries are counts, not bits, because a bit has to be taken back by somebody who has just seen the level below empty, and an
/// insertion may come in between: for a moment its member would be invisible. A count has no such moment:
///
/// Invariant: whatever makes a word or count non-zero has counted above *before*, and counts down above only *after* that
/// word or count went back to zero. So a count is never less than the number of non-zero things below it.
/// Proof. A period of a word is from one 0→non-zero change to the next change back. Its +1 above happens before it starts, its −1 after
/// it ends; so in the modification order of the count above, every prefix holds each period's +1 before its −1: no period ever
/// adds less than 0 to the value, and one that has begun and not ended adds exactly 1. Attempts that turn out to find the word non-zero
/// already take back their own +1 and likewise never add less than 0. The argument climbs level by level.
/// Who joins a running period (a bit set in a non-zero word) has acquired that word, hence sees its +1 as done.
class BlockSet {
 public:
  static Result<BlockSet> create(std::uint64_t blocks);
  BlockSet(BlockSet&&) noexcept;
  BlockSet& operator=(BlockSet&&) = delete;
  ~BlockSet();

  /// True: it was no member.
  bool insert(BlockId) noexcept;
  void erase(BlockId) noexcept;
  [[nodiscard]] bool contains(BlockId) const noexcept;
  /// Calls f(BlockId) in ascending order for every member; a member inserted or erased meanwhile may or may not be seen, one that is
  /// there throughout is. f may insert and erase.
  template <class F>
  void for_each(F&& f) const;
  /// The first member >= from, or ~0.
  [[nodiscard]] std::uint64_t next(std::uint64_t from) const noexcept;

 private:
  static constexpr int kLevels = 3;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  BlockSet() = default;
  void raise(int level, std::uint64_t index) noexcept;
  void lower(int level, std::uint64_t index) noexcept;
  [[nodiscard]] std::uint64_t next_word(std::uint64_t from) const noexcept;
  [[nodiscard]] std::uint64_t next_count(int level, std::uint64_t from) const noexcept;

  std::atomic<std::uint64_t>* bits_ = nullptr;
  std::atomic<std::uint32_t>* counts_[kLevels] = {};
  std::uint64_t words_ = 0;               // of bits_
  std::uint64_t counters_[kLevels] = {};  // of counts_[k]
  std::uint64_t blocks_ = 0;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

/// A word for each block, or page.
template <class Word>
class WordTable {
 public:
  static Result<WordTable> create(std::uint64_t blocks);
  WordTable(WordTable&&) noexcept;
  WordTable& operator=(WordTable&&) = delete;
  ~WordTable();

  [[nodiscard]] std::atomic<Word>& operator[](BlockId b) noexcept { return words_[raw(b)]; }
  [[nodiscard]] const std::atomic<Word>& operator[](BlockId b) const noexcept { return words_[raw(b)]; }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  /// The words of these blocks, whole OS pages of them, become 0, and cost no memory any more. Meanwhile nobody else may change one; who reads one sees what it was, or 0. False: nothing has
  /// happened (the program has locked its memory).
  [[nodiscard]] bool drop(BlockRange) noexcept;

 private:
  WordTable() = default;
  std::atomic<Word>* words_ = nullptr;
  std::uint64_t blocks_ = 0;
};
using BlockTable = WordTable<std::uint32_t>;
extern template class WordTable<std::uint32_t>;
extern template class WordTable<std::uint64_t>;

template <class F>
void BlockSet::for_each(F&& f) const {
  for (std::uint64_t b = next(0); b != kNone; b = next(b + 1)) f(BlockId{b});
}

}  // namespace kasane::mem
