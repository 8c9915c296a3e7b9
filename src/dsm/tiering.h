// SPDX-License-Identifier: Apache-2.0
// What coherence does for memory larger than DRAM (docs/design/tiers.md): waits for room before a thread
// holds anything, evicts pages for the pager, and reads blocks of this rank's pages from its spill file.
// Where memory has no limit there is room for all, and nothing else is called.
// Thread safety: every call from any thread, where nothing else is said; fault handlers too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/index_pool.h"
#include "dsm/blocks.h"
#include "dsm/fences.h"
#include "dsm/frames.h"
#include "dsm/held.h"
#include "dsm/parts.h"
#include "mem/spill_reader.h"

namespace kasane::dsm {

class Tiering {
 public:
  Tiering(Blocks&, const Frames&, Fences&);
  ~Tiering();

  // ---- room: the caller holds nothing ----
  /// Waits until there is room for the page.
  void admit(comm::Blocking&, PageId);
  /// For a fault: room for the blocks of its page that may be taken with it, at most so many. False: not yet,
  /// and the faults that wait behind this one come first: room may be what a view holds, and the view's
  /// thread may wait for one of these faults.
  bool admit(ThreadContext&, PageId, std::uint64_t blocks);
  bool admit(comm::Blocking&, std::uint64_t blocks, Serves);
  /// For callers that must not wait for ever: returns when there is room for so many blocks, or when nothing
  /// could be evicted for a while.
  void admit_for_now(comm::Blocking&, std::uint64_t blocks);

  // ---- evictions: called by the rank's pager (eviction.cpp) ----
  /// Drops V's translations of the pages' blocks that this rank owns and that are free; the bytes stay.
  /// pages: sorted.
  void retire(std::span<const PageId> pages) noexcept;
  /// Was the page accessed since retire()?
  [[nodiscard]] bool touched(PageId) const noexcept;
  /// As gas::PageBlocks says.
  bool try_evict(PageId, bool punch, gas::BlockMask* unsaved) noexcept;
  /// Gives back the page tables of this rank's mappings of other ranks' frames: all their translations are
  /// dropped.
  void give_back_tables_of_others() noexcept;

  // ---- this rank's pages that are on SSD (spilled.cpp) ----
  enum class Brought : std::uint8_t {
    yes,
    no,    ///< the access runs again
    later  ///< they are being read: their bits will be free when they are here
  };
  /// `held` are invalid blocks of a page, b's among them, that this rank was found to have on SSD or partial.
  /// Nothing is held when this returns. may_leave: the calling thread can wait elsewhere.
  Brought bring(ThreadContext&, BlockId b, Held& held, BlockEvent, gas::Location found, bool may_leave);
  /// Reads ahead in b's sweep. Waits for no bit, so the caller may hold some. event: what b is wanted for.
  void read_ahead(ThreadContext&, BlockId b, BlockEvent);
  /// Starts reads of what of the range is in this rank's spill file. Returns how much of it is not here: in
  /// parts that a page and a window have in common. Waits for room, and for no disk.
  std::size_t send_for(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);
  void send_for(ThreadContext&, std::uint64_t begin, std::uint64_t end, BlockEvent);
  /// Is a block of these being read from the spill file?
  [[nodiscard]] bool is_coming(mem::BlockRange) const noexcept;
  /// The contents of the range become undefined: of blocks whose pages may leave DRAM here.
  void blank(comm::Blocking&, std::uint64_t offset, std::size_t bytes);
  /// All of the range will be stored to, and none of it read before. Only if stores_any().
  void note_overwriting(std::uint64_t offset, std::size_t bytes) { tiers_->note_overwriting(offset, bytes); }
  /// May blocks be in the spill file?
  [[nodiscard]] bool stores_any() const noexcept { return tiers_ != nullptr && tiers_->stores_any(); }
  /// Calls f for the whole blocks of the range that a page and a window have in common.
  template <class F>
  void for_each_part(std::uint64_t begin, std::uint64_t end, const F& f) const {
    const std::uint64_t stop = raw(mem::block_of(end + mem::kBlockBytes - 1));
    for (std::uint64_t b = raw(mem::block_of(begin)); b < stop;) {
      const BlockId first{b};
      b = std::min(
          {stop, raw(window_of(first)) + kWindowBlocks, end_of(pages_.blocks_of(pages_.page_of(first)))});
      f(mem::BlockRange{first, b - raw(first)});
    }
  }

 private:
  static constexpr std::uint32_t kPiecesPerRead = 4, kBackgroundReads = 64;
  static constexpr std::uint64_t kBlocksPerRead = kPiecesPerRead * gas::Tiers::kPieceBytes / mem::kBlockBytes;
  struct BackgroundRead;

  [[nodiscard]] bool retires_with(mem::BlockRange, PageId next_page) const noexcept;
  void hide(mem::BlockRange) noexcept;
  void arm_small_pages(comm::Blocking&, BlockId) noexcept;
  void make_background_reads();
  bool read_for_leaver(ThreadContext&, Held&, BlockEvent);
  void start_read(ThreadContext&, BackgroundRead&);
  void claim_ahead(comm::Blocking&, BlockId, const gas::ReadAhead::Plan&, BackgroundRead&);
  void claim_part(comm::Blocking&, mem::BlockRange part, BackgroundRead&);
  void complete_read(const BackgroundRead&) noexcept;
  void blank(comm::Blocking&, mem::BlockRange);
  [[nodiscard]] bool is_blank(PageId) const noexcept;

  Blocks& blocks_;
  const Frames& frames_;
  Fences& fences_;
  const Parts& p_ = blocks_.parts();
  gas::Tiers* const tiers_ = p_.tiers;  ///< null: memory has no limit
  const gas::Directory& directory_ = p_.directory();
  const mem::Pages& pages_ = p_.pages();
  /// reads of blocks from the spill file that no thread waits for
  std::unique_ptr<BackgroundRead[]> background_reads_;
  comm::IndexPool<> free_background_reads_{kBackgroundReads};
  std::atomic<std::uint32_t> reads_under_way_{0};  ///< of them
};

/// Reads runs of blocks that the caller holds back from this rank's spill file.
class ReadBack {
 public:
  explicit ReadBack(const Parts& parts) noexcept : p_(parts) {}

  /// A block that was never stored has no frame, or its bytes are undefined. If it is to be `saved`, its
  /// frame is cleared, so that spill file and frame are alike.
  void add(BlockId, bool saved) noexcept;
  /// right: the access that the blocks may get as soon as their bytes arrive. It is write if none of them is
  /// to be saved: then a store may succeed before the busy bit is cleared.
  void read(comm::Blocking& io, Access right) {
    if (!ranges_.empty()) p_.tiers->read(io, ranges_.all(), {.engine = &p_.engine, .access = right});
  }

 private:
  /// As many runs as blocks of a window, or of what a view gathers at once.
  static constexpr std::size_t kMost = gas::Tiers::kMostAtOnce + kWindowBlocks;
  const Parts& p_;
  mem::SpillRanges<kMost> ranges_;
};

}  // namespace kasane::dsm
