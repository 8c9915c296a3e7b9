// SPDX-License-Identifier: Apache-2.0
// The block table: one 32-bit word a block that alone says what this rank has of it. The meaning of the bits is the
// coherence protocol's (dsm/protocol.h); here are storage, the sets of blocks and nothing else.
//
// Thread safety: words are atomics; BlockSet's operations are lock-free. Memory is reserved, not committed: only words and
// set pages that were touched cost DRAM. Nothing here allocates after create().
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

/// A set of block numbers in a three-level bitmap, so that walking a sparse set touches only what is set.
class BlockSet {
 public:
  static Result<BlockSet> create(std::uint64_t blocks);
  BlockSet(BlockSet&&) noexcept;
  BlockSet& operator=(BlockSet&&) = delete;
  ~BlockSet();

  void insert(BlockId) noexcept;
  void erase(BlockId) noexcept;
  [[nodiscard]] bool contains(BlockId) const noexcept;
  /// Calls f(BlockId) in ascending order for every member; a member inserted or erased meanwhile may or may not be seen, one that is
  /// there throughout is. f may insert and erase.
  template <class F>
  void for_each(F&& f) const;
  /// The first member >= from, or ~0.
  [[nodiscard]] std::uint64_t next(std::uint64_t from) const noexcept;

 private:
  BlockSet() = default;
  std::atomic<std::uint64_t>* level_[3] = {};   // level_[0]: a bit a block; level_[k+1]: a bit per word of level_[k] that may be non-zero
  std::uint64_t words_[3] = {};
  std::size_t mapped_bytes_ = 0;
};

class BlockTable {
 public:
  static Result<BlockTable> create(std::uint64_t blocks);
  BlockTable(BlockTable&&) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable();

  [[nodiscard]] std::atomic<std::uint32_t>& operator[](BlockId b) noexcept { return words_[raw(b)]; }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }

 private:
  BlockTable() = default;
  std::atomic<std::uint32_t>* words_ = nullptr;
  std::uint64_t blocks_ = 0;
};

template <class F>
void BlockSet::for_each(F&& f) const {
  for (std::uint64_t b = next(0); b != ~std::uint64_t{0}; b = next(b + 1)) f(BlockId{b});
}

}  // namespace kasane::mem
