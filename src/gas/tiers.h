// SPDX-License-Identifier: Apache-2.0
// A page's way to this rank's spill file and back, by the handshake of gas/relocation.h (docs/design/tiers.md).
//
//   evict     busy ─▶ V protected ─▶ tier ssd ─▶ holders recalled, puts drained ─▶ written ─▶ punched ─▶ end_evict: not busy
//   drop      busy, another rank's ─▶ nothing of it in use ─▶ punched ─▶ not busy
//   bring in  blocks claimed ─▶ busy ─▶ read ─▶ end_page_in: not busy ─▶ settled          and with it the next pages of its sweep (gas/read_ahead.h), if they can be claimed
//
// A page of ours that nobody else asks for stays on SSD, and its blocks come and go by themselves (dsm/spilled.cpp):
//
//   in part   a block claimed ─▶ word 0 partial ─▶ read                evict     busy ─▶ V protected ─▶ written, if not saved ─▶ punched ─▶ ssd, not busy
//
// **Who does what.** One thread of the rank, the *pager*, evicts, and brings in what other ranks ask for; a thread that faults on a page of its own rank brings blocks of it in
// itself. The pager waits for handlers, for puts under way, for the disk and for bits that are held for a moment, never for another rank's threads: so ranks that wait for each
// other's pagers wait for no circle.
//
// Thread safety: page_in() and page_in() from any thread, fault handlers too; evict() and serve() by the pager. Handlers run in progress().
// Invariant: the frame of a page is punched only while its entry says busy and ssd, and every holder of its location has answered (rule 9).
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/notes.h"
#include "gas/mover.h"
#include "gas/read_ahead.h"
#include "mem/advice.h"
#include "mem/fingerprints.h"
#include "mem/residency.h"
#include "mem/space.h"
#include "mem/spill_queue.h"
#include "mem/spill_reader.h"

namespace kasane::gas {

class Tiers final : public PageIn {
 public:
  /// How the pager tells that the disk has failed: does not return.
  using Fatal = void (*)(const Error&);

  struct Config {
    std::string directories;     ///< of the spill file; empty: none
    std::uint64_t space_bytes = 0;
    Fatal fatal = nullptr;
    std::uint32_t cores = 0;     ///< that this rank has for itself: as many threads may look for what they read; 0: all sleep
    bool asks_ahead = false;     ///< of other ranks' pages: only where nobody asked for a limit. A hint that waits for room would have its owner ask for some, and hold every rank to its share
  };
  /// Sets kPageInHandler.
  Tiers(comm::Transport&, const Directory&, mem::Space&, mem::Residency&, const mem::AdviceTable&, Config);
  ~Tiers();
  /// Tiers and the holder of pages need each other; the holder, which is made later, calls this when it is constructed. Nothing is asked of either before.
  void connect(PageBlocks& blocks, Mover& mover) noexcept {
    blocks_ = &blocks;
    mover_ = &mover;
  }
  [[nodiscard]] mem::Residency& residency() const noexcept { return residency_; }

  /// Makes the spill file, if there is none yet. Allocates: at the start, or by the pager.
  Result<void> open();
  /// Whether open() may do, without making anything: the directories, if there are any, are there and can be written to.
  [[nodiscard]] Result<void> check() const;
  // acquire: pairs with open(), by another thread. A page that has bytes on SSD was written after it.
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// Lets pages go: this rank's to the spill file, others' are dropped. left[i]: page i leaves; else it is in use, pinned, changed, or on its way. While pages are being written, those of
  /// the call before are punched: they have no frames here any more when this returns, and the last ones after finish().
  static constexpr std::size_t kTogether = 64;
  void evict(comm::Blocking&, std::span<const PageId> pages, bool* left);
  void finish(comm::Blocking&);
  /// Blocks whose frames finish() will punch.
  [[nodiscard]] std::uint64_t departing() const noexcept;
  /// Of this rank's page on SSD, as a whole: it is in when this returns, or moves, or somebody else was at it: look again.
  void page_in(comm::Blocking&, PageId);
  void page_in(comm::Blocking&, std::span<Request>) override;
  [[nodiscard]] bool counts(PageId page) const noexcept override { return residency_.counts(page); }
  void forget(std::uint64_t offset, std::uint64_t bytes) noexcept override;

  // ---- blocks of this rank's pages that are on SSD; the caller holds their bits ----
  /// The page was found to be at_home_on_ssd(). True: it is in part now, and stays so while one of its bits is held.
  [[nodiscard]] bool enter(comm::Blocking&, PageId, Location found);
  /// Bytes of blocks that are stored() and not here, into M. ranges: sorted afterwards. The blocks may be read from when they come.
  void read(comm::Blocking&, std::span<mem::SpillRange> ranges, const mem::View&);
  /// Windows of blocks (kPieceBytes) that should be brought along with the one at `offset`, or after it; none where there is little room.
  static constexpr std::uint64_t kPieceBytes = 64 << 10, kMostAhead = (8 << 20) / mem::kBlockBytes;   ///< the latter in blocks
  static constexpr std::uint64_t kMostAtOnce = (1 << 20) / mem::kBlockBytes;   ///< blocks that one read brings besides a window, or a page
  [[nodiscard]] ReadAhead::Plan plan(std::uint64_t offset, ReadAhead::Purpose) noexcept;
  /// The program is about to overwrite the range: who stores to its ends asks for nothing behind them.
  void note_overwriting(std::uint64_t offset, std::uint64_t bytes) noexcept;
  /// Do windows that are asked for together go on a sweep downwards? first, last: offsets in them.
  [[nodiscard]] bool descends(std::uint64_t first, std::uint64_t last) noexcept;
  [[nodiscard]] bool asks_ahead() const noexcept { return config_.asks_ahead; }
  /// Unless the program has said that the page is used at random.
  [[nodiscard]] bool reads_ahead(PageId page) const noexcept { return advice_.usage(page) != mem::Usage::random; }
  /// The block reads as zeros from now on, if it is not here. Its space on the disk stays: its page's next bytes come there.
  void forget(BlockId b) noexcept { file_->forget(b); }
  [[nodiscard]] bool stored(BlockId b) const noexcept { return is_open() && file_->stored(b); }
  [[nodiscard]] bool stores_any() const noexcept { return is_open() && file_->stores_any(); }

  /// Reads what nobody waits for, beside the program; see mem::SpillReader. False: the caller still has the read.
  [[nodiscard]] bool submit(mem::SpillRead& read) noexcept { return is_open() && reader_->submit(read); }
  /// The reader's thread; until stop_reading(), which may be called once. Then what came too late is read.
  void run_reader();
  void stop_reading() noexcept;
  void drain_reader();

  /// Brings in pages that others ask for: the one that has waited longest, and with it further ones for which there is room.
  enum class Pinned : std::uint8_t { too, not_now };   ///< not_now: one that the program has pinned goes to the end of the queue, since it would stay
  enum class Served : std::uint8_t { none, some, put_back };
  Served serve(comm::Blocking&, Pinned);
  [[nodiscard]] bool asked() const noexcept { return asked_.any(); }

 private:
  struct Order {
    PageId page;
    std::uint64_t hint;   ///< 0 or 1; of this size, so that no byte of the message is left open
  };
  struct Asked {
    Order order;
    comm::ReplyToken token;   ///< of a hint: none
  };
  static constexpr std::uint32_t kMostAsked = 1024;

  static void on_page_in(void* self, const comm::Message&) noexcept;
  enum class Who : std::uint8_t { pager, worker };
  static constexpr std::size_t kMostPagedIn = 65;
  using Moves = std::array<Mover::Move, kMostPagedIn>;
  /// The first n moves, whose pages are claimed.
  void page_in(comm::Blocking&, Moves&, std::size_t n, Who);
  std::size_t claim_with(PageId, Moves&) noexcept;
  [[nodiscard]] bool declines(const Asked&) noexcept;
  void put_back(const Asked&) noexcept;
  std::size_t claim_asked(Moves&, std::array<Asked, kMostPagedIn>&) noexcept;
  using Missing = mem::SpillRanges<mem::kMostBlocksOfAPage / 2>;   ///< one page of any size, or one and kMostAtOnce blocks
  bool add_missing(Missing&, PageId) const noexcept;
  [[nodiscard]] ReadAhead::Plan plan(ReadAhead&, PageId, std::uint64_t piece, std::uint64_t blocks, std::uint64_t most_blocks, ReadAhead::Purpose) noexcept;
  void read(comm::Blocking&, std::span<mem::SpillRange>, Who, const mem::View& = {});
  static constexpr std::uint64_t kMostPunched = 256;   ///< blocks, at once, unless a page has more
  void punch(std::span<const Mover::Move>) noexcept;
  struct Departure;
  void depart(comm::Blocking&, std::span<const PageId> pages, bool* left, Departure&);
  void add_blocks(std::vector<mem::SpillRange>&, PageId, const BlockMask&) const;
  void note_as_stored(std::span<const Mover::Move>) noexcept;
  [[nodiscard]] BlockMask changed(PageId) const noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  const mem::Pages& pages_;
  PageBlocks* blocks_ = nullptr;   ///< connect()
  Mover* mover_ = nullptr;
  mem::Space& space_;
  mem::Residency& residency_;
  const mem::AdviceTable& advice_;
  const Config config_;

  std::atomic<bool> open_{false};
  std::unique_ptr<mem::SpillFile> file_;
  std::unique_ptr<mem::BounceBuffers> staging_;
  std::unique_ptr<mem::Fingerprints> as_stored_;      ///< of blocks of pages that came in as a whole: others put to those unseen
  /// Of those who bring in: whoever submits has a lane to himself. Submitting in place makes the frames, so it takes long: threads that wait for each other then would
  /// make nothing but turns.
  struct Lane {
    std::unique_ptr<mem::SpillQueue> queue;
    std::atomic_flag submitting;
  };
  Lane& take_lane(comm::Blocking&) noexcept;
  static constexpr std::size_t kLanes = 16;
  std::unique_ptr<mem::SpillQueue> writes_;           ///< the pager's
  std::array<Lane, kLanes> lanes_;
  std::size_t lanes_open_ = 0;
  std::atomic<std::uint32_t> next_lane_{0};
  mem::Polling polling_;                              ///< of the program's threads, whatever lane they have
  std::unique_ptr<mem::SpillReader> reader_;
  enum class Reading : std::uint32_t { not_yet, begun, ended };
  std::atomic<Reading> reading_{Reading::not_yet};
  ReadAhead pages_ahead_, blocks_ahead_;
  std::atomic_flag planning_;                         ///< whose turn it is in these; who finds it taken brings in nothing else
  std::unique_ptr<Departure[]> departures_;           ///< two, the pager's: it fills one while the other is being written
  std::size_t turn_ = 0;                              ///< the one that is free
  std::uint64_t spilled_ = 0;                         ///< bytes, that were counted
  std::atomic<const mem::SpillBatch*> broken_{nullptr};   ///< a read that failed: the pager tells
  Notes<Asked, kMostAsked> asked_;
};

}  // namespace kasane::gas
