// SPDX-License-Identifier: Apache-2.0
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
#include <algorithm>

#include "dsm/background_read.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

void Coherence::prefetch(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  std::uint64_t begin = offset, end = offset + bytes;
  const bool spills = tiers_ != nullptr && tiers_->stores_any(), sends = spills && use != Use::write_only;
  if (use == Use::write_only) {  // the others would have to be read
    if (spills) tiers_->note_overwriting(begin, bytes);
    begin = (begin + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    end = end / kBlockBytes * kBlockBytes;
  }
  if (sends) send_for(ctx, begin, end, pin_event(use, false));
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
    for_each_part(begin, end, [&](BlockRange part) {
      if (!is_coming(part)) return;
      pin_until(std::min(end, mem::offset_of(part.first)));
      begin = std::max(begin, mem::offset_of(part.first) + part.count * kBlockBytes);
    });
  }
  pin_until(end);
}

std::size_t Coherence::send_for(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  if (tiers_ == nullptr || !tiers_->stores_any()) return 0;
  std::size_t absent = 0;
  for_each_part(offset, offset + bytes, [&](BlockRange part) {
    absent += tiers_->stored(part.first) && !state(part.first).owned &&
              directory_.near_owner(pages_.page_of(part.first)) == transport_.rank();
  });
  if (absent != 0) send_for(ctx, offset, offset + bytes, pin_event(use, false));
  return absent;
}

/// Calls f for the whole blocks of the range that a page and a window have in common.
template <class F>
void Coherence::for_each_part(std::uint64_t begin, std::uint64_t end, const F& f) const {
  const std::uint64_t stop = raw(mem::block_of(end + kBlockBytes - 1));
  for (std::uint64_t b = raw(mem::block_of(begin)); b < stop;) {
    const BlockId first{b};
    b = std::min(
        {stop, raw(window_of(first)) + kWindowBlocks, end_of(pages_.blocks_of(pages_.page_of(first)))});
    f(BlockRange{first, b - raw(first)});
  }
}

/// Starts reads of blocks of the range that are in this rank's spill file, and neither here nor requested.
void Coherence::send_for(ThreadContext& ctx, std::uint64_t begin, std::uint64_t end, BlockEvent event) {
  BackgroundRead* background = nullptr;
  std::uint32_t parts = 0;
  const auto leave = [&] {
    if (background != nullptr) start_read(ctx, *background);
    background = nullptr;
    parts = 0;
  };
  for_each_part(begin, end, [&](BlockRange part) {
    if (directory_.near_owner(pages_.page_of(part.first)) != transport_.rank() ||
        !tiers_->stored(part.first) || state(part.first).owned)
      return;
    if (background == nullptr) {
      admit(ctx.io, kBlocksPerRead, Serves::itself);
      std::uint32_t index = comm::IndexPool<>::kNone;
      await(ctx.io, [&] { return (index = free_background_reads_.take()) != comm::IndexPool<>::kNone; });
      background = &background_reads_[index];
      background->runs.clear();
      background->first = kNoWindow;  // all of it becomes visible
      background->wanted_for = event == BlockEvent::pin_read ? BlockEvent::load : BlockEvent::store;
    }
    claim_part(ctx.io, part, *background);
    if (++parts == kPiecesPerRead) leave();
  });
  leave();
  const std::uint64_t first = begin / gas::Tiers::kPieceBytes, last = (end - 1) / gas::Tiers::kPieceBytes;
  const bool down = tiers_->descends(begin, end - 1);
  for (std::uint64_t i = 0; i <= last - first; ++i) {
    const BlockId b = mem::block_of(std::max(begin, (down ? last - i : first + i) * gas::Tiers::kPieceBytes));
    if (directory_.near_owner(pages_.page_of(b)) == transport_.rank()) read_ahead(ctx, b, event);
  }
}

bool Coherence::is_coming(BlockRange part) const noexcept {
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const BlockId b = block_at(part.first, i);
    if (state(b).busy && tiers_->stored(b)) return true;
  }
  return false;
}

}  // namespace kasane::dsm
