// SPDX-License-Identifier: Apache-2.0
// This rank's part in moves of pages (gas::Mover): a page leaves; or it arrives and is merged with changes
// made here (rules 4 and 8).
#include <algorithm>
#include <array>
#include <bitset>
#include <span>

#include "dsm/coherence.h"
#include "mem/restartable.h"

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
  if (answer == gas::YieldAnswer::yielded && restartable_.load()) mem::restart_sequences();
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

gas::Claim Coherence::claim(PageId page, gas::ClaimFor why, comm::Blocking* waits) {
  const BlockEvent event = why == gas::ClaimFor::arrival ? BlockEvent::arrive : BlockEvent::page_in;
  const BlockRange all = pages_.blocks_of(page);
  if (waits == nullptr) {
    switch (try_claim(all, event)) {
      case Verdict::proceed: return gas::Claim::taken;
      case Verdict::done: return gas::Claim::ours;
      default: return gas::Claim::in_use;
    }
  }
  for (std::uint64_t i = 0; i < all.count; ++i) {
    // Movers claim in ascending order; other threads that hold a bit never wait for a second one.
    if (claim_block(*waits, block_at(all.first, i), event).verdict == Verdict::proceed) continue;
    unclaim(all.first, i);
    return gas::Claim::ours;
  }
  return gas::Claim::taken;
}

gas::BlocksHere Coherence::blocks_here(PageId page) const noexcept {
  const BlockRange all = pages_.blocks_of(page);
  gas::BlocksHere here;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = state(block_at(all.first, i));
    here.held[i] = s.owned || s.dirty();
    here.changed[i] = s.dirty();
    here.saved[i] = s.saved;
  }
  return here;
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

/// Blocks without a twin are simply copied. This rank's threads may be storing to those with one: only bytes
/// that they have not changed are taken (rule 4).
void Coherence::merge(comm::Blocking& io, std::span<const gas::Arrival> arrivals) {
  comm::Batch batch(io);
  for (const gas::Arrival& a : arrivals) {
    for_each_arriving(a.page, a.live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
      if (!twin) batch.read({a.from, gas::kFrames, at}, space_.a(at), bytes);
    });
  }
  batch.await();
  for (const gas::Arrival& a : arrivals) {
    for_each_arriving(a.page, a.live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
      if (!twin) return;
      alignas(8) std::byte fresh[kBlockBytes];
      io.read({a.from, gas::kFrames, at}, fresh, bytes);
      std::byte *mine = space_.a(at), *base = space_.t(at);
      if (races_ != nullptr) tell_races(io.counters(), *races_, at, bytes, base, mine, fresh);
      for (std::size_t k = 0; k < bytes; ++k) {
        if (fresh[k] != base[k]) mine[k] = fresh[k];
      }
    });
  }
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

void Coherence::settle(PageId page, gas::Settled how, BlockRange used) {
  const BlockRange all = pages_.blocks_of(page);
  const auto has_something = [&] {  // an unused page: a copy of before this rank owned it
    for (std::uint64_t i = 0; i < all.count; ++i) {
      BlockState s = state(block_at(all.first, i));
      s.busy = false;
      if (s != BlockState{}) return true;
    }
    return false;
  };
  if (how == gas::Settled::unused && !has_something()) fill(all), how = gas::Settled::as_it_was;
  if (how == gas::Settled::as_it_was) return unclaim(all.first, all.count);
  const BlocksOfAPage open = opened(all, {used.first, 1, static_cast<std::uint32_t>(used.count)});
  // Not earlier: a release of this rank would take the mark while other ranks still join the old owner's
  // readers. If the entry is still being written, entry_written marks the page once more.
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

void Coherence::note(PageId page, gas::PageNews news) noexcept {
  switch (news) {
    case gas::PageNews::entry_under_way:
      // counts like a changed block: a release that begins from now on waits for it
      return sharing_.add_dirty();
    case gas::PageNews::entry_written:
      // again: a release that began before the page arrived may have taken settle()'s mark while other ranks
      // still joined the old owner's readers
      sharing_.mark(page);
      return sharing_.remove_dirty();
    case gas::PageNews::replaced:
      // Ranks that have a copy get a notice at the next release of this rank, before the memory can be given
      // to another thread.
      return sharing_.changed(page, gas::kAllParts);
  }
}

}  // namespace kasane::dsm
