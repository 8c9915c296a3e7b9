// SPDX-License-Identifier: Apache-2.0
#include "gas/auto_relocator.h"

#include <sched.h>
#include <sys/mman.h>

#include <bit>
#include <ctime>

#include "base/memory_file.h"
#include "gas/regions.h"

namespace kasane::gas {

Result<std::unique_ptr<AutoRelocator>> AutoRelocator::create(comm::Transport& transport,
                                                             const Directory& directory,
                                                             const Config& config) {
  const std::size_t bytes = directory.pages().in(config.offset, config.bytes).size() * sizeof(Count);
  auto got = map_sparse(bytes, "the uses of pages");
  KASANE_TRY(got);
  auto* const uses = reinterpret_cast<Count*>(*got);
  return std::unique_ptr<AutoRelocator>(new AutoRelocator(transport, directory, config, uses));
}

AutoRelocator::AutoRelocator(comm::Transport& transport, const Directory& directory, const Config& config,
                             Count* uses) noexcept
    : transport_(transport),
      directory_(directory),
      first_(directory.pages().in(config.offset, config.bytes).first),
      pages_(directory.pages().in(config.offset, config.bytes).size()),
      threshold_(config.threshold),
      look_mask_(std::bit_floor(config.threshold) - 1),
      second_(config.second),
      uses_(uses) {}

AutoRelocator::~AutoRelocator() { ::munmap(uses_, pages_ * sizeof(Count)); }

std::uint32_t AutoRelocator::wall_second() { return static_cast<std::uint32_t>(std::time(nullptr)); }

void AutoRelocator::note(PageId page) noexcept {
  // If the queue has no room, the page is noted after its next `threshold` uses.
  if (noted_.add(page)) transport_.wake(transport_.rank(), comm::Doorbell::messages);
}

bool AutoRelocator::serve(comm::Blocking& io, Mover& mover) {
  PageId page;
  if (!noted_.take(page)) return false;
  // seq_cst, here and in close(): each stores its own word before it reads the other's, so at least one of
  // the two sees the other.
  serving_.store(true);
  if (!closed_.load()) look_at(io, mover, page);
  serving_.store(false);
  return true;
}

void AutoRelocator::close() noexcept {
  closed_.store(true);
  while (serving_.load()) ::sched_yield();
}

void AutoRelocator::look_at(comm::Blocking& io, Mover& mover, PageId page) {
  // relaxed: uses that other threads count meanwhile may be lost; they are estimates.
  Count& uses = uses_[raw(page) - first_];
  const auto [seen, where] = directory_.usage(io, page);
  if (where.fixed) return uses.store(kResting | 1, std::memory_order_relaxed);
  const UseRecord usage = UseRecord::of(seen);
  const bool last_is_near = usage.last != kNoRank && usage.last != transport_.rank() && near(usage.last);
  RelocationDecision what = decide_relocation(usage, transport_.rank(), last_is_near,
                                              uses.load(std::memory_order_relaxed), threshold_, second_());
  if (what.take_if_far) {
    what.take = !near(where.owner);
    if (!what.take) what.after = what.stays;
  }
  uses.store(what.take ? 0 : what.streak, std::memory_order_relaxed);
  // Word 3 is changed also where the page then does not come, because it is pinned or moves: the next try
  // needs twice as many uses.
  if (what.after.word() != seen) directory_.replace_usage(io, page, seen, what.after.word());
  if (what.take && mover.pull(io, page)) io.count(&Counters::pages_auto_relocated);
}

bool AutoRelocator::near(Rank rank) const noexcept { return transport_.mapped(rank, kFrames) != nullptr; }

}  // namespace kasane::gas
