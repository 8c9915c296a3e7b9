// SPDX-License-Identifier: Apache-2.0
// Memory that is reused: fresh pages become this rank's, freed bytes are never sent, and copies of what other
// ranks used before are dropped (rule 7).
#include <algorithm>
#include <bitset>
#include <cstring>

#include "base/assert.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

namespace {
constexpr std::uint64_t kMostBlanked = 512;  ///< blocks that are claimed at once
}

void Coherence::arm_owned(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  KASANE_CHECK(pages_.whole(offset, bytes));
  const mem::PageRange range = pages_.in(offset, bytes);
  std::uint64_t run = range.first;  // pages [run, page) are claimed
  for (std::uint64_t at = range.first; at < range.last; ++at) {
    const PageId page{at};
    const BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = raw(all.first); b < end_of(all); ++b)
      claim_block(io, BlockId{b}, BlockEvent::arrive_blank);
    const bool evicts = residency_ != nullptr && residency_->counts(page);
    if (!evicts && (auto_relocator_ == nullptr || !auto_relocator_->may_relocate(page))) continue;
    // A rank that used this memory before it was freed may be moving it to itself, or it is on SSD or on its
    // way there. While this thread holds the bits this rank answers no yield request; what it answered before
    // shows here.
    const gas::Location where = directory_.lookup(io, page);
    if (where.owner == transport_.rank() && !where.busy && where.tier == gas::Tier::dram) continue;
    // On this rank's SSD, or partial: nothing of it need be read.
    const bool on_ssd = gas::owned_on_ssd(where, transport_.rank());
    if (on_ssd && residency_->admitted(all.count) &&
        directory_.replace(io, page, where, gas::in_tier(where, gas::Tier::dram)))
      continue;
    unclaim(all.first, all.count);
    arm_claimed(run, raw(page));  // hold nothing while this thread may wait
    run = raw(page);
    if (where.owner == transport_.rank()) {
      admit(io, page);
      if (where.busy) io.waiter().pause();
      --at;
      continue;
    }
    KASANE_CHECK(mover_.bring(io, page, {}).has_value(), "memory that is allocated anew is pinned elsewhere");
    run = raw(page) + 1;
  }
  arm_claimed(run, range.last);
}

/// Makes pages [first, last) owned and writable; the caller holds their blocks' bits.
void Coherence::arm_claimed(std::uint64_t first, std::uint64_t last) noexcept {
  if (first == last) return;
  for (std::uint64_t page = first; page < last; ++page) sharing_.mark(PageId{page});
  const BlockRange all{mem::block_of(pages_.offset_of(PageId{first})),
                       (pages_.end_of(PageId{last - 1}) - pages_.offset_of(PageId{first})) / kBlockBytes};
  fill(all);
  protect(all, Access::write);
  for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) {
    BlockState before = state(BlockId{b});
    if (before.dirty()) mark_clean(BlockId{b});
    cached_.erase(BlockId{b});
    before.busy = false;
    finish(BlockId{b}, next(before, BlockEvent::arrive_blank).after);
  }
}

/// Does the event change the block's state? The heap asks for whole ranges, of which most blocks are not
/// cached, for each group that it takes and each object that is freed. So the answer is one load, and the
/// compiler drops the rest of next().
template <BlockEvent event>
[[gnu::flatten]] bool Coherence::concerns(BlockId b) const noexcept {
  return next(BlockState::of(table_[b].load()), event).verdict != Verdict::done;
}

void Coherence::take(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    if (concerns<BlockEvent::acquire>(BlockId{b})) fence_block(io, nullptr, BlockId{b}, BlockEvent::acquire);
  }
}

void Coherence::discard(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    const BlockId block{b};
    if (!concerns<BlockEvent::acquire>(block)) continue;  // no copy here: then there are no changes either
    const std::uint64_t begin = std::max(offset, b * kBlockBytes),
                        end = std::min(offset + bytes, (b + 1) * kBlockBytes);
    const BlockStep step =
        claim_block(io, block, end - begin == kBlockBytes ? BlockEvent::discard_block : BlockEvent::discard);
    if (step.verdict == Verdict::proceed && step.actions[0] == Action::restore_bytes) {
      std::memcpy(space_.a(begin), space_.t(begin), end - begin);
      finish(block, step.after);
    } else if (step.verdict == Verdict::proceed) {
      carry_out_fence(io, nullptr, block, step);
    }
    // After a direct put of the bytes the copy differs from the owner's: a store of the value that the copy
    // happens to hold would make no diff.
    if (sharing_.may_have_notice(pages_.page_of(mem::offset_of(block))))
      fence_block(io, nullptr, block, BlockEvent::acquire);
  }
}

/// Whole blocks of the range that belong to partial pages of this rank are not written when they are evicted,
/// and are evicted before others.
void Coherence::blank(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  if (tiers_ == nullptr || !tiers_->stores_any()) return;  // no page is partial that was once here as a whole
  const std::uint64_t end = (offset + bytes) / kBlockBytes;
  for (std::uint64_t first = (offset + kBlockBytes - 1) / kBlockBytes; first < end; first += kMostBlanked)
    blank(io, {BlockId{first}, std::min(end - first, kMostBlanked)});
}

/// For now: the next user of the page reports it to residency_, too.
bool Coherence::is_blank(PageId page) const noexcept {
  for (std::uint64_t i = 0; i < pages_.blocks_of(page).count; ++i) {
    const BlockId b = block_at(pages_.blocks_of(page).first, i);
    if (state(b).access != Access::none || (state(b).owned && !state(b).saved) || tiers_->stored(b))
      return false;
  }
  return true;
}

/// Waits for nothing but word 0 of pages: a thread that holds a block is about to use it.
void Coherence::blank(comm::Blocking& io, BlockRange all) {
  std::bitset<kMostBlanked> held;
  const auto state_of = [&](std::uint64_t i) {
    BlockState s = state(block_at(all.first, i));
    s.busy = false;
    return s;
  };
  for (std::uint64_t begin = 0, end; begin < all.count; begin = end) {
    const PageId page = pages_.page_of(block_at(all.first, begin));
    const BlockRange blocks = pages_.blocks_of(page);
    end = std::min(all.count, end_of(blocks) - raw(all.first));
    const auto in_part = [&] { return gas::owned_on_ssd(directory_.lookup(io, page), transport_.rank()); };
    if (!residency_->counts(page) || directory_.near_owner(page) != transport_.rank() || !in_part()) continue;
    for (std::uint64_t i = begin; i < end; ++i) {
      const BlockState s = state(block_at(all.first, i));
      const BlockStep step = next(s, BlockEvent::blank);
      held[i] = step.verdict == Verdict::proceed && try_claim(block_at(all.first, i), s, step);
    }
    // While this thread holds one of its bits the page stays where it is.
    if (!in_part()) {
      for (std::uint64_t i = begin; i < end; ++i) {
        if (held[i]) finish(block_at(all.first, i), state_of(i));
        held[i] = false;
      }
    }
  }
  for (std::uint64_t begin = 0, end; begin < all.count; begin = end + 1) {
    for (end = begin; end < all.count && held[end];) ++end;
    if (begin == end) continue;
    const BlockRange run{block_at(all.first, begin), end - begin};
    protect(run, Access::none);
    for (std::uint64_t i = begin; i < end; ++i) tiers_->forget(block_at(all.first, i));
    for (std::uint64_t i = begin; i < end; ++i)
      finish(block_at(all.first, i), next(state_of(i), BlockEvent::blank).after);
    for (const PageId page : pages_.in(mem::offset_of(run.first), run.count * kBlockBytes)) {
      replaced(page);  // copies elsewhere are not what this rank has any more
      if (is_blank(page)) residency_->note_freed({raw(page), raw(page) + 1});
    }
  }
}

}  // namespace kasane::dsm
