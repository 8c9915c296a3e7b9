// SPDX-License-Identifier: Apache-2.0
// Memory that is reused: fresh pages become this rank's, freed bytes are never sent, and copies of what other
// ranks used before are dropped (rule 7).
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/assert.h"
#include "dsm/fence.h"
#include "dsm/moves.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

void Moves::arm_owned(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  KASANE_CHECK(pages_.whole(offset, bytes));
  const mem::PageRange range = pages_.in(offset, bytes);
  for (std::uint64_t at = range.first; at < range.last;) {
    Held held(blocks_, BlockRange{pages_.blocks_of(PageId{at}).first, 0});
    std::optional<gas::Location> elsewhere;
    while (at < range.last && held.size() + pages_.blocks_of(PageId{at}).count <= Held::kMost) {
      elsewhere = claim_fresh(io, held, PageId{at});
      if (elsewhere) break;
      ++at;
    }
    arm(held);
    if (!elsewhere) continue;
    // hold nothing while this thread may wait
    const PageId page{at};
    if (elsewhere->owner == p_.me()) {
      tiering_.admit(io, page);
      if (elsewhere->busy) io.waiter().pause();
      continue;
    }
    KASANE_CHECK(mover_.bring(io, page, {}).has_value(), "memory that is allocated anew is pinned elsewhere");
    ++at;
  }
}

/// Claims the page's blocks after those that are held; or claims nothing and returns where the page is, if it
/// must be brought, or waited for.
std::optional<gas::Location> Moves::claim_fresh(comm::Blocking& io, Held& held, PageId page) {
  const std::uint64_t before = held.size(), blocks = pages_.blocks_of(page).count;
  held.extend_by(blocks, BlockEvent::arrive_blank, &io);
  if (!frames_.counts(page) && (p_.auto_relocator == nullptr || !p_.auto_relocator->may_relocate(page)))
    return std::nullopt;
  // A rank that used this memory before it was freed may be moving it to itself, or it is on SSD or on its
  // way there. While this thread holds the bits this rank answers no yield request; what it answered before
  // shows here.
  const gas::Location where = directory_.lookup(io, page);
  if (where.owner == p_.me() && !where.busy && where.tier == gas::Tier::dram) return std::nullopt;
  // On this rank's SSD, or partial: nothing of it need be read.
  if (gas::owned_on_ssd(where, p_.me()) && frames_.admitted(blocks) &&
      directory_.replace(io, page, where, gas::in_tier(where, gas::Tier::dram)))
    return std::nullopt;
  held.shorten(before);
  return where;
}

/// The blocks of whole pages become owned and writable.
void Moves::arm(Held& held) noexcept {
  held.for_each_run([&](BlockRange run) {
    for (const PageId page : pages_.in(mem::offset_of(run.first), run.count * kBlockBytes))
      p_.sharing.mark(page);
    frames_.fill(run);
  });
  held.open(BlockEvent::arrive_blank);
}

/// Does the event change the block's state? The heap asks for whole ranges, of which most blocks are not
/// cached, for each group that it takes and each object that is freed. So the answer is one load, and the
/// compiler drops the rest of next().
template <BlockEvent event>
[[gnu::flatten]] bool Moves::concerns(BlockId b) const noexcept {
  return next(blocks_.state(b), event).verdict != Verdict::done;
}

void Moves::take(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    if (concerns<BlockEvent::acquire>(BlockId{b}))
      fences_.fence(io, nullptr, BlockId{b}, BlockEvent::acquire);
  }
}

void Moves::discard(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    const BlockId block{b};
    if (!concerns<BlockEvent::acquire>(block)) continue;  // no copy here: then there are no changes either
    const std::uint64_t begin = std::max(offset, b * kBlockBytes),
                        end = std::min(offset + bytes, (b + 1) * kBlockBytes);
    const BlockEvent event = end - begin == kBlockBytes ? BlockEvent::discard_block : BlockEvent::discard;
    Held held(blocks_, block);
    BlockStep step = held.claim(io, 0, event);
    while (step.verdict == Verdict::proceed && step.actions[0] != Action::restore_bytes &&
           !Fence(fences_, io, nullptr, event).take(held, step))
      step = held.claim(io, 0, event);
    if (step.actions[0] == Action::restore_bytes)
      std::memcpy(p_.space.a(begin), p_.space.t(begin), end - begin);
    held.give_back();
    // After a direct put of the bytes the copy differs from the owner's: a store of the value that the copy
    // happens to hold would make no diff.
    if (p_.sharing.may_have_notice(pages_.page_of(mem::offset_of(block))))
      fences_.fence(io, nullptr, block, BlockEvent::acquire);
  }
}

}  // namespace kasane::dsm
