// SPDX-License-Identifier: Apache-2.0
// Which blocks in DRAM equal their copy in the spill file, told by a 64-bit hash of what was read. For pages
// that other ranks put to without this rank's knowledge, where nothing else says whether they were changed.
//
//   read from S ─▶ note(b, bytes)      puts, or none      evicted ─▶ matches(b, bytes)? not written
//                                                                    else written ─▶ forget(b)
//
// Several blocks share a slot, so the memory is bounded for every size of the space. The hash is XXH3 of the
// bytes, seeded with the block's number, so that a slot matches neither another block's bytes nor older bytes
// of the same block. A block whose slot holds another block's hash is written: this costs only time. There
// are four slots for each block of the budget: neighbouring blocks in four times the budget have one each.
//
// A changed block passes for an unchanged one in one of 2^64 cases: at 10 GB/s of such blocks, once in 240
// 000 years. Each job has another seed, so no data can be made to match.
//
// Thread safety: any thread; calls for one block only by the holder of its bits, which order them (rule 4).
// Nothing allocates after create(): fault handlers may call it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "mem/block_table.h"
#include "mem/space.h"

namespace kasane::mem {

class Fingerprints {
 public:
  /// budget_blocks: blocks that may be in DRAM. space_blocks: blocks of the space.
  static Result<Fingerprints> create(std::uint64_t budget_blocks, std::uint64_t space_blocks);

  /// The spill file has these bytes (kBlockBytes) of the block. Returns the blocks of memory that the table
  /// uses for the first time, and keeps: 0 or 1.
  [[nodiscard]] std::uint64_t note(BlockId, const std::byte* bytes) noexcept;
  /// Does it still have them? Also false if that is not known; then nothing is hashed.
  [[nodiscard]] bool matches(BlockId, const std::byte* bytes) const noexcept;
  /// The block's bytes in the file are about to change, or are not known any more.
  void forget(BlockId) noexcept;

 private:
  using Table = WordTable<std::uint64_t>;
  static constexpr std::uint64_t kSlotsOfAPage = kBlockBytes / sizeof(std::uint64_t);
  Fingerprints(Table slots, NumberSet taken, std::uint64_t seed) noexcept;
  [[nodiscard]] BlockId slot_of(BlockId b) const noexcept { return BlockId{raw(b) & (slots_.blocks() - 1)}; }
  [[nodiscard]] std::uint64_t fingerprint(BlockId, const std::byte* bytes) const noexcept;

  Table slots_;      ///< 0: nothing is known
  NumberSet taken_;  ///< pages of the table
  std::uint64_t seed_;
};

}  // namespace kasane::mem
