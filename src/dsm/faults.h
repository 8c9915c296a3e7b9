// SPDX-License-Identifier: Apache-2.0
// Accesses that V does not allow yet: which blocks a fault claims, where it gets a page's bytes from, and
// what it makes visible.
// Thread safety: every call from any thread, each with a ThreadContext of its own; also inside a fault
// handler. No call allocates, logs, or holds anything but busy bits while it waits.
#pragma once

#include <cstdint>

#include "dsm/fences.h"
#include "dsm/fetches.h"
#include "dsm/held.h"
#include "dsm/misses.h"
#include "dsm/tiering.h"
#include "gas/mover.h"

namespace kasane::dsm {

class Faults {
 public:
  Faults(Blocks& blocks, const Frames& frames, Fetches& fetches, const Fences& fences, Tiering& tiering,
         gas::Mover& mover)
      : blocks_(blocks),
        frames_(frames),
        fetches_(fetches),
        fences_(fences),
        tiering_(tiering),
        mover_(mover),
        misses_(blocks, frames, fetches) {}

  enum class Outcome {
    served,         ///< or the access is to run again, and the thread has waited for what was in its way
    later,          ///< the access is to run again when its block is not busy() any more
    unknown,        ///< and when ask() has returned
    again,          ///< of carry_out(): the access is to run again
    not_allocated,  ///< or the fault has another cause
  };
  /// Makes the access possible. may_leave: the calling thread can wait elsewhere.
  Outcome serve(ThreadContext&, std::uint64_t offset, Access, bool may_leave);
  /// False: not_allocated.
  bool serve(ThreadContext& ctx, std::uint64_t offset, Access wanted) {
    return serve(ctx, offset, wanted, false) != Outcome::not_allocated;
  }
  [[nodiscard]] bool here(BlockId b) const noexcept { return blocks_.glance(b).access != Access::none; }
  [[nodiscard]] bool busy(BlockId b) const noexcept { return blocks_.state(b).busy; }
  /// For a thread that has left its fault, and holds nothing: where is the page, and this rank becomes one of
  /// its readers. A page that is on SSD is paged in.
  void ask(comm::Blocking& io, PageId page) const { fetches_.become_reader(io, page); }
  /// Would ask() take trips between ranks before the block can be fetched?
  [[nodiscard]] bool must_ask(BlockId) const noexcept;
  /// No access faults any more: returns when nothing is on its way for one.
  void await_misses(comm::Blocking& io) { misses_.await_all(io); }

  // ---- for views ----
  /// `held` is one block, for a load, store or pin. Nothing is held when this returns.
  Outcome carry_out(ThreadContext&, Held& held, BlockEvent, const BlockStep&, bool may_leave = false);

 private:
  friend class Gathering;

  static Outcome leaves(ThreadContext& ctx) noexcept {
    count(ctx.counters.faults_left);
    return Outcome::later;
  }
  void await_page(comm::Blocking&, PageId);
  static bool cannot_be_served(ThreadContext&, std::uint64_t offset) noexcept;
  bool claim_sweep(ThreadContext&, Held&, BlockEvent, const BlockStep&);
  [[nodiscard]] FramesAround frames_around(BlockId) const noexcept;
  [[nodiscard]] std::uint32_t changed_below(BlockId, mem::BlockRange within) const noexcept;
  [[nodiscard]] bool leads_to(PageId other, PageId page) const noexcept;
  bool gather_sweep(ThreadContext&, Held&, BlockId, BlockEvent);
  void arm_own_page(BlockId, Held&, std::uint32_t pins) noexcept;
  bool make_present(ThreadContext&, mem::BlockRange used, Fetched, Rank owner);

  static constexpr std::uint32_t kMaxIdle = 10'000;
  // with a PollWaiter: some tens of microseconds, and then naps
  static constexpr unsigned kLooksAtPage = 400;

  Blocks& blocks_;
  const Frames& frames_;
  Fetches& fetches_;
  const Fences& fences_;
  Tiering& tiering_;
  gas::Mover& mover_;
  Misses misses_;
  const Parts& p_ = blocks_.parts();
  const gas::Directory& directory_ = p_.directory();
  const mem::Pages& pages_ = p_.pages();
};

}  // namespace kasane::dsm
