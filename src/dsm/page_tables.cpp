// SPDX-License-Identifier: Apache-2.0
// Returns page tables of ranges in which nothing is visible to the kernel (mem/page_tables.h).
//
// V needs care: a system call's use of a view relies on V's translations; and where protection is kept in
// page-table markers, dropping a table would make a read-only block writable. So all blocks of the range are
// claimed: they are invalid, and no thread changes their access meanwhile. Other threads see bits that are
// held as for a fault. A and T, and other ranks' M, are plain shared mappings, whose translations may be
// dropped at any time. The block table's own page is dropped last: its words become 0 all at once, which
// clears the bits. No other thread changes the word of a claimed block.
#include "mem/page_tables.h"

#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::BlockRange;

bool Coherence::give_tables_back(BlockRange range) noexcept {
  constexpr BlockState kInvalid{};
  static_assert(kInvalid.word() == 0);
  // most ranges that are in use are so from their beginning
  for (std::uint64_t i = 0; i < range.count; ++i) {
    if (state(block_at(range.first, i)) != kInvalid) return false;
  }
  const BlockStep step = next(kInvalid, BlockEvent::evict);
  for (std::uint64_t i = 0; i < range.count; ++i) {
    if (try_claim(block_at(range.first, i), kInvalid, step)) continue;
    unclaim(range.first, i);
    return false;
  }
  engine_.give_tables_back(range);
  const std::uint64_t offset = mem::offset_of(range.first), bytes = range.count * mem::kBlockBytes;
  for (std::byte* view : {space_.a(offset), space_.t(offset)}) mem::drop_translations(view, bytes);
  if (!table_.drop(range)) unclaim(range.first, range.count);  // 0 is an invalid block, free
  return true;
}

void Coherence::give_back_tables_of_others() noexcept {
  const auto [offset, bytes] = residency_->range();
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    if (Rank{r} == transport_.rank()) continue;
    if (std::byte* frames = transport_.mapped(Rank{r}, gas::kFrames); frames != nullptr)
      mem::drop_translations(frames + offset, bytes);
  }
}

}  // namespace kasane::dsm
