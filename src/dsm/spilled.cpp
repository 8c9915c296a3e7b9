// SPDX-License-Identifier: Apache-2.0
// Blocks of this rank's pages that are on SSD: they come by themselves, and their page stays there, in part (docs/design/tiers.md).
//
//   the fault holds its block's bit, and those of the blocks that follow ─▶ word 0 is partial ─▶ further windows of the sweep: bits tried, partial ─▶ one read of all ─▶ armed, free
//
// What was loaded is armed for reading, and is saved: it goes again unwritten, unless a store comes, which faults first.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/trace.h"
#include "dsm/coherence.h"
#include "dsm/incoming.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

/// Runs of blocks that come with others.
struct Coherence::Ahead {
  std::array<BlockRange, gas::Tiers::kMostAhead> runs;
  std::size_t count = 0;

  void add(BlockRange run) noexcept {
    BlockRange* const last = count == 0 ? nullptr : &runs[count - 1];
    if (last != nullptr && end_of(*last) == raw(run.first)) last->count += run.count;
    else runs[count++] = run;
  }
  [[nodiscard]] std::span<const BlockRange> all() const noexcept { return {runs.data(), count}; }
};

/// The caller holds the bits of `mask` of b's window, which are invalid, and has found their page to be ours, on SSD or in part. Has given them back when this returns.
Coherence::Fault Coherence::bring_blocks(ThreadContext& ctx, BlockId b, Mask mask, Event event, gas::Location found) {
  const BlockId window = window_of(b);
  const PageId page = pages_.page_of(b);
  if (!tiers_->enter(ctx.io, page, found)) {
    for_each_bit(mask, [&](unsigned i) { finish(block_at(window, i), BlockState{}); });
    return Fault::again;
  }
  const Step step = found_on_ssd(state(b), event);
  const Step others = found_on_ssd(state(b), step.after.saved ? Event::load : Event::store);
  Incoming incoming(*this);
  Ahead ahead;
  if (step.actions[0] == Action::read_back) {
    for_each_run(mask, [&](unsigned first, unsigned n) { incoming.add({block_at(window, first), n}); });
    claim_ahead(ctx.io, b, ahead);
    for (const BlockRange& run : ahead.all()) incoming.add(run);
    const Traced traced(&ctx.counters, TraceKind::fetch, static_cast<std::uint64_t>(std::popcount(mask)) * kBlockBytes);
    incoming.read(ctx.io);
  }
  if (!step.after.saved) sharing_.mark(page);
  protect(window, mask, step.after.saved ? Access::read : Access::write);
  for_each_bit(mask, [&](unsigned i) { finish(block_at(window, i), block_at(window, i) == b ? step.after : others.after); });
  for (const BlockRange& run : ahead.all()) {
    protect(run, Access::read);
    for (std::uint64_t i = 0; i < run.count; ++i) finish(block_at(run.first, i), found_on_ssd(state(block_at(run.first, i)), Event::load).after);
  }
  return Fault::served;
}

/// Blocks that should come with b: of pieces further on in its sweep, those that are stored and not here, as far as nobody has them in hand. Their pages are in part then.
void Coherence::claim_ahead(comm::Blocking& io, BlockId b, Ahead& ahead) {
  const gas::ReadAhead::Plan plan = tiers_->plan(mem::offset_of(b));
  const std::uint64_t page_bytes = pages_.bytes_of(pages_.page_of(b));
  for (std::uint32_t i = 0; i < plan.pieces; ++i) {
    const std::uint64_t piece = static_cast<std::uint64_t>(plan.first + plan.stride * i) * gas::Tiers::kPieceBytes;
    for (std::uint64_t at = piece; at < piece + gas::Tiers::kPieceBytes; at += std::min(page_bytes, gas::Tiers::kPieceBytes)) {
      if (!residency_->counts(at) || pages_.bytes_of(pages_.page_of(mem::block_of(at))) != page_bytes) return;
      if (tiers_->stored(mem::block_of(at))) claim_part(io, {mem::block_of(at), std::min(page_bytes, gas::Tiers::kPieceBytes) / kBlockBytes}, ahead);
    }
  }
}

/// Blocks of one page. Waits for nothing but word 0.
void Coherence::claim_part(comm::Blocking& io, BlockRange part, Ahead& ahead) {
  Mask mask = 0;
  for (unsigned i = 0; i < part.count; ++i) {
    const BlockId b = block_at(part.first, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::load);
    if (step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && tiers_->stored(b) && try_claim(b, s, step)) mask |= Mask{1} << i;
  }
  if (mask == 0) return;
  const PageId page = pages_.page_of(part.first);
  const gas::Location found = directory_.lookup(io, page);
  if (!gas::at_home_on_ssd(found, transport_.rank()) || !tiers_->enter(io, page, found)) {
    for_each_run(mask, [&](unsigned first, unsigned n) { give_back(block_at(part.first, first), n); });
    return;
  }
  fill(part.first, mask);
  for_each_run(mask, [&](unsigned first, unsigned n) { ahead.add({block_at(part.first, first), n}); });
}

}  // namespace kasane::dsm
