// SPDX-License-Identifier: Apache-2.0
// Takes the step of a load, a store or a pin for many blocks of several pages at once: for a view
// (views.cpp), and for a fault whose sweep leaves its page (faults.cpp).
//
//   claim free blocks, in order, without waiting     a claimed block ends the row
//   look up the pages                                blocks of pages that cannot be read now are given back
//   join the readers of all pages; read all blocks   comm::Batch
//   make twins; set access rights in runs; finish
//
// Thread safety: an object belongs to one thread. It holds busy bits while it gathers, and waits for none.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <span>

#include "dsm/faults.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

/// What blocks are gathered for.
struct Wanted {
  BlockEvent inside, beside;         ///< for blocks that lie in the range as a whole; for others
  std::uint64_t begin = 0, end = 0;  ///< offsets

  static Wanted view(std::uint64_t offset, std::size_t bytes, Use use) noexcept {
    return {pin_event(use, true), pin_event(use, false), offset, offset + bytes};
  }
  static Wanted fault(BlockEvent event) noexcept { return {event, event}; }

  [[nodiscard]] BlockEvent event(BlockId b) const noexcept {
    return mem::offset_of(b) >= begin && mem::offset_of(b) + mem::kBlockBytes <= end ? inside : beside;
  }
};

class Gathering {
 public:
  static constexpr std::uint64_t kMostBlocks = Held::kMost;  ///< that are claimed at once

  /// Blocks of a view: up to kMostBlocks in a row, from the first of `row`, which is empty, to the end of the
  /// range.
  Gathering(Faults& faults, ThreadContext& ctx, const Wanted& wanted, Held& row) noexcept
      : f_(faults), ctx_(ctx), wanted_(wanted), held_(row) {}
  /// Blocks of a fault's sweep. b: the faulting block, the first or the last one.
  Gathering(Faults& faults, ThreadContext& ctx, const Wanted& wanted, Held& sweep, BlockId b) noexcept
      : f_(faults), ctx_(ctx), wanted_(wanted), held_(sweep), faulting_(sweep.index_of(b)) {}

  /// Serves the blocks that can be served together, and gives the others back. Of a sweep, the blocks of b's
  /// page stay held if b was not served.
  void gather();
  /// Blocks that were looked at.
  [[nodiscard]] std::uint64_t count() const noexcept { return held_.size(); }
  [[nodiscard]] bool served(std::uint64_t i) const noexcept { return served_[i]; }
  [[nodiscard]] BlockId block(std::uint64_t i) const noexcept { return held_[i]; }
  /// Of a sweep: how many blocks in a row, from b on, were served.
  [[nodiscard]] std::uint32_t served_in_a_row() const noexcept;

 private:
  static constexpr std::size_t kMostPages = gas::Sharing::kTogether;
  static_assert(kMostPages <= gas::AddressCache::kMostLearnt);

  /// A page of which blocks [first, end) are wanted; some of them are missing.
  struct Part {
    std::uint64_t first, end;
    gas::AddressCache::Found found;
    Fetched where = Fetched::leaving;
    std::optional<LastSeen> last_seen;  ///< of the first block that is read: for the auto-relocator
  };

  [[nodiscard]] bool sweeps() const noexcept { return faulting_ != kNone; }
  [[nodiscard]] BlockStep step(std::uint64_t i) const noexcept;
  [[nodiscard]] bool fetches(std::uint64_t i) const noexcept {
    return held_.has(i) && step(i).actions[0] == Action::fetch;
  }
  [[nodiscard]] bool missing(std::uint64_t i) const noexcept;
  [[nodiscard]] std::span<gas::Sharing::Joining> joining() noexcept { return {joining_.data(), joiners_}; }

  void claim() noexcept;
  void find_pages();
  void take_from_ssd(PageId, const Part&);
  std::uint64_t fill(const Part&) noexcept;
  void read_pages();
  void read(comm::Batch&, Part&);
  void give_back(const Part&) noexcept;
  void read_ahead();
  void read_back();
  void open() noexcept;

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  Faults& f_;
  ThreadContext& ctx_;
  const Wanted wanted_;
  Held& held_;                            ///< blocks with something to do
  const std::uint64_t faulting_ = kNone;  ///< of a sweep: b's index in it; the sweep goes on from there
  const Part* left_ = nullptr;            ///< of a sweep: b's page could not be read, and stays held
  std::bitset<kMostBlocks> served_;
  std::bitset<kMostBlocks> on_ssd_;  ///< held blocks whose bytes are in this rank's spill file
  std::array<Part, kMostPages> part_;
  std::size_t parts_ = 0, joiners_ = 0;
  std::array<gas::Sharing::Joining, kMostPages> joining_;
};

}  // namespace kasane::dsm
