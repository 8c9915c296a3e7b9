// SPDX-License-Identifier: Apache-2.0
#include "mem/residency.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"

namespace kasane::mem {

Result<std::unique_ptr<Residency>> Residency::create(const Space& space, const Pages& pages, HostBudget& host,
                                                     std::uint32_t rank, Config config) {
  auto frames = BlockSet::create(space.blocks());
  KASANE_TRY(frames);
  auto twins = BlockSet::create(space.blocks());
  KASANE_TRY(twins);
  auto freed = PageSet::create(pages.count());
  KASANE_TRY(freed);
  auto arrivals = Arrivals::create(pages.count());
  KASANE_TRY(arrivals);
  auto tables = PageTables::create(space.bytes(), pages);
  KASANE_TRY(tables);
  return std::unique_ptr<Residency>(new Residency(
      space, pages, host, rank, std::move(config),
      {std::move(*frames), std::move(*twins), std::move(*freed), std::move(*arrivals), std::move(*tables)}));
}

Residency::Residency(const Space& space, const Pages& pages, HostBudget& host, std::uint32_t rank,
                     Config config, Sets sets) noexcept
    : space_(space),
      pages_(pages),
      range_(config.range),
      total_(host.total),
      room_(host, rank, config.low != 0 ? config.low : many_tables(host.total / host.ranks)),
      frame_blocks_(std::max<std::uint64_t>(1, config.frame_bytes / kBlockBytes)),
      frames_(std::move(sets.frames)),
      twins_(std::move(sets.twins)),
      freed_(std::move(sets.freed)),
      arrivals_(std::move(sets.arrivals)),
      tables_(std::move(sets.tables)),
      stacks_(std::move(config.stacks)) {}

/// The frames in which the blocks lie, as blocks.
BlockRange Residency::frames_of(BlockRange blocks) const noexcept {
  if (frame_blocks_ == 1 || pages_.blocks_of(pages_.page_of(blocks.first)).count < frame_blocks_)
    return blocks;
  const std::uint64_t first = raw(blocks.first) / frame_blocks_ * frame_blocks_,
                      end = raw(blocks.first) + blocks.count;
  return {BlockId{first}, (end - first + frame_blocks_ - 1) / frame_blocks_ * frame_blocks_};
}

std::uint64_t Residency::count(BlockRange blocks) const noexcept {
  std::uint64_t n = 0;
  for (std::uint64_t b = frames_.next(raw(blocks.first)); b < raw(blocks.first) + blocks.count;
       b = frames_.next(b + 1))
    ++n;
  return n;
}

void Residency::fill(BlockRange blocks) noexcept {
  if (counts(offset_of(blocks.first))) count_in(frames_of(blocks));
}

void Residency::fill_staged(BlockRange blocks) noexcept {
  if (counts(offset_of(blocks.first))) count_in(blocks);
}

void Residency::count_in(BlockRange blocks) noexcept {
  std::uint64_t fresh = 0;
  for (std::uint64_t b = raw(blocks.first); b < raw(blocks.first) + blocks.count; ++b) {
    if (frames_.contains(BlockId{b})) continue;
    frames_.insert(BlockId{b});
    ++fresh;
  }
  for (const PageId page : pages_.in(offset_of(blocks.first), blocks.count * kBlockBytes)) {
    const bool anew = freed_.contains(page);
    if (anew) freed_.erase(page);
    if (anew || fresh != 0) arrivals_.note(page);
  }
  if (fresh != 0) charge(BudgetUse::owned, fresh);
  use_tables(blocks);
}

void Residency::use_tables(BlockRange blocks) noexcept {
  const PageTables::Fresh fresh = tables_.note(blocks);
  if (fresh.tables == 0) return;  // almost always
  charge(BudgetUse::page_tables, fresh.tables);
  charge(BudgetUse::entries, fresh.entries);
  if (const std::uint64_t presumed = tables_.presumed();
      presumed >= presumed_most_ && presumed - fresh.tables < presumed_most_)
    ring();
}

bool Residency::tables_due() const noexcept {
  if (room_.limitless()) return false;
  return tables_.presumed() >= presumed_most_ || now_ns() - measured_ns_ >= kMeasureEachNs;
}

std::uint64_t Residency::measure_tables() noexcept {
  const Measured measured = tables_.measure();
  correct(BudgetUse::page_tables, measured);
  measured_ns_ = now_ns();
  return measured.now;
}

void Residency::note_leaving_tables(std::uint64_t blocks) noexcept {
  leaving_tables_ += blocks;
  charge(BudgetUse::page_tables, blocks);
}

void Residency::see_off_tables() noexcept {
  if (leaving_tables_ == 0) return;
  wait_until_tables_are_freed();
  pay(BudgetUse::page_tables, std::exchange(leaving_tables_, 0));
}

void Residency::use_stack(StackId stack) noexcept {
  const std::uint64_t presumed = stacks_->note(stack);
  if (presumed == 0) return;
  charge(BudgetUse::stacks, presumed);
  // Where there is room the pager's measurements do: a look costs as much as the stack.
  if (stacks_->many_presumed() && !room_.admitted(stacks_->presumed())) {
    if (const auto measured = stacks_->measure_new()) correct(BudgetUse::stacks, *measured);
  }
  // After it was noted: from now on the pager never sleeps without a limit.
  if (!stacks_used_.exchange(true)) ring();
}

void Residency::measure_stacks() noexcept {
  if (const auto measured = stacks_->measure()) correct(BudgetUse::stacks, *measured);
}

// The pager examines freed pages when it wakes. seq_cst: if it sees the flag, it sees the page in the set.
void Residency::note_freed(PageRange range) noexcept {
  if (range.first == range.last) return;
  bool more = false;
  const std::uint64_t end = pages_.end_of(PageId{range.last - 1}) / kBlockBytes;
  // Most of a large range may have no frames here.
  for (std::uint64_t b = frames_.next(pages_.offset_of(PageId{range.first}) / kBlockBytes); b < end;) {
    const PageId page = pages_.page_of(BlockId{b});
    b = frames_.next(pages_.end_of(page) / kBlockBytes);
    if (!counts(page) || freed_.contains(page)) continue;
    freed_.insert(page);
    more = true;
  }
  if (more) more_freed_.store(true);
}

void Residency::fill_twin(BlockId b) noexcept {
  if (!counts(offset_of(b)) || twins_.contains(b)) return;
  twins_.insert(b);
  charge(BudgetUse::twins, 1);
}

std::uint64_t Residency::punch(int fd, BlockSet& set, BlockRange blocks) noexcept {
  const std::uint64_t end = raw(blocks.first) + blocks.count;
  std::uint64_t punched = 0;
  for (std::uint64_t b = set.next(raw(blocks.first)); b < end; b = set.next(b + 1)) {
    set.erase(BlockId{b});
    ++punched;
  }
  // Punches the whole range, counted or not: other ranks may have read or written frames that no thread here
  // has touched.
  if (punched != 0 || fd == space_.frames_fd())
    punch_frames(fd, offset_of(blocks.first), blocks.count * kBlockBytes);
  return punched;
}

void Residency::empty(BlockRange blocks) noexcept {
  for (const PageId page : pages_.in(offset_of(blocks.first), blocks.count * kBlockBytes)) {
    if (freed_.contains(page)) freed_.erase(page);
  }
  pay(BudgetUse::owned, punch(space_.frames_fd(), frames_, blocks));
  pay(BudgetUse::twins, punch(space_.twins_fd(), twins_, blocks));
}

}  // namespace kasane::mem
