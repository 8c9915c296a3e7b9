// SPDX-License-Identifier: Apache-2.0
// Views: ranges that are made present at once, and stay so. No fault; all transfers are outstanding together;
// a system call for each run of blocks. The steps of a block are those of a fault (dsm/protocol.h, events
// pin_…). They are taken for many blocks at once (dsm/gathering.h), then singly, as in a fault, for blocks
// that were unclaimed.
#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "base/time_spent.h"
#include "dsm/gathering.h"
#include "dsm/views.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

std::optional<BlockId> Views::pin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  const Traced traced(&ctx.counters, TraceKind::view, bytes);
  const Wanted wanted = Wanted::view(offset, bytes, use);
  const std::uint64_t first = raw(mem::block_of(offset)),
                      end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  if (use == Use::write_only && tiering_.stores_any()) tiering_.note_overwriting(offset, bytes);
  std::uint64_t b = pin_shown(first, end, use);
  if (b >= end) return std::nullopt;
  const Spent spent(ctx.counters, Account::views);
  while (b < end) {
    tiering_.admit(ctx.io, std::min(Gathering::kMostBlocks, end - b), Serves::itself);
    Held row(blocks_, mem::BlockRange{BlockId{b}, 0});
    Gathering gathering(faults_, ctx, wanted, row);
    gathering.gather();
    // the first block is pinned in any case, if need be by waiting for it
    const std::uint64_t count = std::max<std::uint64_t>(gathering.count(), 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (gathering.served(i) || pin_block(ctx, BlockId{b + i}, wanted.event(BlockId{b + i}))) continue;
      unpin(ctx, mem::offset_of(BlockId{first}), (b + i - first) * kBlockBytes);
      for (std::uint64_t k = i + 1; k < count; ++k) {
        if (gathering.served(k)) unpin(ctx, mem::offset_of(BlockId{b + k}), kBlockBytes);
      }
      return BlockId{b + i};
    }
    b += count;
  }
  return std::nullopt;
}

/// The first block in [first, end) whose access does not suffice for the use.
std::uint64_t Views::shown_until(std::uint64_t first, std::uint64_t end, Use use) const noexcept {
  while (first < end && shows(blocks_.glance(BlockId{first}), use)) ++first;
  return first;
}

/// Pins blocks at the beginning of [first, end) that need no more than that. Returns the first one that does.
std::uint64_t Views::pin_shown(std::uint64_t first, std::uint64_t end, Use use) noexcept {
  for (; first < end; ++first) {
    const BlockState s = blocks_.state(BlockId{first});
    if (!shows(s, use) || !blocks_.count_pin(BlockId{first}, s, 1)) break;
  }
  return first;
}

/// As in a fault, with waiting. False: not allocated.
bool Views::pin_block(ThreadContext& ctx, BlockId b, BlockEvent event) {
  for (;;) {
    Held held(blocks_, b);
    const BlockStep step = held.claim(ctx.io, 0, event);
    const Faults::Outcome fault = faults_.carry_out(ctx, held, event, step);
    if (fault != Faults::Outcome::again) return fault == Faults::Outcome::served;
    ctx.io.waiter().pause();
  }
}

void Views::unpin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t first = raw(mem::block_of(offset)),
                      end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  for (std::uint64_t b = first; b < end; ++b) {
    for (;;) {
      const BlockState s = blocks_.state(BlockId{b});
      KASANE_CHECK(s.pins > 0, "a view ends that was not made on this rank");
      if (s.busy)
        blocks_.wait_free(ctx.io, BlockId{b});
      else if (blocks_.count_pin(BlockId{b}, s, -1))
        break;
    }
  }
}

// ---- hints -----------------------------------------------------------------------------------------------

// A hint that a range will be used soon. Blocks of other ranks, or blocks here without access, are made
// present as for a view (views.cpp). Blocks in this rank's spill file are read by background reads
// (spilled.cpp) without waiting, and their sweep is read ahead.
//
//   for each part of the range whose page is own   its invalid blocks are claimed if free ─▶ a background
//                                                  read ─▶ armed, free
//   for each window of these                       requested as by a fault, in the order of their sweep:
//                                                  the next ones follow
//   the rest, in pieces                            pinned, unpinned
//
// A part is what a page and a window have in common. While the thread waits (for room, for a free background
// read, for a claimed block) it holds no bit.

void Views::prefetch(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  std::uint64_t begin = offset, end = offset + bytes;
  const bool spills = tiering_.stores_any(), sends = spills && use != Use::write_only;
  if (use == Use::write_only) {  // the others would have to be read
    if (spills) tiering_.note_overwriting(begin, bytes);
    begin = (begin + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    end = end / kBlockBytes * kBlockBytes;
  }
  if (sends) tiering_.send_for(ctx, begin, end, pin_event(use, false));
  const auto pin_until = [&](std::uint64_t until) {
    while (begin < until) {
      begin =
          std::max(begin, mem::offset_of(BlockId{shown_until(
                              raw(mem::block_of(begin)), raw(mem::block_of(until + kBlockBytes - 1)), use)}));
      if (begin >= until) return;
      const std::uint64_t piece =
          std::min(until, (begin / mem::kLargestPageBytes + 1) * mem::kLargestPageBytes) - begin;
      if (pin(ctx, begin, piece, use)) return;  // not allocated
      unpin(ctx, begin, piece);
      begin += piece;
    }
  };
  if (sends) {
    tiering_.for_each_part(begin, end, [&](BlockRange part) {
      if (!tiering_.is_coming(part)) return;
      pin_until(std::min(end, mem::offset_of(part.first)));
      begin = std::max(begin, mem::offset_of(part.first) + part.count * kBlockBytes);
    });
  }
  pin_until(end);
}

}  // namespace kasane::dsm
