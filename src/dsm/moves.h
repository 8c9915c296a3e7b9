// SPDX-License-Identifier: Apache-2.0
// This rank's part in moves of pages (gas::Mover), and in the reuse of memory by the heap: which blocks are
// claimed, what is merged, and what V allows afterwards (rules 4, 7 and 8).
// Thread safety: every call from any thread. Claims that a call leaves are those of the page, until it is
// settled or unclaimed.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "dsm/fences.h"
#include "dsm/held.h"
#include "dsm/parts.h"
#include "dsm/tiering.h"
#include "gas/heap_hooks.h"
#include "gas/mover.h"

namespace kasane::dsm {

class Moves final : public gas::PageBlocks, public gas::HeapHooks {
 public:
  Moves(Blocks& blocks, const Frames& frames, Fences& fences, Tiering& tiering, gas::Mover& mover) noexcept
      : blocks_(blocks), frames_(frames), fences_(fences), tiering_(tiering), mover_(mover) {}

  /// From now on threads of this rank may change owned blocks by restartable sequences (traps/restartable.h)
  /// that look at the block's word first: a page that leaves restarts them.
  void allow_restartable() noexcept { restartable_.store(true); }

  // gas::HeapHooks
  void arm_owned(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void take(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void discard(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  [[nodiscard]] bool arms_without_frames() const noexcept override { return !frames_.limited(); }
  [[nodiscard]] bool fits(std::uint64_t bytes) noexcept override {
    return frames_.fits(bytes / mem::kBlockBytes);
  }

  // gas::PageBlocks
  void admit(comm::Blocking& io, PageId page) override { tiering_.admit(io, page); }
  gas::YieldAnswer yield(PageId) noexcept override;
  bool try_evict(PageId page, bool punch, gas::BlockMask* unsaved) noexcept override {
    return tiering_.try_evict(page, punch, unsaved);
  }
  gas::Claim claim(PageId, gas::ClaimFor, comm::Blocking* waits) override;
  [[nodiscard]] gas::BlocksHere blocks_here(PageId) const noexcept override;
  void merge(comm::Blocking&, std::span<const gas::Arrival>) override;
  void settle(PageId, gas::Settled, mem::BlockRange used) override;
  void note(PageId, gas::PageNews) noexcept override;

 private:
  template <class F>
  void for_each_arriving(PageId, gas::ByteRange live, const F& part) const;
  std::optional<gas::Location> claim_fresh(comm::Blocking&, Held&, PageId);
  void arm(Held&) noexcept;
  template <BlockEvent>
  bool concerns(BlockId) const noexcept;

  Blocks& blocks_;
  const Frames& frames_;
  Fences& fences_;
  Tiering& tiering_;
  gas::Mover& mover_;
  const Parts& p_ = blocks_.parts();
  const gas::Directory& directory_ = p_.directory();
  const mem::Pages& pages_ = p_.pages();
  std::atomic<bool> restartable_{false};
};

}  // namespace kasane::dsm
