// SPDX-License-Identifier: Apache-2.0
// Takes the step of a load, a store or a pin for many blocks of several pages at once: for a view
// (views.cpp), and for a fault whose sweep leaves its page (faults.cpp).
//
//   claim free blocks, in order, without waiting     a claimed block ends the row
//   look up the pages                                blocks of pages that cannot be read now are unclaimed
//   join the readers of all pages; read all blocks   comm::Batch
//   make twins; set access rights in runs; finish
//
// Thread safety: an object belongs to one thread. It holds busy bits while it gathers, and waits for none.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <span>

#include "dsm/coherence.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

/// What blocks are gathered for.
struct Coherence::Wanted {
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

class Coherence::Gathering {
 public:
  static constexpr std::uint64_t kMostBlocks = 512;  ///< blocks that are claimed at once

  /// Blocks of a view: up to kMostBlocks in a row, from `first` to the end of the range.
  Gathering(Coherence& coherence, ThreadContext& ctx, const Wanted& wanted, BlockId first) noexcept
      : c_(coherence), ctx_(ctx), wanted_(wanted), blocks_(first, 1, 0) {}
  /// Blocks of a fault's sweep, which the caller has claimed. b: the faulting block.
  Gathering(Coherence& coherence, ThreadContext& ctx, const Wanted& wanted, const Stripe& claimed,
            BlockId b) noexcept
      : c_(coherence),
        ctx_(ctx),
        wanted_(wanted),
        blocks_(claimed),
        faulting_(b == claimed.first ? 0 : claimed.count - 1) {}

  /// Serves the blocks that can be served together, and unclaims the others. Of a sweep, the blocks of b's
  /// page stay claimed by the caller if b was not served.
  void gather();
  /// Blocks that were looked at.
  [[nodiscard]] std::uint64_t count() const noexcept { return blocks_.count; }
  [[nodiscard]] bool served(std::uint64_t i) const noexcept { return served_[i]; }
  [[nodiscard]] BlockId block(std::uint64_t i) const noexcept { return blocks_[i]; }
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
    return held_[i] && step(i).actions[0] == Action::fetch;
  }
  [[nodiscard]] bool missing(std::uint64_t i) const noexcept;
  [[nodiscard]] std::span<gas::Sharing::Joining> joining() noexcept { return {joining_.data(), joiners_}; }

  void claim() noexcept;
  void find_pages();
  void take_from_ssd(PageId, const Part&);
  std::uint64_t fill(const Part&) noexcept;
  void read_pages();
  void read(comm::Batch&, Part&);
  void unclaim(const Part&) noexcept;
  void read_ahead();
  void read_back();
  void open() noexcept;
  void open_run(std::uint64_t first, std::uint64_t end) noexcept;

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Coherence& c_;
  ThreadContext& ctx_;
  const Wanted wanted_;
  Stripe blocks_;
  const std::uint32_t faulting_ = kNone;  ///< of a sweep: b's index in it; the sweep goes on from there
  std::bitset<kMostBlocks> held_;         ///< claimed blocks with something to do
  std::bitset<kMostBlocks> served_;
  std::bitset<kMostBlocks> on_ssd_;  ///< claimed blocks whose bytes are in this rank's spill file
  std::array<Part, kMostPages> part_;
  std::size_t parts_ = 0, joiners_ = 0;
  std::array<gas::Sharing::Joining, kMostPages> joining_;
};

}  // namespace kasane::dsm
