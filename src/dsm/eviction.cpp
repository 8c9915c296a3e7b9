// SPDX-License-Identifier: Apache-2.0
// What coherence does for memory larger than DRAM: counts the frames that it fills, waits for room before it
// holds anything, and evicts pages (docs/design/tiers.md).
#include "dsm/coherence.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;

namespace {
// what one kernel page table maps: an mprotect flushes translations for each
constexpr std::uint64_t kTableBlocks = 512;
}  // namespace

// ---- room ------------------------------------------------------------------------------------------------

void Coherence::admit(comm::Blocking& io, PageId page) {
  if (residency_ != nullptr && residency_->counts(page))
    admit(io, pages_.blocks_of(page).count, Serves::itself);
}

/// For a fault: room for the blocks of its page that may be taken with it, at most so many.
bool Coherence::admit(ThreadContext& ctx, PageId page, std::uint64_t blocks) {
  const bool admitted = residency_ == nullptr || !residency_->counts(page) ||
                        admit(ctx.io, std::min(blocks, pages_.blocks_of(page).count), ctx.serves);
  if (!admitted) count(ctx.counters.faults_put_off);
  return admitted;
}

/// The caller holds nothing. The pager needs changes sent only if nothing else is left to evict, so it is
/// asked first. False: there is no room yet, and the faults that wait behind this one come first: room may be
/// what a view holds, and the view's thread may wait for one of these faults.
bool Coherence::admit(comm::Blocking& io, std::uint64_t blocks, Serves serves) {
  if (residency_ == nullptr || residency_->admitted(blocks)) [[likely]]
    return true;
  for (;;) {
    const std::uint32_t stuck = residency_->times_stuck();
    await(io, [&] {
      if (residency_->admitted(blocks) || residency_->times_stuck() != stuck) return true;
      residency_->want(blocks);
      return false;
    });
    if (residency_->admitted(blocks)) {
      residency_->note_relieved();
      return true;
    }
    clean(io);
    io.waiter().pause();
    if (serves == Serves::others) return false;
  }
}

void Coherence::admit_for_now(comm::Blocking& io, std::uint64_t blocks) {
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  if (residency_ == nullptr || residency_->admitted(blocks)) return;
  for (const std::uint64_t begin = now_ns(); !admit(io, blocks, Serves::others);) {
    // it waits no more; it must not count as one that has waited all the time
    if (now_ns() - begin >= kPatienceNs) return residency_->note_relieved();
  }
}

void Coherence::clean(comm::Blocking& io) {
  dirty_.for_each([&](BlockId b) { fence_block(io, nullptr, b, BlockEvent::release); });
}

void Coherence::fill(BlockRange blocks) noexcept {
  if (residency_ != nullptr) residency_->fill(blocks);
}

void Coherence::fill(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill(run); });
}

/// Blocks that will probably be read from SSD through a bounce buffer.
void Coherence::fill_staged(BlockRange blocks) noexcept {
  if (residency_ != nullptr) residency_->fill_staged(blocks);
}

void Coherence::fill_staged(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill_staged(run); });
}

void Coherence::fill_staged(BlockId window, Mask mask) noexcept {
  for_each_run(mask, [&](unsigned first, unsigned count) { fill_staged({block_at(window, first), count}); });
}

/// They were counted as staged and will not be; called before they are touched.
void Coherence::fill_otherwise(BlockRange blocks) noexcept {
  if (residency_ != nullptr && residency_->large_frames()) residency_->fill(blocks);
}

void Coherence::fill_otherwise(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill_otherwise(run); });
}

void Coherence::fill_twin(BlockId b) noexcept {
  if (residency_ != nullptr) residency_->fill_twin(b);
}

bool Coherence::fits(std::uint64_t bytes) noexcept {
  return residency_ == nullptr || residency_->admitted(bytes / mem::kBlockBytes + residency_->low());
}

// ---- pages that are not here -----------------------------------------------------------------------------

/// For blocks of one page; nothing is held. owner: as it was just found. True: they can be used. False: the
/// access runs again.
bool Coherence::make_present(ThreadContext& ctx, BlockRange used, Fetched why, Rank owner) {
  const PageId page = pages_.page_of(used.first);
  if (why == Fetched::on_ssd_elsewhere) addresses_.page_in(ctx.io, page, owner);
  return why == Fetched::untouched && admit(ctx, page, pages_.blocks_of(page).count) &&
         mover_.touch(ctx.io, page, used);
}

// ---- called by the pager ---------------------------------------------------------------------------------

void Coherence::retire(std::span<const PageId> pages) noexcept {
  for (std::size_t i = 0; i < pages.size();) {
    BlockRange run = pages_.blocks_of(pages[i]);
    for (++i; i < pages.size() && retires_with(run, pages[i]); ++i)
      run.count = end_of(pages_.blocks_of(pages[i])) - raw(run.first);
    hide(run);
  }
}

/// May the blocks between the run and that page, which does not lie before it, be retired together with them?
/// One call more interrupts the other cores (18 us of processor time on two). A retired block that is
/// accessed again costs a soft fault (4 us), and few blocks between the pages are visible.
bool Coherence::retires_with(BlockRange run, PageId next_page) const noexcept {
  constexpr std::uint64_t kMostShown = 16;
  const std::uint64_t end = end_of(run), next_block = raw(pages_.blocks_of(next_page).first);
  if (next_block <= end) return true;
  if (raw(run.first) / kTableBlocks != next_block / kTableBlocks) return false;
  for (PageId p = pages_.page_of(BlockId{end}); p != next_page; p = PageId{raw(p) + 1}) {
    if (!residency_->counts(p)) return false;
  }
  std::uint64_t shown = 0;
  for (std::uint64_t b = end; b != next_block && shown <= kMostShown; ++b)
    shown += state(BlockId{b}).access != Access::none ? 1 : 0;
  return shown <= kMostShown;
}

/// Makes free blocks of this rank invisible in V. A system call flushes the other cores' translations, so
/// invisible blocks between them are claimed too and do not end a run.
void Coherence::hide(BlockRange all) noexcept {
  // blocks of a system call: threads that fault there wait for a long one
  constexpr std::uint64_t kTogether = 256;
  BlockRange run{all.first, 0};
  std::uint64_t shown = 0;
  const auto hide_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::none);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const BlockId b = block_at(run.first, i);
      BlockState before = state(b);
      before.busy = false;
      const BlockStep step = next(before, BlockEvent::retire);
      finish(b, step.verdict == Verdict::proceed ? step.after : before);
    }
    run.count = shown = 0;
  };
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    const BlockState s = state(b);
    const BlockStep step = next(s, BlockEvent::retire);
    if (step.verdict != Verdict::proceed) continue;
    const BlockRange between{block_at(run.first, run.count), raw(b) - raw(run.first) - run.count};
    if (run.count != 0 && shown < kTogether && raw(b) / kTableBlocks == raw(run.first) / kTableBlocks &&
        try_claim(between, BlockEvent::pass) == Verdict::proceed) {
      run.count += between.count;
    } else {
      hide_run();
      run.first = b;
    }
    if (try_claim(b, s, step)) ++run.count, ++shown;
  }
  hide_run();
}

bool Coherence::touched(PageId page) const noexcept {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = state(BlockId{raw(all.first) + i});
    if (s.busy || (s.owned && s.access != Access::none)) return true;
  }
  return false;
}

/// The page is busy, so this rank does not become its owner meanwhile. If it could, a put by the rank that
/// handed the page over could already be in the frame.
bool Coherence::try_evict(PageId page, bool punch, gas::BlockMask* unsaved) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  if (try_claim(all, BlockEvent::evict) != Verdict::proceed) return false;
  bool visible = false;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = state(block_at(all.first, i));
    visible |= s.access != Access::none;
    if (unsaved != nullptr) (*unsaved)[i] = s.owned && !s.saved;
  }
  if (visible) protect(all, Access::none);
  if (punch) residency_->empty(all);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    cached_.erase(b);
    finish(b, BlockState{});
  }
  return true;
}

}  // namespace kasane::dsm
