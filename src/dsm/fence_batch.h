// SPDX-License-Identifier: Apache-2.0
// Takes the step of a release or an acquire for many blocks at once (rules 3, 4 and 11):
//
//   add(b) …   claims a free block, without waiting
//   run()      protects in runs; puts the changes of all pages whose owners are known here at once;
//              awaits them together; finishes
//
// Each of the other pages is put separately: a put under way waits for nothing but its completion, so not for
// the end of another page's move.
// Thread safety: an object belongs to one thread. From add() to run() it holds busy bits, and waits for none.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "dsm/coherence.h"

namespace kasane::dsm {

class Coherence::FenceBatch {
 public:
  /// event: release or acquire, or release_open or acquire_open: then what this rank changes again and again
  /// stays writable.
  FenceBatch(Coherence& coherence, comm::Blocking& io, Counters* counters, BlockEvent event) noexcept
      : c_(coherence),
        io_(io),
        counters_(counters),
        event_(event == BlockEvent::release || event == BlockEvent::release_open ? BlockEvent::release
                                                                                 : BlockEvent::acquire),
        may_stay_open_(event != event_) {}
  ~FenceBatch() { run(); }

  /// False: another thread has claimed the block. A block whose access does not change (a pinned one; a whole
  /// one at an acquire) takes its step at once and alone.
  bool add(BlockId);
  void run();

 private:
  static constexpr std::size_t kMostBlocks = 128, kMostPages = 32;
  static_assert(kMostPages <= gas::AddressCache::kMostLearnt);
  /// Claimed blocks [first, end) of a page.
  struct Part {
    PageId page;
    std::size_t first, end;
    bool unsent;            ///< with changes
    bool now_owned;         ///< this rank owns the page by now, and the blocks that were changed
    gas::PartMask changed;  ///< parts of the page to which something is put together with other pages
    std::optional<gas::AddressCache::Put> put;
  };

  [[nodiscard]] std::span<const BlockId> blocks(const Part& part) const noexcept {
    return {&block_[part.first], part.end - part.first};
  }
  [[nodiscard]] std::span<Part> parts() noexcept { return {part_.data(), parts_}; }
  [[nodiscard]] std::span<bool> open(const Part& part) noexcept {
    return {&open_[part.first], part.end - part.first};
  }
  [[nodiscard]] bool stays_open(BlockId, const BlockState&) noexcept;
  void protect() noexcept;
  void put();
  void put_together();
  void finish() noexcept;

  Coherence& c_;
  comm::Blocking& io_;
  Counters* counters_;
  const BlockEvent event_;
  const bool may_stay_open_;
  std::array<BlockId, kMostBlocks> block_;
  std::array<bool, kMostBlocks> open_;  ///< V goes on allowing stores to it
  std::array<Part, kMostPages> part_;
  std::size_t blocks_ = 0, parts_ = 0;
};

}  // namespace kasane::dsm
