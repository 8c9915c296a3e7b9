// SPDX-License-Identifier: Apache-2.0
// Page tables of ranges of which this rank sees nothing any more go back to the kernel (mem/page_tables.h).
//
// V needs care: a view's buffer in a system call counts on its translations, and with markers of protection a block would be open that has rights to be read only. So all blocks of the range are
// held: they are invalid, and nobody gives them rights meanwhile. For everybody else a bit was held by a fault that found nothing to do. A and T, and other ranks' M, are plain shared mappings,
// whose translations may go at any time. The block table's own page goes last: its words become 0 all at once, which gives the bits back. Nobody else changes the word of a block that is held.
#include "mem/page_tables.h"

#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::BlockRange;

bool Coherence::give_tables_back(BlockRange range) noexcept {
  constexpr BlockState kInvalid{};
  static_assert(kInvalid.word() == 0);
  for (std::uint64_t i = 0; i < range.count; ++i) {   // most ranges that are in use are so from their beginning
    if (state(block_at(range.first, i)) != kInvalid) return false;
  }
  const Step step = next(kInvalid, Event::evict);
  for (std::uint64_t i = 0; i < range.count; ++i) {
    if (try_claim(block_at(range.first, i), kInvalid, step)) continue;
    unclaim(range.first, i);
    return false;
  }
  engine_.give_tables_back(range);
  const std::uint64_t offset = mem::offset_of(range.first), bytes = range.count * mem::kBlockBytes;
  for (std::byte* view : {space_.a(offset), space_.t(offset)}) mem::drop_translations(view, bytes);
  if (!table_.drop(range)) unclaim(range.first, range.count);   // 0 is an invalid block, free
  return true;
}

void Coherence::give_back_tables_of_others() noexcept {
  const auto [offset, bytes] = residency_->range();
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    if (Rank{r} == transport_.rank()) continue;
    if (std::byte* frames = transport_.mapped(Rank{r}, gas::kFrames); frames != nullptr) mem::drop_translations(frames + offset, bytes);
  }
}

}  // namespace kasane::dsm
