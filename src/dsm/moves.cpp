// SPDX-License-Identifier: Apache-2.0
// This rank's part in moves of pages (gas::Mover): a page leaves; or it arrives and is merged with changes
// made here (rules 4 and 8).
#include <algorithm>
#include <array>
#include <bitset>
#include <span>

#include "dsm/coherence.h"
#include "traps/restartable.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

gas::YieldAnswer Coherence::yield(PageId page) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  // owned blocks; a page may have others, which no fault has armed
  BlocksOfAPage taken;
  const auto answer = [&] {
    for (std::uint64_t i = 0; i < all.count; ++i) {
      const BlockId b = block_at(all.first, i);
      const BlockState s = state(b);
      const BlockStep step = next(s, BlockEvent::yield);
      if (step.verdict == Verdict::refuse) return gas::YieldAnswer::pinned;
      if (step.verdict == Verdict::done) continue;
      if (step.verdict == Verdict::wait || !try_claim(b, s, step)) return gas::YieldAnswer::retry;
      taken[i] = true;
    }
    return gas::YieldAnswer::yielded;
  }();
  for (std::uint64_t i = 0; i < all.count;) {
    std::uint64_t end = i;
    while (end < all.count && taken[end]) ++end;
    const BlockRange run{block_at(all.first, i), end - i};
    if (answer != gas::YieldAnswer::yielded) {
      unclaim(run.first, run.count);
    } else if (run.count != 0) {
      protect(run, Access::none);
      for (std::uint64_t k = 0; k < run.count; ++k) finish(block_at(run.first, k), BlockState{});
    }
    i = end + 1;
  }
  // Whatever looked at the blocks' words before has changed a byte by now, or looks again. seq_cst: a thread
  // that is allowed to do so later sees the claims.
  if (answer == gas::YieldAnswer::yielded && restartable_.load()) traps::restart_sequences();
  return answer;
}

/// Clears the busy bits of claimed blocks, which stay as they were.
void Coherence::unclaim(BlockId first, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    BlockState s = state(block_at(first, i));
    s.busy = false;
    finish(block_at(first, i), s);
  }
}

gas::Claim Coherence::claim(comm::Blocking& io, PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    // Movers claim in ascending order; other threads that hold a bit never wait for a second one.
    if (claim_block(io, block_at(all.first, i), BlockEvent::arrive).verdict == Verdict::proceed) continue;
    unclaim(all.first, i);
    return gas::Claim::ours;
  }
  return gas::Claim::taken;
}

/// Claims all of the run, or nothing. proceed: all. Else the verdict of the first block that could not be
/// claimed; wait: another thread was faster.
Verdict Coherence::try_claim(BlockRange run, BlockEvent event) noexcept {
  for (std::uint64_t i = 0; i < run.count; ++i) {
    const BlockId b = block_at(run.first, i);
    const BlockState s = state(b);
    const BlockStep step = next(s, event);
    if (step.verdict == Verdict::proceed && try_claim(b, s, step)) continue;
    unclaim(run.first, i);
    return step.verdict == Verdict::proceed ? Verdict::wait : step.verdict;
  }
  return Verdict::proceed;
}

gas::Claim Coherence::try_claim(PageId page) noexcept {
  switch (try_claim(pages_.blocks_of(page), BlockEvent::arrive)) {
    case Verdict::proceed: return gas::Claim::taken;
    case Verdict::done: return gas::Claim::ours;
    default: return gas::Claim::in_use;
  }
}

void Coherence::claim_for_page_in(comm::Blocking& io, PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  // in ascending order, as movers do
  for (std::uint64_t b = raw(all.first); b < end_of(all); ++b)
    claim_block(io, BlockId{b}, BlockEvent::page_in);
}

bool Coherence::try_claim_for_page_in(PageId page) noexcept {
  return try_claim(pages_.blocks_of(page), BlockEvent::page_in) == Verdict::proceed;
}

void Coherence::unclaim(PageId page) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  unclaim(all.first, all.count);
}

/// Calls part(offset, bytes, has a twin) for the live bytes of the page in order: blocks without a twin in
/// runs, blocks with one singly, whole ones not at all.
template <class F>
void Coherence::for_each_arriving(PageId page, gas::ByteRange live, const F& part) const {
  const std::uint64_t end = std::min(live.end, pages_.end_of(page));
  const auto end_of_block = [end](std::uint64_t offset) {
    return std::min(end, mem::offset_of(mem::block_of(offset)) + kBlockBytes);
  };
  for (std::uint64_t at = std::max(live.begin, pages_.offset_of(page)); at < end;) {
    std::uint64_t next_at = end_of_block(at);
    const BlockState s = state(mem::block_of(at));
    while (!s.dirty() && next_at < end && !state(mem::block_of(next_at)).dirty())
      next_at = end_of_block(next_at);
    if (!s.whole) part(at, next_at - at, s.twin);
    at = next_at;
  }
}

/// A page of which no block has changes here is simply copied.
std::span<std::byte> Coherence::arrival_frame(PageId page, gas::ByteRange live) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  if (live.empty() || all.count * kBlockBytes > comm::kMaxAnswer) return {};
  for (std::uint64_t i = 0; i < all.count; ++i) {
    if (state(block_at(all.first, i)).dirty()) return {};
  }
  return {space_.a(pages_.offset_of(page)), all.count * kBlockBytes};
}

void Coherence::begin_merge(comm::Batch& batch, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) batch.read({from, gas::kFrames, at}, space_.a(at), bytes);
  });
}

/// This rank's threads may be storing to blocks with a twin: only bytes that they have not changed are taken
/// (rule 4).
void Coherence::end_merge(comm::Blocking& io, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) return;
    alignas(8) std::byte fresh[kBlockBytes];
    io.read({from, gas::kFrames, at}, fresh, bytes);
    std::byte *mine = space_.a(at), *base = space_.t(at);
    if (races_ != nullptr) tell_races(io.counters(), *races_, at, bytes, base, mine, fresh);
    for (std::size_t k = 0; k < bytes; ++k) {
      if (fresh[k] != base[k]) mine[k] = fresh[k];
    }
  });
}

/// Which blocks of a page of this rank's V allows from now on: those that it allowed before, that have
/// frames, or that are about to be used. For the others the engine would make frames of zeros, though no
/// thread may ever touch them: they are retired, and the first access opens them.
Coherence::BlocksOfAPage Coherence::opened(BlockRange page, const Stripe& used) const noexcept {
  BlocksOfAPage open;
  if (used.count == page.count || !engine_.makes_frames(page.first)) return open.set();
  std::array<unsigned char, mem::kMostBlocksOfAPage> has;
  mem::look_for_frames(space_.a(mem::offset_of(page.first)), std::span(has).first(page.count));
  for (std::uint64_t i = 0; i < page.count; ++i) {
    const BlockId b = block_at(page.first, i);
    open[i] = (has[i] & 1) != 0 || used.contains(b) || state(b).access != Access::none;
  }
  return open;
}

void Coherence::settle_touched(PageId page, BlockRange used) {
  const BlockRange all = pages_.blocks_of(page);
  const BlocksOfAPage open = opened(all, {used.first, 1, static_cast<std::uint32_t>(used.count)});
  // Not earlier: a release of this rank would take the mark while other ranks still join the old owner's
  // readers. If the entry is still being written, end_entry_update() marks the page once more.
  sharing_.mark(page);
  fill(all);
  for (std::uint64_t i = 0, end; i < all.count; i = end + 1) {
    for (end = i; end < all.count && open[end];) ++end;
    if (end != i) protect(BlockRange{block_at(all.first, i), end - i}, Access::write);
  }
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    BlockState s = state(b);
    if (s.dirty()) mark_clean(b);
    cached_.erase(b);
    s.busy = false;
    // as after BlockEvent::arrive; a page that was paged in had owned blocks
    const BlockState after = next(s, BlockEvent::page_in).after;
    finish(b, open[i] ? after : next(after, BlockEvent::retire).after);
  }
}

/// Unless it has something after all: a copy of before this rank owned the page.
void Coherence::settle_unused(PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    BlockState s = state(block_at(all.first, i));
    s.busy = false;
    if (s != BlockState{}) return settle(page);
  }
  fill(all);
  unclaim(page);
}

/// Counts like a changed block: a release that begins from now on waits for it.
void Coherence::begin_entry_update() noexcept { sharing_.add_dirty(); }

/// Ranks that have a copy get a notice at the next release of this rank, before the memory can be given to
/// another thread.
void Coherence::replaced(PageId page) noexcept { sharing_.changed(page, gas::kAllParts); }

void Coherence::end_entry_update(PageId page) noexcept {
  // again: a release that began before the page arrived may have taken settle()'s mark while other ranks
  // still joined the old owner's readers
  sharing_.mark(page);
  sharing_.remove_dirty();
}

}  // namespace kasane::dsm
