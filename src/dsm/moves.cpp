// SPDX-License-Identifier: Apache-2.0
#include "dsm/moves.h"

#include <algorithm>
#include <span>

#include "dsm/opened.h"
#include "mem/restartable.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

gas::YieldAnswer Moves::yield(PageId page) noexcept {
  // owned blocks; a page may have others, which no fault has armed
  Held owned(blocks_, pages_.blocks_of(page));
  for (std::uint64_t i = 0; i < owned.size(); ++i) {
    const Verdict verdict = owned.try_claim(i, BlockEvent::yield);
    if (verdict == Verdict::refuse) return gas::YieldAnswer::pinned;
    if (verdict == Verdict::wait) return gas::YieldAnswer::retry;
  }
  owned.open_as(BlockState{});
  // Whatever looked at the blocks' words before has changed a byte by now, or looks again. seq_cst: a thread
  // that is allowed to do so later sees the claims.
  if (restartable_.load()) mem::restart_sequences();
  return gas::YieldAnswer::yielded;
}

// Movers claim in ascending order; other threads that hold a bit never wait for a second one.

gas::Claim Moves::claim(comm::Blocking& io, PageId page) {
  Held held(blocks_, pages_.blocks_of(page));
  if (!held.claim_all(io, BlockEvent::arrive)) return gas::Claim::ours;
  held.keep();
  return gas::Claim::taken;
}

gas::Claim Moves::try_claim(PageId page) noexcept {
  Held held(blocks_, pages_.blocks_of(page));
  const Verdict verdict = held.try_claim_all(BlockEvent::arrive);
  held.keep();
  return verdict == Verdict::proceed ? gas::Claim::taken
         : verdict == Verdict::done  ? gas::Claim::ours
                                     : gas::Claim::in_use;
}

void Moves::claim_for_page_in(comm::Blocking& io, PageId page) {
  Held held(blocks_, pages_.blocks_of(page));
  held.claim_all(io, BlockEvent::page_in);
  held.keep();
}

bool Moves::try_claim_for_page_in(PageId page) noexcept {
  Held held(blocks_, pages_.blocks_of(page));
  const bool claimed = held.try_claim_all(BlockEvent::page_in) == Verdict::proceed;
  held.keep();
  return claimed;
}

void Moves::unclaim(PageId page) noexcept {
  Held held(blocks_, pages_.blocks_of(page));
  held.adopt();
}

/// Calls part(offset, bytes, has a twin) for the live bytes of the page in order: blocks without a twin in
/// runs, blocks with one singly, whole ones not at all.
template <class F>
void Moves::for_each_arriving(PageId page, gas::ByteRange live, const F& part) const {
  const std::uint64_t end = std::min(live.end, pages_.end_of(page));
  const auto end_of_block = [end](std::uint64_t offset) {
    return std::min(end, mem::offset_of(mem::block_of(offset)) + kBlockBytes);
  };
  for (std::uint64_t at = std::max(live.begin, pages_.offset_of(page)); at < end;) {
    std::uint64_t next_at = end_of_block(at);
    const BlockState s = blocks_.state(mem::block_of(at));
    while (!s.dirty() && next_at < end && !blocks_.state(mem::block_of(next_at)).dirty())
      next_at = end_of_block(next_at);
    if (!s.whole) part(at, next_at - at, s.twin);
    at = next_at;
  }
}

/// A page of which no block has changes here is simply copied.
std::span<std::byte> Moves::arrival_frame(PageId page, gas::ByteRange live) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  if (live.empty() || all.count * kBlockBytes > comm::kMaxAnswer) return {};
  for (std::uint64_t i = 0; i < all.count; ++i) {
    if (blocks_.state(block_at(all.first, i)).dirty()) return {};
  }
  return {p_.space.a(pages_.offset_of(page)), all.count * kBlockBytes};
}

void Moves::begin_merge(comm::Batch& batch, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) batch.read({from, gas::kFrames, at}, p_.space.a(at), bytes);
  });
}

/// This rank's threads may be storing to blocks with a twin: only bytes that they have not changed are taken
/// (rule 4).
void Moves::end_merge(comm::Blocking& io, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) return;
    alignas(8) std::byte fresh[kBlockBytes];
    io.read({from, gas::kFrames, at}, fresh, bytes);
    std::byte *mine = p_.space.a(at), *base = p_.space.t(at);
    if (p_.races != nullptr) tell_races(io.counters(), *p_.races, at, bytes, base, mine, fresh);
    for (std::size_t k = 0; k < bytes; ++k) {
      if (fresh[k] != base[k]) mine[k] = fresh[k];
    }
  });
}

void Moves::settle_touched(PageId page, BlockRange used) {
  const BlockRange all = pages_.blocks_of(page);
  const BlocksOfAPage open = opened(p_.space, blocks_, all, used.count,
                                    [&](BlockId b) { return raw(b) - raw(used.first) < used.count; });
  // Not earlier: a release of this rank would take the mark while other ranks still join the old owner's
  // readers. If the entry is still being written, end_entry_update() marks the page once more.
  p_.sharing.mark(page);
  frames_.fill(all);
  Held held(blocks_, all);
  held.adopt();
  held.open([&](std::uint64_t i, const BlockState& before) {
    // as after BlockEvent::arrive; a page that was paged in had owned blocks
    const BlockState after = next(before, BlockEvent::page_in).after;
    return open[i] ? after : next(after, BlockEvent::retire).after;
  });
}

/// Unless it has something after all: a copy of before this rank owned the page.
void Moves::settle_unused(PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  Held held(blocks_, all);
  held.adopt();
  for (std::uint64_t i = 0; i < held.size(); ++i) {
    if (held.before(i) == BlockState{}) continue;
    held.keep();
    return settle(page);
  }
  frames_.fill(all);
}

/// Counts like a changed block: a release that begins from now on waits for it.
void Moves::begin_entry_update() noexcept { p_.sharing.add_dirty(); }

/// Ranks that have a copy get a notice at the next release of this rank, before the memory can be given to
/// another thread.
void Moves::replaced(PageId page) noexcept { p_.sharing.changed(page, gas::kAllParts); }

void Moves::end_entry_update(PageId page) noexcept {
  // again: a release that began before the page arrived may have taken settle()'s mark while other ranks
  // still joined the old owner's readers
  p_.sharing.mark(page);
  p_.sharing.remove_dirty();
}

}  // namespace kasane::dsm
