// SPDX-License-Identifier: Apache-2.0
// Memory that changes hands: fresh pages become ours, freed bytes are never sent, and what was used elsewhere is dropped (rule 7).
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

void Coherence::arm_owned(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  KASANE_CHECK(pages_.whole(offset, bytes));
  const mem::PageRange range = pages_.in(offset, bytes);
  std::uint64_t run = range.first;   // pages [run, page) are claimed
  for (std::uint64_t at = range.first; at < range.last; ++at) {
    const PageId page{at};
    const BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) claim_block(io, BlockId{b}, Event::arrive_blank);
    const bool evicts = residency_ != nullptr && residency_->counts(page);
    if (!evicts && (attractor_ == nullptr || !attractor_->draws(page))) continue;
    // A rank that used this memory before it was freed may just draw it away, or it is on SSD or on its way there. While we hold the bits nobody is told that we
    // yield; what was told before shows here.
    const gas::Location where = directory_.lookup(io, page);
    if (where.owner == transport_.rank() && !where.busy && where.tier == gas::Tier::dram) continue;
    // On our SSD, or here in part: nothing of it need be read.
    const bool on_ssd = gas::at_home_on_ssd(where, transport_.rank());
    if (on_ssd && residency_->admitted(all.count) && directory_.replace(io, page, where, gas::in_tier(where, gas::Tier::dram))) continue;
    give_back(all.first, all.count);
    arm_claimed(run, raw(page));   // hold nothing while we may wait
    run = raw(page);
    if (where.owner == transport_.rank()) {
      admit(io, page);
      if (where.busy) io.waiter().pause();
      --at;
      continue;
    }
    KASANE_CHECK(mover_->bring(io, page, {}).has_value(), "memory that is allocated anew is pinned elsewhere");
    run = raw(page) + 1;
  }
  arm_claimed(run, range.last);
}

/// Makes pages [first, last) ours and writable, whose blocks we hold.
void Coherence::arm_claimed(std::uint64_t first, std::uint64_t last) noexcept {
  if (first == last) return;
  for (std::uint64_t page = first; page < last; ++page) sharing_.mark(PageId{page});
  const BlockRange all{mem::block_of(pages_.offset_of(PageId{first})), (pages_.end_of(PageId{last - 1}) - pages_.offset_of(PageId{first})) / kBlockBytes};
  fill(all);
  protect(all, Access::write);
  for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) {
    BlockState before = state(BlockId{b});
    if (before.dirty()) mark_clean(BlockId{b});
    cached_.erase(BlockId{b});
    before.busy = false;
    finish(BlockId{b}, next(before, Event::arrive_blank).after);
  }
}

/// Does the event mean anything to the block? The heap asks for whole ranges, of which most are not cached here, as often as it takes groups, and for each
/// object that is freed: so the answer is one look, and the compiler leaves out all of next() that is about other events.
template <Event event>
[[gnu::flatten]] bool Coherence::concerns(BlockId b) const noexcept {
  return next(BlockState::of(table_[b].load()), event).verdict != Verdict::done;
}

void Coherence::take(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    if (concerns<Event::acquire>(BlockId{b})) fence_block(io, nullptr, BlockId{b}, Event::acquire);
  }
}

void Coherence::discard(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    const BlockId block{b};
    if (!concerns<Event::acquire>(block)) continue;   // no copy here: then there are no changes either
    const std::uint64_t begin = std::max(offset, b * kBlockBytes), end = std::min(offset + bytes, (b + 1) * kBlockBytes);
    const Step step = claim_block(io, block, end - begin == kBlockBytes ? Event::discard_block : Event::discard);
    if (step.verdict == Verdict::proceed && step.actions[0] == Action::restore_bytes) {
      std::memcpy(space_.a(begin), space_.t(begin), end - begin);
      finish(block, step.after);
    } else if (step.verdict == Verdict::proceed) {
      carry_out_fence(io, nullptr, block, step);
    }
    // A direct put of the bytes leaves a copy that is not the owner's: a store of what it happens to hold would make no diff.
    if (sharing_.may_be_told(pages_.page_of(mem::offset_of(block)))) fence_block(io, nullptr, block, Event::acquire);
  }
}

}  // namespace kasane::dsm
