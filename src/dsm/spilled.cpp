// SPDX-License-Identifier: Apache-2.0
// Blocks of this rank's pages that are on SSD: they are read singly, and their page stays partial
// (docs/design/tiers.md).
//
//   the fault holds its block's bit, and those of the blocks that follow ─▶ word 0 is partial
//     ─▶ read, waited for ─▶ armed, free
//   its sweep goes on: claims further windows ─▶ partial ─▶ a background read (mem/spill_reader.h)
//     ─▶ armed, free; but for a window now and then
//
// Where the fault engine can do so, bytes in a bounce buffer become a frame and visible in V in one step
// (mem/bounce_buffers.h). Then a load, or a store where the block is wanted for that, may succeed before the
// block is armed and its bit cleared (background_read.h). What was wanted for loads is armed for reading and
// is saved: it is evicted without a write, unless a store comes, which faults first. Without a hint, one
// window in 512 KiB, the first of a background read, has its bytes but is invisible: a thread that gets there
// faults, without waiting, and starts the next background reads.
#include <algorithm>
#include <array>
#include <bit>
#include <bitset>

#include "base/trace.h"
#include "dsm/background_read.h"
#include "dsm/coherence.h"
#include "dsm/read_back.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

Coherence::~Coherence() = default;

void Coherence::make_background_reads() {
  background_reads_ = std::make_unique<BackgroundRead[]>(kBackgroundReads);
  for (std::uint32_t i = 0; i < kBackgroundReads; ++i) {
    background_reads_[i].coherence = this;
    background_reads_[i].index = i;
    background_reads_[i].completed = [](mem::SpillRead& ended) noexcept {
      const auto& background = static_cast<BackgroundRead&>(ended);
      Coherence& c = *background.coherence;
      c.reads_under_way_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: for a counter
      c.complete_read(background);
      c.free_background_reads_.put(background.index);
      c.wake_waiting();
    };
  }
}

/// The caller holds the bits of `blocks`, b's among them, which are invalid, and has found that this rank has
/// their page on SSD or partial. The bits are free when this returns.
Coherence::Fault Coherence::bring_blocks(ThreadContext& ctx, BlockId b, const Stripe& blocks,
                                         BlockEvent event, gas::Location found) {
  const PageId page = pages_.page_of(b);
  if (!tiers_->make_partial(ctx.io, page, found)) {
    blocks.for_each([&](BlockId claimed) { finish(claimed, BlockState{}); });
    return Fault::again;
  }
  const BlockStep step = found_on_ssd(state(b), event);
  const BlockStep others = found_on_ssd(state(b), step.after.saved ? BlockEvent::load : BlockEvent::store);
  const Access right = step.after.saved ? Access::read : Access::write;
  blocks.for_each([&](BlockId claimed) {
    if (event == BlockEvent::pin_whole || !tiers_->stored(claimed)) fill_otherwise({claimed, 1});
  });
  if (right == Access::write) sharing_.mark(page);
  if (event != BlockEvent::pin_whole) {
    read_ahead(ctx, b, event);  // so that these reads run, too
    ReadBack incoming(*this);
    blocks.for_each_run([&](BlockRange run) { incoming.add(run, step.after.saved); });
    const Traced traced(&ctx.counters, TraceKind::fetch, blocks.count * kBlockBytes);
    incoming.read(ctx.io, right);
  }
  protect(blocks, right);
  blocks.for_each([&](BlockId brought) { finish(brought, brought == b ? step.after : others.after); });
  if (event == BlockEvent::store) arm_small_pages(ctx.io, b);
  return Fault::served;
}

/// After a store to a page of one block: the other pages of its 64 KiB become writable, too, as far as they
/// are this rank's and have no bytes yet. A program that allocates many small pages stores to most of them.
void Coherence::arm_small_pages(comm::Blocking& io, BlockId b) noexcept {
  constexpr std::uint64_t kTogether = mem::kPageBytes / kBlockBytes;
  if (pages_.bytes_of(pages_.page_of(b)) != kBlockBytes || !residency_->admitted(kTogether)) return;
  const BlockRange all{BlockId{raw(b) / kTogether * kTogether}, kTogether};
  const PageId first = pages_.page_of(all.first);
  std::bitset<kTogether> held, own;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = state(block_at(all.first, i));
    const BlockStep step = next(s, BlockEvent::store);
    held[i] = step.verdict == Verdict::proceed && step.actions[0] == Action::fetch &&
              try_claim(block_at(all.first, i), s, step);
  }
  if (held.none()) return;
  directory_.look_at(io, first, kTogether, [&](PageId page, const gas::Location& where) {
    const std::uint64_t i = raw(page) - raw(first);
    // stored() is asked only now: before it was claimed the block may have been evicted, with bytes
    own[i] = held[i] && !tiers_->stored(block_at(all.first, i)) && !where.busy &&
             gas::owned_on_ssd(where, transport_.rank()) && tiers_->make_partial(io, page, where);
  });
  for (std::uint64_t begin = 0, end; begin < all.count; begin = end + 1) {
    for (end = begin; end < all.count && own[end];) sharing_.mark(PageId{raw(first) + end++});
    if (begin == end) continue;
    fill({block_at(all.first, begin), end - begin});
    protect(BlockRange{block_at(all.first, begin), end - begin}, Access::write);
  }
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId block = block_at(all.first, i);
    if (held[i]) finish(block, own[i] ? found_on_ssd(state(block), BlockEvent::store).after : BlockState{});
  }
}

/// Reads ahead in b's sweep, if it is long enough: in several background reads, so that the first ends, and
/// is used, while the others are outstanding. Every other one begins with an invisible window. Waits for no
/// bit, so the caller may hold some. event: what b is wanted for.
void Coherence::read_ahead(ThreadContext& ctx, BlockId b, BlockEvent event) {
  const bool loads = event == BlockEvent::load || event == BlockEvent::pin_read;
  // then the next hint asks for more, and no fault is needed for that
  const bool hinted = event != BlockEvent::load && event != BlockEvent::store;
  const gas::ReadAhead::Plan plan =
      tiers_->plan(mem::offset_of(b), loads ? gas::ReadAhead::Purpose::load : gas::ReadAhead::Purpose::store);
  const std::uint32_t together = std::clamp(plan.pieces / 2, 1u, kPiecesPerRead);
  BlockId first = kNoWindow;
  for (std::uint32_t done = 0; done < plan.pieces; done += together) {
    const std::uint32_t index = free_background_reads_.take();
    if (index == comm::IndexPool<>::kNone) return;
    BackgroundRead& background = background_reads_[index];
    background.runs.clear();
    if (done / together % 2 == 0 && !hinted)
      first = mem::block_of(static_cast<std::uint64_t>(plan.first + plan.stride * done) *
                            gas::Tiers::kPieceBytes);
    background.first = first;
    background.wanted_for = loads ? BlockEvent::load : BlockEvent::store;
    claim_ahead(ctx.io, b,
                {plan.first + plan.stride * done, plan.stride, std::min(together, plan.pieces - done)},
                background);
    start_read(ctx, background);
  }
}

void Coherence::start_read(ThreadContext& ctx, BackgroundRead& background) {
  background.ranges = background.runs.all();
  background.view = {&engine_,
                     {background.first, kWindowBlocks},
                     background.wanted_for == BlockEvent::load ? Access::read : Access::write};
  std::uint64_t bytes = 0;
  for (const mem::SpillRange& range : background.ranges) bytes += range.bytes;
  const std::size_t runs = background.ranges.size();
  // relaxed: for a counter
  const bool beside = runs != 0 && reads_under_way_.fetch_add(1, std::memory_order_relaxed) != 0;
  if (runs != 0 && tiers_->submit(background)) {
    count(ctx.counters.bytes_read_back, bytes);
    if (beside || runs > 1) count(ctx.counters.reads_together, runs);
    return;
  }
  if (runs != 0) {
    reads_under_way_.fetch_sub(1, std::memory_order_relaxed);
    tiers_->read(ctx.io, background.ranges, background.view);
    complete_read(background);
  }
  free_background_reads_.put(background.index);
  wake_waiting();
}

/// The bytes are in M.
void Coherence::complete_read(const BackgroundRead& background) noexcept {
  for (const mem::SpillRange& range : background.ranges) {
    const BlockRange run{mem::block_of(range.offset), range.bytes / kBlockBytes};
    const auto retired = [&](std::uint64_t i) {
      return raw(block_at(run.first, i)) - raw(background.first) < kWindowBlocks;
    };
    for (std::uint64_t i = 0; i < run.count;) {
      std::uint64_t end = i + 1;
      while (end < run.count && retired(end) == retired(i)) ++end;
      const bool retires = retired(i);
      if (!retires) protect({block_at(run.first, i), end - i}, background.view.access);
      for (; i < end; ++i) {
        const BlockState after = found_on_ssd(state(block_at(run.first, i)), background.wanted_for).after;
        finish(block_at(run.first, i), retires ? next(after, BlockEvent::retire).after : after);
      }
    }
  }
}

/// Claims those blocks of the planned pieces that are stored, not in DRAM, and free. Their pages become
/// partial.
void Coherence::claim_ahead(comm::Blocking& io, BlockId b, const gas::ReadAhead::Plan& plan,
                            BackgroundRead& background) {
  const std::uint64_t page_bytes = pages_.bytes_of(pages_.page_of(b)),
                      part = std::min(page_bytes, gas::Tiers::kPieceBytes);
  for (std::uint32_t i = 0; i < plan.pieces; ++i) {
    const std::uint64_t piece =
        static_cast<std::uint64_t>(plan.first + plan.stride * i) * gas::Tiers::kPieceBytes;
    for (std::uint64_t at = piece; at < piece + gas::Tiers::kPieceBytes; at += part) {
      if (!residency_->counts(at) || pages_.bytes_of(pages_.page_of(mem::block_of(at))) != page_bytes) return;
      if (tiers_->stored(mem::block_of(at)))
        claim_part(io, {mem::block_of(at), part / kBlockBytes}, background);
    }
  }
}

/// Blocks of one page. Waits for nothing but word 0.
void Coherence::claim_part(comm::Blocking& io, BlockRange part, BackgroundRead& background) {
  Mask mask = 0;
  for (unsigned i = 0; i < part.count; ++i) {
    const BlockId b = block_at(part.first, i);
    const BlockState s = state(b);
    const BlockStep step = next(s, BlockEvent::load);
    if (step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && tiers_->stored(b) &&
        try_claim(b, s, step))
      mask |= Mask{1} << i;
  }
  if (mask == 0) return;
  const PageId page = pages_.page_of(part.first);
  const gas::Location found = directory_.lookup(io, page);
  if (!gas::owned_on_ssd(found, transport_.rank()) || !tiers_->make_partial(io, page, found)) {
    for_each_run(mask, [&](unsigned first, unsigned n) { unclaim(block_at(part.first, first), n); });
    return;
  }
  if (background.wanted_for == BlockEvent::store) sharing_.mark(page);
  fill_staged(part.first, mask);
  for_each_run(mask, [&](unsigned first, unsigned n) {
    mem::append(background.runs, {mem::offset_of(block_at(part.first, first)), n * kBlockBytes});
  });
}

}  // namespace kasane::dsm
