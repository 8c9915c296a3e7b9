// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/stacks.h"

#include "base/assert.h"
#include "gas/regions.h"
#include "mem/populate.h"
#include "mem/stack_guard.h"

namespace kasane::runtime {

using mem::kBlockBytes;

void Stacks::assign(StackId stack) {
  for (const PageId page : pages(stack))
    KASANE_CHECK(mover_.assign(contexts_.here().io, page, me_).has_value());
}

// install_guard() fails beyond the bound of guards on a kernel without markers (mem/stack_guard.h); the slot
// works without a guard.
void Stacks::guard(StackId stack) {
  static_cast<void>(mem::install_guard(space_.v(segments_.stack_offset(stack))));
}

void Stacks::count_frames(StackId stack) {
  if (tiers_ != nullptr) tiers_->use_stack(contexts_.here().io, stack, birth_rank(stack) == me_);
}

// ---- common -----------------------------------------------------------------------------------------------

bool CommonStacks::possible(const comm::Transport& transport) noexcept {
  for (std::uint32_t r = 0; r < transport.ranks(); ++r) {
    if (transport.mapped(Rank{r}, gas::kFrames) == nullptr) return false;
  }
  return true;
}

Result<void> CommonStacks::show(mem::Space& space, const Segments& segments,
                                const comm::Transport& transport) {
  const std::uint64_t bytes = segments.stacks_per_rank * segments.stack_bytes;  // of one rank
  for (std::uint32_t r = 0; r < transport.ranks(); ++r) {
    if (Rank{r} == transport.rank()) continue;
    const std::uint64_t end = segments.stacks_offset + (r + 1) * bytes,
                        offset = r == 0 ? segments.all_stacks_offset() : end - bytes;
    KASANE_TRY(space.show(offset, end - offset, transport.mapped(Rank{r}, gas::kFrames) + offset));
  }
  return {};
}

// Nothing is populated: the kernel maps the stack when it is touched, for less than a system call costs.
void CommonStacks::prepare(StackId stack) {
  if (birth_rank(stack) == me_) {
    count_frames(stack);
    assign(stack);
    if (raw(stack) == 0) {
      for (const PageId page : more_pages(segments_.all_stacks_offset()))
        KASANE_CHECK(mover_.assign(contexts_.here().io, page, me_).has_value());
    }
  }
  guard(stack);
}

// The lowest block, the guard, stays: punching it would remove the marker.
void CommonStacks::trim(StackId stack) {
  const std::uint64_t low = segments_.stack_offset(stack) + kBlockBytes;
  mem::punch_frames(space_.frames_fd(), low, segments_.stack_offset(stack) + segments_.stack_bytes - low);
  if (tiers_ != nullptr) tiers_->forget_stack(stack);
}

void CommonStacks::use_trimmed(StackId stack) { count_frames(stack); }

// ---- moving -----------------------------------------------------------------------------------------------

void MovingStacks::adopt(StackId stack, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank) {
  auto& context = contexts_.here();
  const gas::ByteRange live{space_.offset(reinterpret_cast<void*>(live_lo)),
                            space_.offset(reinterpret_cast<void*>(live_hi - 1)) + 1};
  for (const PageId page : pages(stack)) {
    const auto moved = mover_.bring(context.io, page, live);
    KASANE_CHECK(moved.has_value(), "a stack that waits to be run is not pinned");
  }
  if (raw(stack) == 0) {
    for (const PageId page : more_pages(lowest_used()))
      KASANE_CHECK(mover_.bring(context.io, page, live).has_value(), "likewise");
  }
  guard_again(stack);
  count(context.counters.bytes_moved, live.end - live.begin);
}

void MovingStacks::surrender(StackId stack) {
  auto& context = contexts_.here();
  if (raw(stack) == 0) {  // false: large frames have left it untouched
    for (const PageId page : more_pages(lowest_used()))
      static_cast<void>(mover_.hand_back(context.io, page, birth_rank(stack)));
  }
  for (const PageId page : pages(stack)) {
    KASANE_CHECK(mover_.hand_back(context.io, page, birth_rank(stack)),
                 "the rank that ran a thread owns its stack");
  }
}

void MovingStacks::reclaim(StackId stack) {
  coherence_.moves.arm_owned(contexts_.here().io, offset_of(stack), segments_.stack_bytes);
  guard_again(stack);
}

// Arming may have removed the marker (mem/uffd_engine.cpp); the guards of other kernels stay.
void MovingStacks::guard_again(StackId stack) {
  if (mem::guards_available()) guard(stack);
}

// Before: afterwards another rank may have taken the thread, and with it the pages from there on.
void MovingStacks::before_service(std::uint64_t offset) {
  const std::uint64_t page = pages_.offset_of(pages_.page_of(mem::block_of(offset)));
  if (page < lowest_used()) lowest_used() = page;
}

void MovingStacks::after_service(std::uint64_t offset) {
  if (pages_.page_of(mem::block_of(offset)) == pages_.page_of(mem::block_of(segments_.all_stacks_offset())))
    guard_again(StackId{0});
}

void MovingStacks::prepare(StackId stack) {
  const bool born_here = birth_rank(stack) == me_;
  count_frames(stack);  // on every rank: where the stack is used it gets frames, and keeps them
  if (born_here) {
    assign(stack);
    coherence_.moves.arm_owned(contexts_.here().io, offset_of(stack), segments_.stack_bytes);
    if (raw(stack) == 0) {
      for (const PageId page : more_pages(segments_.all_stacks_offset()))
        KASANE_CHECK(mover_.assign_untouched(contexts_.here().io, page).has_value());
      lowest_used() = segments_.stacks_offset;
    }
  }
  // Populates the top block in M, A and V, so that neither the first frames nor a move fault page by page
  // (rule 12).
  mem::populate(space_.a(top_block(stack)), kBlockBytes);
  if (born_here) mem::populate(space_.v(top_block(stack)), kBlockBytes);
  guard(stack);
}

}  // namespace kasane::runtime
