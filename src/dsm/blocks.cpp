// SPDX-License-Identifier: Apache-2.0
#include "dsm/blocks.h"

#include "mem/page_tables.h"

namespace kasane::dsm {

using mem::BlockRange;

BlockStep Blocks::claim(comm::Blocking& io, BlockId b, BlockEvent event) {
  for (;;) {
    const BlockState s = state(b);
    const BlockStep step = next(s, event);
    if (step.verdict == Verdict::wait) {
      wait_free(io, b);
    } else if (step.verdict != Verdict::proceed || try_claim(b, s, step)) {
      return step;
    }
  }
}

bool Blocks::count_pin(BlockId b, BlockState before, int by) noexcept {
  BlockState after = before;
  after.pins += static_cast<std::uint32_t>(by);
  std::uint32_t expected = before.word();
  return p_.table[b].compare_exchange_strong(expected, after.word());  // seq_cst, as any claim
}

void Blocks::finish(BlockId b, const BlockState& before, const BlockState& after) noexcept {
  KASANE_ASSERT(after.check() && !after.busy);
  KASANE_ASSERT(state(b).busy);
  if (before.dirty() && !after.dirty()) {
    p_.changed.erase(b);
    p_.sharing.remove_dirty();  // after remote completion
  }
  if (!before.owned && (after.owned || after.access == Access::none)) p_.cached.erase(b);
  // release: the next holder of the bit sees M, T and the sets as this thread leaves them.
  p_.table[b].store(after.word(), std::memory_order_release);
}

void Blocks::protect(BlockRange run, Access access) noexcept {
  for (int attempt = 0; !p_.engine.protect(run, access); ++attempt) {
    KASANE_CHECK(attempt < 100, "the kernel allows no more mappings: raise vm.max_map_count");
    make_room();
  }
}

void Blocks::make_room() noexcept {
  p_.cached.for_each([&](BlockId b) {
    const BlockState s = state(b);
    const BlockStep step = next(s, BlockEvent::acquire);
    if (step.verdict != Verdict::proceed || s.dirty() || s.pins != 0 || !try_claim(b, s, step)) return;
    // where splitting a mapping is refused, dropping its neighbours will do
    finish(b, s, p_.engine.protect({b, 1}, Access::none) ? step.after : s);
  });
}

// V needs care where page tables go: a system call's use of a view relies on V's translations; and where
// protection is kept in page-table markers, dropping a table would make a read-only block writable. So all
// blocks of the range are claimed: they are invalid, and no thread changes their access meanwhile. Other
// threads see bits that are held as for a fault. A and T, and other ranks' M, are plain shared mappings,
// whose translations may be dropped at any time. The block table's own page is dropped last: its words become
// 0 all at once, which clears the bits. No other thread changes the word of a claimed block.
bool Blocks::give_tables_back(BlockRange range) noexcept {
  constexpr BlockState kInvalid{};
  static_assert(kInvalid.word() == 0);
  const std::uint64_t first = raw(range.first), end = first + range.count;
  // most ranges that are in use are so from their beginning
  for (std::uint64_t b = first; b < end; ++b) {
    if (state(BlockId{b}) != kInvalid) return false;
  }
  std::uint64_t claimed = first;
  const auto give_back = [&] {
    while (claimed-- != first) finish(BlockId{claimed}, kInvalid, kInvalid);
    return false;
  };
  const BlockStep step = next(kInvalid, BlockEvent::evict);
  for (; claimed < end; ++claimed) {
    if (!try_claim(BlockId{claimed}, kInvalid, step)) return give_back();
  }
  p_.engine.give_tables_back(range);
  const std::uint64_t offset = mem::offset_of(range.first), bytes = range.count * mem::kBlockBytes;
  for (std::byte* view : {p_.space.a(offset), p_.space.t(offset)}) mem::drop_translations(view, bytes);
  if (!p_.table.drop(range)) give_back();  // 0 is an invalid block, free
  return true;
}

}  // namespace kasane::dsm
