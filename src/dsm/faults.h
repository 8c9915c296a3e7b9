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
#include "dsm/tiering.h"
#include "gas/mover.h"

namespace kasane::dsm {

class Faults {
 public:
  Faults(Blocks& blocks, const Frames& frames, Fetches& fetches, const Fences& fences, Tiering& tiering,
         gas::Mover& mover) noexcept
      : blocks_(blocks),
        frames_(frames),
        fetches_(fetches),
        fences_(fences),
        tiering_(tiering),
        mover_(mover) {}

  /// Makes the access possible. False: the address is not allocated, or the fault has another cause.
  bool serve(ThreadContext&, std::uint64_t offset, Access);

  // ---- for views ----
  enum class Outcome { served, again, not_allocated };
  /// `held` is one block, for a load, store or pin. Nothing is held when this returns.
  Outcome carry_out(ThreadContext&, Held& held, BlockEvent, const BlockStep&);

 private:
  friend class Gathering;

  void await_page(comm::Blocking&, PageId);
  static bool cannot_be_served(ThreadContext&, std::uint64_t offset) noexcept;
  void make_twins(const Held&) const noexcept;
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
  const Parts& p_ = blocks_.parts();
  const gas::Directory& directory_ = p_.directory();
  const mem::Pages& pages_ = p_.pages();
};

}  // namespace kasane::dsm
