// SPDX-License-Identifier: Apache-2.0
// The step of a load, a store or a pin, taken for many blocks of several pages side by side: by a view (views.cpp), and by a fault whose sweep leaves its page
// (faults.cpp).
//
//   claim what is free, in order, without waiting               a block that somebody has in hand ends the gathering
//   where are the pages                                         what is not to be had with the others is given back
//   join the readers of all; read all                           comm::Batch
//   twins; rights in runs; finish
//
// Thread safety: an object belongs to one thread; it holds busy bits while it gathers, and waits for none.
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
  Event inside, beside;              ///< of blocks that lie in the range as a whole; of others
  std::uint64_t begin = 0, end = 0;  ///< offsets

  static Wanted view(std::uint64_t offset, std::size_t bytes, Use use) noexcept { return {pin_event(use, true), pin_event(use, false), offset, offset + bytes}; }
  static Wanted fault(Event event) noexcept { return {event, event}; }

  [[nodiscard]] Event event(BlockId b) const noexcept {
    return mem::offset_of(b) >= begin && mem::offset_of(b) + mem::kBlockBytes <= end ? inside : beside;
  }
};

class Coherence::Gathering {
 public:
  static constexpr std::uint64_t kMostBlocks = 512;   ///< whose bits are held at once

  /// Blocks of a view: up to kMostBlocks in a row, from `first` to the end of what is wanted.
  Gathering(Coherence& coherence, ThreadContext& ctx, const Wanted& wanted, BlockId first) noexcept
      : c_(coherence), ctx_(ctx), wanted_(wanted), blocks_(first, 1, 0) {}
  /// Blocks of a fault's sweep, which the caller has claimed. b: the first of them that it wants.
  Gathering(Coherence& coherence, ThreadContext& ctx, const Wanted& wanted, const Stripe& claimed, BlockId b) noexcept
      : c_(coherence), ctx_(ctx), wanted_(wanted), blocks_(claimed), faulting_(b == claimed.first ? 0 : claimed.count - 1) {}

  /// Serves what can be had together, and gives the other bits back; of a sweep all but those of b's page, which remain the caller's if b was not served.
  void gather();
  /// Blocks that were looked at.
  [[nodiscard]] std::uint64_t count() const noexcept { return blocks_.count; }
  /// Blocks that went to the write buffer.
  [[nodiscard]] std::uint64_t noted() const noexcept { return noted_; }
  [[nodiscard]] bool served(std::uint64_t i) const noexcept { return served_[i]; }
  [[nodiscard]] BlockId block(std::uint64_t i) const noexcept { return blocks_[i]; }
  /// Of a sweep: how many from b on.
  [[nodiscard]] std::uint32_t served_in_a_row() const noexcept;

 private:
  static constexpr std::size_t kMostPages = gas::Sharing::kTogether;
  static_assert(kMostPages <= gas::AddressCache::kMostLearnt);

  /// A page of which blocks [first, end) are wanted, some of them missing.
  struct Part {
    std::uint64_t first, end;
    gas::AddressCache::Found found;
    Fetched where = Fetched::leaving;
    std::optional<LastSeen> last_seen;   ///< of the first block that is read: for the attractor
  };

  [[nodiscard]] bool sweeps() const noexcept { return faulting_ != kNone; }
  [[nodiscard]] Step step(std::uint64_t i) const noexcept;
  [[nodiscard]] bool fetches(std::uint64_t i) const noexcept { return held_[i] && step(i).actions[0] == Action::fetch; }
  [[nodiscard]] bool missing(std::uint64_t i) const noexcept;
  [[nodiscard]] std::span<gas::Sharing::Joining> joining() noexcept { return {joining_.data(), joiners_}; }

  void claim() noexcept;
  void find_pages();
  void enter(PageId, const Part&);
  std::uint64_t fill(const Part&) noexcept;
  void read_pages();
  void read(comm::Batch&, Part&);
  void give_back(const Part&) noexcept;
  void read_ahead();
  void read_back();
  void open() noexcept;
  void open_run(std::uint64_t first, std::uint64_t end) noexcept;
  void note(std::uint64_t i) noexcept;
  void note_run() noexcept;

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Coherence& c_;
  ThreadContext& ctx_;
  const Wanted wanted_;
  Stripe blocks_;
  const std::uint32_t faulting_ = kNone;   ///< of a sweep: b's place in it, which goes on from there
  std::bitset<kMostBlocks> held_;          ///< whose bits are held, with something to do
  std::bitset<kMostBlocks> served_;
  std::bitset<kMostBlocks> on_ssd_;        ///< of those held: their bytes are in this rank's spill file
  std::array<Part, kMostPages> part_;
  std::size_t parts_ = 0, joiners_ = 0;
  std::array<gas::Sharing::Joining, kMostPages> joining_;
  mem::BlockRange changed_{BlockId{0}, 0};
  std::uint64_t noted_ = 0;
};

}  // namespace kasane::dsm
