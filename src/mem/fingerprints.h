// SPDX-License-Identifier: Apache-2.0
// Which blocks in DRAM are as the spill file has them, told by 64 bits of what was read: for pages that other ranks put to unseen, where nothing else says whether they were changed.
//
//   read from S ─▶ note(b, bytes)          a put, or none                leaves ─▶ matches(b, bytes)? not written : written ─▶ forget(b)
//
// One slot for several blocks, so its memory is bounded, whatever the space: XXH3 of the bytes, seeded with the block's number, so that a slot matches neither another block's bytes nor older ones of its
// own. Who finds another's there has his block written: a loss of time only. Four slots for each block of the budget: neighbours in four times the budget have one each.
//
// A block that was changed passes for one that was not in one of 2^64 cases: at 10 GB/s of them, once in 240 000 years. The seed is another one in each job, so no data can be made for it.
//
// Thread safety: any thread; of one block at a time only who holds its bits, which orders them (rule 4). Nothing allocates after create(): also in fault handlers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "mem/block_table.h"
#include "mem/space.h"

namespace kasane::mem {

class Fingerprints {
 public:
  /// budget_blocks: that may be in DRAM; space_blocks: numbers of blocks are below that.
  static Result<Fingerprints> create(std::uint64_t budget_blocks, std::uint64_t space_blocks);

  /// The spill file has these bytes of the block: kBlockBytes. Blocks of memory that this took for the first time: 0 or 1, which stay.
  [[nodiscard]] std::uint64_t note(BlockId, const std::byte* bytes) noexcept;
  /// Has it them still? False, too, if that is not known. Costs a look where nothing is.
  [[nodiscard]] bool matches(BlockId, const std::byte* bytes) const noexcept;
  /// Its bytes there are about to be others, or not known any more.
  void forget(BlockId) noexcept;

 private:
  using Table = WordTable<std::uint64_t>;
  static constexpr std::uint64_t kSlotsOfAPage = kBlockBytes / sizeof(std::uint64_t);
  Fingerprints(Table slots, NumberSet taken, std::uint64_t seed) noexcept;
  [[nodiscard]] BlockId slot_of(BlockId b) const noexcept { return BlockId{raw(b) & (slots_.blocks() - 1)}; }
  [[nodiscard]] std::uint64_t fingerprint(BlockId, const std::byte* bytes) const noexcept;

  Table slots_;      ///< 0: nothing is known
  NumberSet taken_;   ///< pages of the table
  std::uint64_t seed_;
};

}  // namespace kasane::mem
