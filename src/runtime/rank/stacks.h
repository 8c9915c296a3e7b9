// SPDX-License-Identifier: Apache-2.0
// Where the stack of a thread is when the thread runs on another rank than its birth rank
// (docs/design/sched.md, "Stacks"):
//
//   common    all ranks are on one host: V and A of every rank show a stack's frames in the M of its birth
//             rank. The hardware keeps this one memory coherent, as between two workers of a rank. It is
//             never armed and never moved: a steal only makes the thread run elsewhere
//   moving    else: the rank that runs a thread owns the pages of its stack, and its live bytes are brought
//             there (rule 12)
//
// The first thread's stack has main's size. Where stacks move, what it has more than others is untouched
// memory (gas.md, "First touch") until the thread gets that far: the fault makes the page that of the rank
// where the thread runs. The lowest page of which this is so is noted in the stack's last word, which comes
// along with the stack: as many pages move with the thread.
//
// Thread safety: from any worker. Waiting is done by polling: no switch to another user-level thread happens
// inside.
#pragma once

#include "dsm/coherence.h"
#include "gas/mover.h"
#include "runtime/rank/memory_tiers.h"
#include "runtime/rank/segments.h"
#include "runtime/rank/thread_contexts.h"
#include "ult/edges.h"

namespace kasane::runtime {

class Stacks : public ult::StackMover {
 public:
  struct Parts {
    gas::Mover& mover;
    ThreadContexts& contexts;
    mem::Space& space;
    const mem::Pages& pages;
    const Segments& segments;
    Rank me;
    MemoryTiers* tiers;  ///< counts the frames of stacks; null: they are not counted
  };
  explicit Stacks(const Parts& parts) noexcept
      : mover_(parts.mover),
        contexts_(parts.contexts),
        space_(parts.space),
        pages_(parts.pages),
        segments_(parts.segments),
        me_(parts.me),
        tiers_(parts.tiers) {}
  /// Called before this process uses a stack for the first time: installs the guard, and on the birth rank
  /// assigns pages and access.
  virtual void prepare(StackId) = 0;
  /// Around the service of a fault below the other stacks: the block becomes accessible between the two, and
  /// the thread may go on at once.
  virtual void before_service(std::uint64_t /*offset*/) {}
  virtual void after_service(std::uint64_t /*offset*/) {}

 protected:
  void assign(StackId);
  void guard(StackId);
  void count_frames(StackId);
  /// The block where frames begin.
  [[nodiscard]] std::uint64_t top_block(StackId stack) const noexcept {
    return segments_.stack_end(stack) - mem::kBlockBytes;
  }
  /// All of a stack, but of the first thread's no more than others have.
  [[nodiscard]] std::uint64_t offset_of(StackId stack) const noexcept {
    return segments_.stack_end(stack) - segments_.stack_bytes;
  }
  [[nodiscard]] mem::PageRange pages(StackId stack) const noexcept {
    return pages_.in(offset_of(stack), segments_.stack_bytes);
  }
  /// What the first thread's stack has more: from this offset to the others.
  [[nodiscard]] mem::PageRange more_pages(std::uint64_t from) const noexcept {
    return pages_.in(from, segments_.stacks_offset - from);
  }
  [[nodiscard]] Rank birth_rank(StackId stack) const noexcept {
    return Rank{static_cast<std::uint32_t>(raw(stack) / segments_.stacks_per_rank)};
  }

  gas::Mover& mover_;
  ThreadContexts& contexts_;
  mem::Space& space_;
  const mem::Pages& pages_;
  const Segments& segments_;
  const Rank me_;
  MemoryTiers* const tiers_;
};

class CommonStacks final : public Stacks {
 public:
  using Stacks::Stacks;
  /// Whether stacks can be common. Called after the frames were attached; every rank gets the same answer.
  [[nodiscard]] static bool possible(const comm::Transport&) noexcept;
  /// Makes V and A show the stacks of all ranks. Called before the fault engine is made, which then leaves
  /// them accessible.
  static Result<void> show(mem::Space&, const Segments&, const comm::Transport&);

  void adopt(StackId, std::uintptr_t, std::uintptr_t, Rank) override {}
  void surrender(StackId) override {}
  void reclaim(StackId) override {}
  void prepare(StackId) override;
  /// Gives back the frames of a free stack. Stacks that move have no such call: their V is armed, so a block
  /// without a frame would be absent, and a running stack must not fault.
  void trim(StackId);
  /// Called before this process uses a trimmed stack again.
  void use_trimmed(StackId);
};

class MovingStacks final : public Stacks {
 public:
  MovingStacks(const Parts& parts, dsm::Coherence& coherence) noexcept
      : Stacks(parts), coherence_(coherence) {}
  void adopt(StackId, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank from) override;
  void surrender(StackId) override;
  void reclaim(StackId) override;
  void prepare(StackId) override;
  void before_service(std::uint64_t offset) override;
  void after_service(std::uint64_t offset) override;

 private:
  void guard_again(StackId);
  /// Of the first thread's stack, the offset of the lowest page that has been used. It is this rank's while
  /// the thread is here.
  [[nodiscard]] std::uint64_t& lowest_used() const noexcept {
    return *reinterpret_cast<std::uint64_t*>(
        space_.a(segments_.stack_end(StackId{0}) - sizeof(std::uint64_t)));
  }

  dsm::Coherence& coherence_;
};

}  // namespace kasane::runtime
