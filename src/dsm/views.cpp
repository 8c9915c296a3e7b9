// SPDX-License-Identifier: Apache-2.0
// Views: ranges that are made present at once, and stay so. No fault; all transfers are outstanding together;
// a system call for each run of blocks. The steps of a block are those of a fault (dsm/protocol.h, events
// pin_…). They are taken for many blocks at once (dsm/gathering.h), then singly, as in a fault, for blocks
// that were unclaimed.
#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "base/time_spent.h"
#include "dsm/coherence.h"
#include "dsm/gathering.h"

namespace kasane::dsm {

using mem::kBlockBytes;

std::optional<BlockId> Coherence::pin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  const Traced traced(&ctx.counters, TraceKind::view, bytes);
  const Wanted wanted = Wanted::view(offset, bytes, use);
  const std::uint64_t first = raw(mem::block_of(offset)),
                      end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  if (use == Use::write_only && tiers_ != nullptr && tiers_->stores_any())
    tiers_->note_overwriting(offset, bytes);
  std::uint64_t b = pin_shown(first, end, use);
  if (b >= end) return std::nullopt;
  const Spent spent(ctx.counters, Account::views);
  while (b < end) {
    admit(ctx.io, std::min(Gathering::kMostBlocks, end - b), Serves::itself);
    Gathering gathering(*this, ctx, wanted, BlockId{b});
    gathering.gather();
    for (std::uint64_t i = 0; i < gathering.count(); ++i) {
      if (gathering.served(i) || pin_block(ctx, BlockId{b + i}, wanted.event(BlockId{b + i}))) continue;
      unpin(ctx, mem::offset_of(BlockId{first}), (b + i - first) * kBlockBytes);
      for (std::uint64_t k = i + 1; k < gathering.count(); ++k) {
        if (gathering.served(k)) unpin(ctx, mem::offset_of(BlockId{b + k}), kBlockBytes);
      }
      return BlockId{b + i};
    }
    b += gathering.count();
  }
  return std::nullopt;
}

/// The first block in [first, end) whose access does not suffice for the use.
std::uint64_t Coherence::shown_until(std::uint64_t first, std::uint64_t end, Use use) const noexcept {
  // relaxed: nothing depends on it.
  while (first < end && shows(BlockState::of(table_[BlockId{first}].load(std::memory_order_relaxed)), use))
    ++first;
  return first;
}

/// Pins blocks at the beginning of [first, end) that need no more than that. Returns the first one that does.
std::uint64_t Coherence::pin_shown(std::uint64_t first, std::uint64_t end, Use use) noexcept {
  for (; first < end; ++first) {
    const BlockState s = state(BlockId{first});
    if (!shows(s, use) || !count_pin(BlockId{first}, s, 1)) break;
  }
  return first;
}

/// Claim and finish of a step without actions, in one compare-swap. False: the word has changed meanwhile.
bool Coherence::count_pin(BlockId b, BlockState before, int by) noexcept {
  BlockState after = before;
  after.pins += static_cast<std::uint32_t>(by);
  std::uint32_t expected = before.word();
  return table_[b].compare_exchange_strong(expected, after.word());  // seq_cst, as any claim
}

/// As in a fault, with waiting. False: not allocated.
bool Coherence::pin_block(ThreadContext& ctx, BlockId b, BlockEvent event) {
  for (;;) {
    const BlockStep step = claim_block(ctx.io, b, event);
    const Fault fault = carry_out_fault(ctx, b, event, step);
    if (fault != Fault::again) return fault == Fault::served;
    ctx.io.waiter().pause();
  }
}

void Coherence::unpin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t first = raw(mem::block_of(offset)),
                      end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  for (std::uint64_t b = first; b < end; ++b) {
    for (;;) {
      const BlockState s = state(BlockId{b});
      KASANE_CHECK(s.pins > 0, "a view ends that was not made on this rank");
      if (s.busy)
        wait_free(ctx.io, BlockId{b});
      else if (count_pin(BlockId{b}, s, -1))
        break;
    }
  }
}

}  // namespace kasane::dsm
