// SPDX-License-Identifier: Apache-2.0
// Room and evictions (docs/design/tiers.md).
#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "dsm/tiering.h"
#include "mem/page_tables.h"

namespace kasane::dsm {

using mem::BlockRange;

namespace {
// what one kernel page table maps: an mprotect flushes translations for each
constexpr std::uint64_t kTableBlocks = 512;
}  // namespace

// ---- room ------------------------------------------------------------------------------------------------

void Tiering::admit(comm::Blocking& io, PageId page) {
  if (frames_.counts(page)) admit(io, pages_.blocks_of(page).count, Serves::itself);
}

bool Tiering::admit(ThreadContext& ctx, PageId page, std::uint64_t blocks) {
  const bool admitted =
      !frames_.counts(page) || admit(ctx.io, std::min(blocks, pages_.blocks_of(page).count), ctx.serves);
  if (!admitted) count(ctx.counters.faults_put_off);
  return admitted;
}

/// The pager needs changes sent only if nothing else is left to evict, so it is asked first.
bool Tiering::admit(comm::Blocking& io, std::uint64_t blocks, Serves serves) {
  if (frames_.admitted(blocks)) [[likely]]
    return true;
  mem::Residency& residency = frames_.residency();
  for (;;) {
    const std::uint32_t stuck = residency.times_stuck();
    blocks_.await(io, [&] {
      if (residency.admitted(blocks) || residency.times_stuck() != stuck) return true;
      residency.want(blocks);
      return false;
    });
    if (residency.admitted(blocks)) {
      residency.note_relieved();
      return true;
    }
    fences_.clean(io);
    io.waiter().pause();
    if (serves == Serves::others) return false;
  }
}

void Tiering::admit_for_now(comm::Blocking& io, std::uint64_t blocks) {
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  for (const std::uint64_t begin = now_ns(); !admit(io, blocks, Serves::others);) {
    // it waits no more; it must not count as one that has waited all the time
    if (now_ns() - begin >= kPatienceNs) return frames_.residency().note_relieved();
  }
}

// ---- called by the pager ---------------------------------------------------------------------------------

void Tiering::retire(std::span<const PageId> pages) noexcept {
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
bool Tiering::retires_with(BlockRange run, PageId next_page) const noexcept {
  constexpr std::uint64_t kMostShown = 16;
  const std::uint64_t end = end_of(run), next_block = raw(pages_.blocks_of(next_page).first);
  if (next_block <= end) return true;
  if (raw(run.first) / kTableBlocks != next_block / kTableBlocks) return false;
  for (PageId p = pages_.page_of(BlockId{end}); p != next_page; p = PageId{raw(p) + 1}) {
    if (!frames_.counts(p)) return false;
  }
  std::uint64_t shown = 0;
  for (std::uint64_t b = end; b != next_block && shown <= kMostShown; ++b)
    shown += blocks_.state(BlockId{b}).access != Access::none ? 1 : 0;
  return shown <= kMostShown;
}

/// Makes free blocks of this rank invisible in V. A system call flushes the other cores' translations, so
/// invisible blocks between them are claimed too and do not end a run.
void Tiering::hide(BlockRange all) noexcept {
  // blocks of a system call: threads that fault there wait for a long one
  constexpr std::uint64_t kTogether = 256;
  std::optional<Held> run;
  std::uint64_t shown = 0;
  const auto hide_run = [&] {
    if (!run) return;
    run->open([](std::uint64_t, const BlockState& before) {
      const BlockStep step = next(before, BlockEvent::retire);
      return step.verdict == Verdict::proceed ? step.after : before;
    });
    run.reset();
    shown = 0;
  };
  for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) {
    if (next(blocks_.state(BlockId{b}), BlockEvent::retire).verdict != Verdict::proceed) continue;
    // what lies between the run and this block
    const auto goes_on = [&] {
      const std::uint64_t first = raw((*run)[0]), end = first + run->size();
      return end != first && shown < kTogether && b / kTableBlocks == first / kTableBlocks &&
             run->extend_by(b - end, BlockEvent::pass);
    };
    if (run && !goes_on()) hide_run();
    if (!run) run.emplace(blocks_, BlockRange{BlockId{b}, 0});
    if (run->extend_by(1, BlockEvent::retire)) ++shown;
  }
  hide_run();
}

bool Tiering::touched(PageId page) const noexcept {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = blocks_.state(block_at(all.first, i));
    if (s.busy || (s.owned && s.access != Access::none)) return true;
  }
  return false;
}

/// The page is busy, so this rank does not become its owner meanwhile. If it could, a put by the rank that
/// handed the page over could already be in the frame.
bool Tiering::try_evict(PageId page, bool punch, gas::BlockMask* unsaved) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  Held held(blocks_, all);
  if (held.claim(Way::try_all, BlockEvent::evict) != Verdict::proceed) return false;
  if (unsaved != nullptr) {
    held.for_each([&](std::uint64_t i, BlockId) {
      const BlockState before = held.before(i);
      (*unsaved)[i] = before.owned && !before.saved;
    });
  }
  held.open([](std::uint64_t, const BlockState&) { return BlockState{}; },
            [&] {
              if (punch) frames_.residency().empty(all);
            });
  return true;
}

void Tiering::give_back_tables_of_others() noexcept {
  const auto [offset, bytes] = frames_.residency().range();
  for (std::uint32_t r = 0; r < p_.transport.ranks(); ++r) {
    if (Rank{r} == p_.me()) continue;
    if (std::byte* frames = p_.transport.mapped(Rank{r}, gas::kFrames); frames != nullptr)
      mem::drop_translations(frames + offset, bytes);
  }
}

}  // namespace kasane::dsm
