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
#include <bitset>
#include <cstring>
#include <optional>

#include "base/trace.h"
#include "dsm/tiering.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

namespace {
constexpr BlockId kNoWindow{std::uint64_t{1} << 63};
}

/// Reads blocks ahead of their use. No thread holds their busy bits. The blocks are runs of one page or
/// several. It belongs to the thread that took it from the free ones, then to the reader thread.
///
/// As soon as the bytes are in M, a load in V may succeed, and a store too if the blocks are wanted for
/// stores, before the busy bit is cleared. Nothing is lost by that: the page was marked before; and a page
/// that leaves, or that is paged in as a whole for another rank, has the bits of all its blocks claimed
/// first. By then the store is in the frame, and the block is not saved (tiers.md).
struct Tiering::BackgroundRead : mem::SpillRead {
  Tiering* tiering = nullptr;
  std::uint32_t index = 0;
  BlockId first{0};                          ///< of the window whose blocks stay invisible in V
  BlockEvent wanted_for = BlockEvent::load;  ///< what the other blocks are wanted for: load or store
  mem::SpillRanges<kBlocksPerRead> runs;
  std::optional<Traced> traced;  ///< while it runs, as a doing of the thread that asked

  /// Nothing is to be read yet.
  void begin(BlockId invisible, BlockEvent wanted) noexcept {
    runs.clear();
    first = invisible;
    wanted_for = wanted;
  }
};

Tiering::Tiering(Blocks& blocks, const Frames& frames, Fences& fences)
    : blocks_(blocks), frames_(frames), fences_(fences) {
  if (!frames_.limited()) return;
  make_background_reads();
  const mem::Residency& residency = frames_.residency();
  p_.engine.expect_punches(residency.range().offset, residency.range().bytes, residency.frame_bytes());
}

Tiering::~Tiering() = default;

void Tiering::make_background_reads() {
  background_reads_ = std::make_unique<BackgroundRead[]>(kBackgroundReads);
  for (std::uint32_t i = 0; i < kBackgroundReads; ++i) {
    background_reads_[i].tiering = this;
    background_reads_[i].index = i;
    background_reads_[i].completed = [](mem::SpillRead& ended) noexcept {
      auto& background = static_cast<BackgroundRead&>(ended);
      Tiering& t = *background.tiering;
      t.reads_under_way_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: for a counter
      background.traced.reset();
      t.complete_read(background);
      t.free_background_reads_.put(background.index);
      t.blocks_.wake_waiting();
      t.blocks_.wake_leavers();
    };
  }
}

void ReadBack::add(BlockId b, bool saved) noexcept {
  const std::uint64_t at = mem::offset_of(b);
  if (p_.tiers->stored(b))
    mem::append(ranges_, {at, kBlockBytes});
  else if (saved)
    std::memset(p_.space.a(at), 0, kBlockBytes);
}

Tiering::Brought Tiering::bring(ThreadContext& ctx, BlockId b, Held& held, BlockEvent event,
                                gas::Location found, bool may_leave) {
  const PageId page = pages_.page_of(b);
  if (!tiers_->make_partial(ctx.io, page, found)) {
    held.give_back();
    return Brought::no;
  }
  const BlockStep step = found_on_ssd(held.before(held.index_of(b)), event);
  const bool saved = step.after.saved;
  held.for_each([&](std::uint64_t, BlockId claimed) {
    if (event == BlockEvent::pin_whole || !tiers_->stored(claimed)) frames_.fill_otherwise({claimed, 1});
  });
  if (!saved) p_.sharing.mark(page);  // a store may succeed as soon as the bytes are there
  if (event != BlockEvent::pin_whole) {
    if (may_leave && read_for_leaver(ctx, held, event)) {
      read_ahead(ctx, b, event);
      return Brought::later;
    }
    read_ahead(ctx, b, event);  // so that these reads run, too
    ReadBack incoming(p_);
    held.for_each([&](std::uint64_t, BlockId claimed) { incoming.add(claimed, saved); });
    const Traced traced(&ctx.counters, TraceKind::fetch, held.count() * kBlockBytes);
    incoming.read(ctx.io, saved ? Access::read : Access::write);
  }
  held.open([&](std::uint64_t i, const BlockState& before) {
    return held[i] == b ? step.after
                        : found_on_ssd(before, saved ? BlockEvent::load : BlockEvent::store).after;
  });
  if (event == BlockEvent::store) arm_small_pages(ctx.io, b);
  return Brought::yes;
}

/// The thread of a fault waits elsewhere, so the reader completes it, as it does what nobody waits for.
/// False, and nothing was done: there is none to be had, or a block is not in the spill file.
bool Tiering::read_for_leaver(ThreadContext& ctx, Held& held, BlockEvent event) {
  bool all_stored = true;
  held.for_each([&](std::uint64_t, BlockId claimed) { all_stored &= tiers_->stored(claimed); });
  const std::uint32_t index = all_stored ? free_background_reads_.take() : comm::IndexPool<>::kNone;
  if (index == comm::IndexPool<>::kNone) return false;
  BackgroundRead& background = background_reads_[index];
  background.begin(kNoWindow, event);
  held.for_each_run([&](BlockRange run) {
    mem::append(background.runs, {mem::offset_of(run.first), run.count * kBlockBytes});
  });
  held.keep();  // complete_read() adopts them
  start_read(ctx, background);
  return true;
}

/// After a store to a page of one block: the other pages of its 64 KiB become writable, too, as far as they
/// are this rank's and have no bytes yet. A program that allocates many small pages stores to most of them.
void Tiering::arm_small_pages(comm::Blocking& io, BlockId b) noexcept {
  constexpr std::uint64_t kTogether = mem::kPageBytes / kBlockBytes;
  if (pages_.bytes_of(pages_.page_of(b)) != kBlockBytes || !frames_.admitted(kTogether)) return;
  Held held(blocks_, BlockRange{BlockId{raw(b) / kTogether * kTogether}, kTogether});
  held.claim(Way::each, BlockEvent::store, 0, held.size(), nullptr,
             [](const BlockState&, const BlockStep& step) { return step.actions[0] == Action::fetch; });
  if (held.none()) return;
  const PageId first = pages_.page_of(held[0]);
  std::bitset<kTogether> own;
  directory_.look_at(io, first, kTogether, [&](PageId page, const gas::Location& where) {
    const std::uint64_t i = raw(page) - raw(first);
    // stored() is asked only now: before it was claimed the block may have been evicted, with bytes
    own[i] = held.has(i) && !tiers_->stored(held[i]) && !where.busy && gas::owned_on_ssd(where, p_.me()) &&
             tiers_->make_partial(io, page, where);
    if (!own[i]) held.give_back(i);
  });
  frames_.fill(held);
  held.open(
      [](std::uint64_t, const BlockState& before) { return found_on_ssd(before, BlockEvent::store).after; });
}

/// Reads ahead if the sweep is long enough: in several background reads, so that the first ends, and is used,
/// while the others are outstanding. Every other one begins with an invisible window.
void Tiering::read_ahead(ThreadContext& ctx, BlockId b, BlockEvent event) {
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
    if (done / together % 2 == 0 && !hinted)
      first = mem::block_of(static_cast<std::uint64_t>(plan.first + plan.stride * done) *
                            gas::Tiers::kPieceBytes);
    background.begin(first, loads ? BlockEvent::load : BlockEvent::store);
    claim_ahead(ctx.io, b,
                {plan.first + plan.stride * done, plan.stride, std::min(together, plan.pieces - done)},
                background);
    start_read(ctx, background);
  }
}

void Tiering::start_read(ThreadContext& ctx, BackgroundRead& background) {
  background.ranges = background.runs.all();
  background.view = {&p_.engine,
                     {background.first, kWindowBlocks},
                     background.wanted_for == BlockEvent::load ? Access::read : Access::write};
  if (const std::size_t runs = background.ranges.size(); runs != 0) {
    const std::uint64_t bytes = mem::bytes_of(background.ranges);
    // relaxed: for a counter
    const bool beside = reads_under_way_.fetch_add(1, std::memory_order_relaxed) != 0;
    background.traced.emplace(&ctx.counters, TraceKind::read_back, bytes);
    if (tiers_->submit(background)) {
      count(ctx.counters.bytes_read_back, bytes);
      if (beside || runs > 1) count(ctx.counters.reads_together, runs);
      return;
    }
    background.traced->cancel();  // as read() has it
    reads_under_way_.fetch_sub(1, std::memory_order_relaxed);
    tiers_->read(ctx.io, background.ranges, background.view);
    complete_read(background);
  }
  free_background_reads_.put(background.index);
  blocks_.wake_waiting();
}

/// The bytes are in M.
void Tiering::complete_read(const BackgroundRead& background) noexcept {
  for (const mem::SpillRange& range : background.ranges) {
    Held held(blocks_, BlockRange{mem::block_of(range.offset), range.bytes / kBlockBytes});
    held.adopt();
    held.open([&](std::uint64_t i, const BlockState& before) {
      const BlockState after = found_on_ssd(before, background.wanted_for).after;
      const bool retired = raw(held[i]) - raw(background.first) < kWindowBlocks;
      return retired ? next(after, BlockEvent::retire).after : after;
    });
  }
}

/// Claims those blocks of the planned pieces that are stored, not in DRAM, and free. Their pages become
/// partial.
void Tiering::claim_ahead(comm::Blocking& io, BlockId b, const gas::ReadAhead::Plan& plan,
                          BackgroundRead& background) {
  const std::uint64_t page_bytes = pages_.bytes_of(pages_.page_of(b)),
                      part = std::min(page_bytes, gas::Tiers::kPieceBytes);
  for (std::uint32_t i = 0; i < plan.pieces; ++i) {
    const std::uint64_t piece =
        static_cast<std::uint64_t>(plan.first + plan.stride * i) * gas::Tiers::kPieceBytes;
    for (std::uint64_t at = piece; at < piece + gas::Tiers::kPieceBytes; at += part) {
      if (!frames_.counts(pages_.page_of(mem::block_of(at))) ||
          pages_.bytes_of(pages_.page_of(mem::block_of(at))) != page_bytes)
        return;
      if (tiers_->stored(mem::block_of(at)))
        claim_part(io, {mem::block_of(at), part / kBlockBytes}, background);
    }
  }
}

/// Blocks of one page. Waits for nothing but word 0.
void Tiering::claim_part(comm::Blocking& io, BlockRange part, BackgroundRead& background) {
  Held held(blocks_, part);
  for (std::uint64_t i = 0; i < part.count; ++i)
    held.try_claim(i, BlockEvent::load, [&](const BlockState&, const BlockStep& step) {
      return step.actions[0] == Action::fetch && tiers_->stored(held[i]);
    });
  if (held.none()) return;
  const PageId page = pages_.page_of(part.first);
  const gas::Location found = directory_.lookup(io, page);
  if (!gas::owned_on_ssd(found, p_.me()) || !tiers_->make_partial(io, page, found)) return;
  if (background.wanted_for == BlockEvent::store) p_.sharing.mark(page);
  frames_.fill_staged(held);
  held.for_each_run([&](BlockRange run) {
    mem::append(background.runs, {mem::offset_of(run.first), run.count * kBlockBytes});
  });
  held.keep();  // complete_read() adopts them
}

// ---- hints and undefined bytes ----------------------------------------------------------------------------

std::size_t Tiering::send_for(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  if (!stores_any()) return 0;
  std::size_t absent = 0;
  for_each_part(offset, offset + bytes, [&](BlockRange part) {
    absent += tiers_->stored(part.first) && !blocks_.state(part.first).owned &&
              directory_.near_owner(pages_.page_of(part.first)) == p_.me();
  });
  if (absent != 0) send_for(ctx, offset, offset + bytes, pin_event(use, false));
  return absent;
}

/// Starts reads of blocks of the range that are in this rank's spill file, and neither here nor requested.
void Tiering::send_for(ThreadContext& ctx, std::uint64_t begin, std::uint64_t end, BlockEvent event) {
  BackgroundRead* background = nullptr;
  std::uint32_t parts = 0;
  const auto leave = [&] {
    if (background != nullptr) start_read(ctx, *background);
    background = nullptr;
    parts = 0;
  };
  for_each_part(begin, end, [&](BlockRange part) {
    if (directory_.near_owner(pages_.page_of(part.first)) != p_.me() || !tiers_->stored(part.first) ||
        blocks_.state(part.first).owned)
      return;
    if (background == nullptr) {
      admit(ctx.io, kBlocksPerRead, Serves::itself);
      std::uint32_t index = comm::IndexPool<>::kNone;
      blocks_.await(ctx.io,
                    [&] { return (index = free_background_reads_.take()) != comm::IndexPool<>::kNone; });
      background = &background_reads_[index];
      // all of it becomes visible
      background->begin(kNoWindow, event == BlockEvent::pin_read ? BlockEvent::load : BlockEvent::store);
    }
    claim_part(ctx.io, part, *background);
    if (++parts == kPiecesPerRead) leave();
  });
  leave();
  const std::uint64_t first = begin / gas::Tiers::kPieceBytes, last = (end - 1) / gas::Tiers::kPieceBytes;
  const bool down = tiers_->descends(begin, end - 1);
  for (std::uint64_t i = 0; i <= last - first; ++i) {
    const BlockId b = mem::block_of(std::max(begin, (down ? last - i : first + i) * gas::Tiers::kPieceBytes));
    if (directory_.near_owner(pages_.page_of(b)) == p_.me()) read_ahead(ctx, b, event);
  }
}

bool Tiering::is_coming(BlockRange part) const noexcept {
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const BlockId b = block_at(part.first, i);
    if (blocks_.state(b).busy && tiers_->stored(b)) return true;
  }
  return false;
}

/// Whole blocks of the range that belong to partial pages of this rank are not written when they are evicted,
/// and are evicted before others.
void Tiering::blank(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  if (!stores_any()) return;  // no page is partial that was once here as a whole
  const std::uint64_t end = (offset + bytes) / kBlockBytes;
  for (std::uint64_t first = (offset + kBlockBytes - 1) / kBlockBytes; first < end; first += Held::kMost)
    blank(io, {BlockId{first}, std::min(end - first, Held::kMost)});
}

/// For now: the next user of the page reports it to the residency, too.
bool Tiering::is_blank(PageId page) const noexcept {
  for (std::uint64_t i = 0; i < pages_.blocks_of(page).count; ++i) {
    const BlockId b = block_at(pages_.blocks_of(page).first, i);
    const BlockState s = blocks_.state(b);
    if (s.access != Access::none || (s.owned && !s.saved) || tiers_->stored(b)) return false;
  }
  return true;
}

/// Waits for nothing but word 0 of pages: a thread that holds a block is about to use it.
void Tiering::blank(comm::Blocking& io, BlockRange all) {
  Held held(blocks_, all);
  for (std::uint64_t begin = 0, end; begin < all.count; begin = end) {
    const PageId page = pages_.page_of(held[begin]);
    end = std::min(all.count, end_of(pages_.blocks_of(page)) - raw(all.first));
    const auto in_part = [&] { return gas::owned_on_ssd(directory_.lookup(io, page), p_.me()); };
    if (!frames_.counts(page) || directory_.near_owner(page) != p_.me() || !in_part()) continue;
    held.claim(Way::each, BlockEvent::blank, begin, end);
    // While this thread holds one of its bits the page stays where it is.
    if (in_part()) continue;
    for (std::uint64_t i = begin; i < end; ++i) held.give_back(i);
  }
  std::bitset<Held::kMost> blanked;
  held.open([](std::uint64_t, const BlockState& before) { return next(before, BlockEvent::blank).after; },
            [&] {
              held.for_each([&](std::uint64_t i, BlockId b) {
                tiers_->forget(b);
                blanked.set(i);
              });
            });
  for (std::uint64_t begin = 0, end; begin < all.count; begin = end) {
    const PageId page = pages_.page_of(held[begin]);
    bool any = false;
    for (end = begin; end < all.count && pages_.page_of(held[end]) == page; ++end) any |= blanked[end];
    if (!any) continue;
    p_.sharing.changed(page, gas::kAllParts);  // copies elsewhere are not what this rank has any more
    if (is_blank(page)) frames_.residency().note_freed({raw(page), raw(page) + 1});
  }
}

}  // namespace kasane::dsm
