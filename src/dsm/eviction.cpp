// SPDX-License-Identifier: Apache-2.0
// What coherence does for memory larger than DRAM: counts the frames that it fills, waits for room before it holds anything, and lets go of pages (docs/design/tiers.md).
#include "dsm/coherence.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;

namespace {
constexpr std::uint64_t kTableBlocks = 512;   // what one of the kernel's page tables maps: a call flushes for each
}

// ---- room ----------------------------------------------------------------------------------------------------------

void Coherence::admit(comm::Blocking& io, PageId page) {
  if (residency_ != nullptr && residency_->counts(page)) admit(io, pages_.blocks_of(page).count, Serves::itself);
}

/// For a fault: as many blocks of its page as may come with it, but no more than so many.
bool Coherence::admit(ThreadContext& ctx, PageId page, std::uint64_t blocks) {
  const bool admitted = residency_ == nullptr || !residency_->counts(page) || admit(ctx.io, std::min(blocks, pages_.blocks_of(page).count), ctx.serves);
  if (!admitted) count(ctx.counters.faults_put_off);
  return admitted;
}

/// Nothing is held. Whoever makes room needs changes sent only if nothing else is left, so it is asked first. False: there is no room yet, and the faults that wait behind this one come
/// first: room may be what a view holds, and what the view's thread waits for one of these.
bool Coherence::admit(comm::Blocking& io, std::uint64_t blocks, Serves serves) {
  if (residency_ == nullptr || residency_->admitted(blocks)) [[likely]] return true;
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
    if (now_ns() - begin >= kPatienceNs) return residency_->note_relieved();   // it waits no more, and must not be taken for one that has been waiting ever since
  }
}

void Coherence::clean(comm::Blocking& io) {
  dirty_.for_each([&](BlockId b) { fence_block(io, nullptr, b, Event::release); });
}

void Coherence::fill(BlockRange blocks) noexcept {
  if (residency_ != nullptr) residency_->fill(blocks);
}

void Coherence::fill(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill(run); });
}

/// Blocks that will be read from SSD by themselves, as far as is known.
void Coherence::fill_staged(BlockRange blocks) noexcept {
  if (residency_ != nullptr) residency_->fill_staged(blocks);
}

void Coherence::fill_staged(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill_staged(run); });
}

void Coherence::fill_staged(BlockId window, Mask mask) noexcept {
  for_each_run(mask, [&](unsigned first, unsigned count) { fill_staged({block_at(window, first), count}); });
}

/// They were counted as staged, and will not be: before they are touched.
void Coherence::fill_otherwise(BlockRange blocks) noexcept {
  if (residency_ != nullptr && residency_->large_frames()) residency_->fill(blocks);
}

void Coherence::fill_otherwise(const Stripe& blocks) noexcept {
  blocks.for_each_run([&](BlockRange run) { fill_otherwise(run); });
}

void Coherence::fill_twin(BlockId b) noexcept {
  if (residency_ != nullptr) residency_->fill_twin(b);
}

bool Coherence::fits(std::uint64_t bytes) noexcept { return residency_ == nullptr || residency_->admitted(bytes / mem::kBlockBytes + residency_->low()); }

// ---- a page that is not here -----------------------------------------------------------------------------------------

/// Nothing is held; owner: as it was just found. The access runs again, whatever comes of it.
void Coherence::make_present(ThreadContext& ctx, PageId page, Fetched why, Rank owner) {
  if (why == Fetched::untouched && admit(ctx, page, pages_.blocks_of(page).count)) mover_->touch(ctx.io, page);
  if (why == Fetched::asleep) rouse(ctx, page, owner);
}

/// With the pages that a sweep over such will come to.
void Coherence::rouse(ThreadContext& ctx, PageId page, Rank owner) {
  constexpr std::uint32_t kMost = 16;
  std::array<PageId, kMost + 1> pages{page};
  std::size_t n = 1;
  const gas::ReadAhead::Plan plan = tiers_ != nullptr && tiers_->asks_ahead() ? ctx.asleep.ask(raw(page), kMost) : gas::ReadAhead::Plan{};
  for (std::uint32_t i = 0; i < std::min(plan.pieces, kMost); ++i) {
    const PageId next_one{static_cast<std::uint64_t>(plan.first + plan.stride * i)};
    if (!pages_.contains(next_one) || pages_.bytes_of(next_one) != pages_.bytes_of(page)) break;
    pages[n++] = next_one;
  }
  if (n == 1) addresses_.rouse(ctx.io, page, owner);
  else addresses_.learn(ctx.io, {pages.data(), n}, false, gas::AddressCache::Rouses::first);
}

// ---- the keeper's part ---------------------------------------------------------------------------------------------

void Coherence::rest(std::span<const PageId> pages) noexcept {
  for (std::size_t i = 0; i < pages.size();) {
    BlockRange run = pages_.blocks_of(pages[i]);
    for (++i; i < pages.size() && rests_with(run, pages[i]); ++i) run.count = end_of(pages_.blocks_of(pages[i])) - raw(run.first);
    hide(run);
  }
}

/// May what lies between the run and that page, which does not lie before it, be laid to rest with them? A call more interrupts the other cores (18 us of processor time on two), a block that is
/// touched again costs a soft fault (4 us), and few of those that show in pages of which little is here are.
bool Coherence::rests_with(BlockRange run, PageId next_page) const noexcept {
  constexpr std::uint64_t kMostShown = 16;
  const std::uint64_t end = end_of(run), next_block = raw(pages_.blocks_of(next_page).first);
  if (next_block <= end) return true;
  if (raw(run.first) / kTableBlocks != next_block / kTableBlocks) return false;
  for (PageId p = pages_.page_of(BlockId{end}); p != next_page; p = PageId{raw(p) + 1}) {
    if (!residency_->counts(p)) return false;
  }
  std::uint64_t shown = 0;
  for (std::uint64_t b = end; b != next_block && shown <= kMostShown; ++b) shown += state(BlockId{b}).view != View::none ? 1 : 0;
  return shown <= kMostShown;
}

/// V shows those blocks no more that are ours and free. A system call flushes the other cores' translations, so blocks between them that show
/// nothing are held, and do not end a run.
void Coherence::hide(BlockRange all) noexcept {
  constexpr std::uint64_t kTogether = 256;   // a system call: long ones keep who gets there waiting
  BlockRange run{all.first, 0};
  std::uint64_t shown = 0;
  const auto hide_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::none);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const BlockId b = block_at(run.first, i);
      BlockState before = state(b);
      before.busy = false;
      const Step step = next(before, Event::rest);
      finish(b, step.verdict == Verdict::proceed ? step.after : before);
    }
    run.count = shown = 0;
  };
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::rest);
    if (step.verdict != Verdict::proceed) continue;
    const BlockRange between{block_at(run.first, run.count), raw(b) - raw(run.first) - run.count};
    if (run.count != 0 && shown < kTogether && raw(b) / kTableBlocks == raw(run.first) / kTableBlocks && try_claim(between, Event::pass) == Verdict::proceed) {
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
    if (s.busy || (s.owned && s.view != View::none)) return true;
  }
  return false;
}

/// Since the page is busy nobody makes this rank its owner meanwhile: a put by whoever it was handed from could already be in the frame.
bool Coherence::let_go(PageId page, bool punch, gas::BlockMask* unsaved) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  std::uint64_t held = 0;
  bool visible = false;
  for (; held < all.count; ++held) {
    const BlockId b{raw(all.first) + held};
    const BlockState s = state(b);
    const Step step = next(s, Event::let_go);
    if (step.verdict != Verdict::proceed || !try_claim(b, s, step)) break;
    visible |= step.actions[0] == Action::protect_none;
    if (unsaved != nullptr) (*unsaved)[held] = s.owned && !s.saved;
  }
  if (held != all.count) {
    give_back(all.first, held);
    return false;
  }
  if (visible) protect(all, Access::none);
  if (punch) residency_->empty(all);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b{raw(all.first) + i};
    cached_.erase(b);
    finish(b, BlockState{});
  }
  return true;
}

}  // namespace kasane::dsm
