// SPDX-License-Identifier: Apache-2.0
// Evicts pages to this rank's spill file and pages them in, by the handshake of gas/relocation.h
// (docs/design/tiers.md).
//
//   evict     busy ─▶ V protected ─▶ tier ssd ─▶ holders recalled, puts drained ─▶ written ─▶ punched
//             ─▶ end_evict: not busy
//   drop      busy, another rank's ─▶ nothing of it in use ─▶ punched ─▶ not busy
//   page in   blocks claimed ─▶ busy ─▶ read ─▶ end_page_in: not busy ─▶ settled
//             of a put that has handed over all bytes of the page: these, and nothing is read
//             with it the next pages of its sweep (gas/read_ahead.h), if they can be claimed
//
// A page of this rank that no other rank asks for stays on SSD, and its blocks are read and evicted singly
// (dsm/spilled.cpp):
//
//   in part   a block claimed ─▶ word 0 partial ─▶ read
//   evict     busy ─▶ V protected ─▶ written, if not saved ─▶ punched ─▶ ssd, not busy
//
// **Threads.** One thread of the rank, the *pager*, evicts, and pages in what other ranks ask for. A thread
// that faults on a page of its own rank reads blocks of it itself. The pager waits for handlers, for puts
// under way, for the disk and for bits that are held for a moment, never for another rank's threads; so ranks
// that wait for each other's pagers do not deadlock.
//
// Thread safety: page_in() from any thread, fault handlers too; evict() and serve() by the pager. Handlers
// run in progress().
// Invariant: the frame of a page is punched only while its entry says busy and ssd, and every holder of its
// location has answered (rule 9).
#pragma once

#include <algorithm>
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
  /// Called by the pager when the disk has failed; does not return.
  using Fatal = void (*)(const Error&);

  struct Config {
    std::string directories;  ///< of the spill file; empty: none
    std::uint64_t space_bytes = 0;
    Fatal fatal = nullptr;
    /// cores that this rank has for itself: as many threads may poll for their reads; 0: all sleep
    std::uint32_t cores = 0;
  };
  /// Sets kPageInHandler.
  Tiers(comm::Transport&, const Directory&, mem::Space&, mem::Residency&, const mem::AdviceTable&, Config);
  ~Tiers();
  /// Tiers and the layer that knows the blocks of pages need each other. That layer is constructed later, and
  /// its constructor calls this. Nothing is asked of either before.
  void connect(PageBlocks& blocks, AddressCache& addresses) noexcept {
    blocks_ = &blocks;
    addresses_ = &addresses;
  }
  [[nodiscard]] mem::Residency& residency() const noexcept { return residency_; }

  /// Makes the spill file, if there is none yet. Allocates: called at the start, or by the pager.
  Result<void> open();
  /// Can open() succeed? Makes nothing: checks that the directories, if there are any, exist and can be
  /// written to.
  [[nodiscard]] Result<void> check() const;
  // acquire: pairs with open(), by another thread. A page that has bytes on SSD was written after it.
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// Evicts pages: this rank's to the spill file, others' are dropped. left[i]: page i is evicted; else it is
  /// in use, pinned, changed, or moving. While these pages are written, those of the call before are punched.
  /// So pages have no frames any more when the next evict() returns, or finish().
  static constexpr std::size_t kTogether = 64;
  void evict(comm::Blocking&, std::span<const PageId> pages, bool* left);
  void finish(comm::Blocking&);
  /// Blocks whose frames finish() will punch.
  [[nodiscard]] std::uint64_t blocks_leaving() const noexcept;
  void page_in(comm::Blocking&, std::span<Request>) override;
  /// May there be pages on SSD? A guess: only if this rank has some, or half of the budget is in use.
  [[nodiscard]] bool may_be_absent() noexcept {
    return stores_any() || !residency_.admitted(residency_.share() / 2);
  }
  /// Of an owner's share of the budget, which is about as large as this rank's.
  [[nodiscard]] std::uint64_t most_bytes_together() const noexcept {
    return residency_.total() * mem::kBlockBytes / (std::uint64_t{8} * transport_.ranks());
  }
  [[nodiscard]] std::size_t most_together() noexcept override {
    return may_be_absent() ? std::max<std::size_t>(most_bytes_together() / mem::kPageBytes, 1) : 0;
  }
  void send_for(PageId, Rank owner) noexcept override;
  void hand_over(comm::Blocking&, std::span<HandOver>) override;
  [[nodiscard]] bool counts(PageId page) const noexcept override { return residency_.counts(page); }
  void forget(std::uint64_t offset, std::uint64_t bytes) noexcept override;

  // ---- blocks of this rank's pages that are on SSD; the caller holds their bits ----
  /// The page was found to be owned_on_ssd(). True: it is partial now, and stays so while one of its bits
  /// is held.
  [[nodiscard]] bool make_partial(comm::Blocking&, PageId, Location found);
  /// Reads the bytes of blocks that are stored() and not in DRAM into M. ranges: sorted afterwards. The
  /// blocks may become visible as soon as their bytes arrive.
  void read(comm::Blocking&, std::span<mem::SpillRange> ranges, const mem::View&);
  /// Windows of blocks (kPieceBytes) that should be read together with the one at `offset`, or after it; none
  /// if there is little room.
  /// the latter in blocks
  static constexpr std::uint64_t kPieceBytes = 64 << 10, kMostAhead = (8 << 20) / mem::kBlockBytes;
  /// blocks that one read brings in addition to a window, or a page
  static constexpr std::uint64_t kMostAtOnce = (1 << 20) / mem::kBlockBytes;
  [[nodiscard]] ReadAhead::Plan plan(std::uint64_t offset, ReadAhead::Purpose) noexcept;
  /// The program is about to overwrite the range: stores to its ends cause no read-ahead behind them.
  void note_overwriting(std::uint64_t offset, std::uint64_t bytes) noexcept;
  /// Do windows that are asked for together continue a descending sweep? first, last: offsets in them.
  [[nodiscard]] bool descends(std::uint64_t first, std::uint64_t last) noexcept;
  /// Unless the program has advised that the page is used at random.
  [[nodiscard]] bool reads_ahead(PageId page) const noexcept {
    return advice_.usage(page) != mem::Usage::random;
  }
  /// The block reads as zeros from now on, if it is not in DRAM. Its space on the disk stays for the next
  /// bytes of the page.
  void forget(BlockId b) noexcept { file_->forget(b); }
  [[nodiscard]] bool stored(BlockId b) const noexcept { return is_open() && file_->stored(b); }
  [[nodiscard]] bool stores_any() const noexcept { return is_open() && file_->stores_any(); }

  /// Starts a read that no thread waits for; see mem::SpillReader. False: the caller still owns the read.
  [[nodiscard]] bool submit(mem::SpillRead& read) noexcept { return is_open() && reader_->submit(read); }
  /// Runs the reader's thread until stop_reading(), which may be called once. drain_reader() does the reads
  /// that came too late.
  void run_reader();
  void stop_reading() noexcept;
  void drain_reader();

  /// Pages in what other ranks ask for: the page that has waited longest, and with it further ones for which
  /// there is room.
  /// not_now: a page that the program has pinned goes to the end of the queue, since it would stay, and hints
  /// are dropped. none: nothing was asked for but hints that were dropped
  enum class Pinned : std::uint8_t { too, not_now };
  enum class Served : std::uint8_t { none, some, put_back };
  Served serve(comm::Blocking&, Pinned);
  [[nodiscard]] bool asked() const noexcept { return asked_.any(); }

 private:
  /// Where the bytes of a page come from; none: from SSD.
  struct Source {
    const std::byte* here = nullptr;
    Rank rank = kNoRank;
    std::uint64_t at = 0;  ///< in region kPending of `rank`
    [[nodiscard]] bool any() const noexcept { return here != nullptr || rank != kNoRank; }
  };
  struct QueuedRequest {
    PageId page;
    comm::ReplyToken token;
    Source source;
    bool hint = false;  ///< is not answered
  };
  /// What a put hands over, as a message.
  struct Handed {
    PageId page;
    std::uint64_t at;
  };
  static constexpr std::uint32_t kMostAsked = 1024;

  static void on_page_in(void* self, const comm::Message&) noexcept;
  static void on_send_for(void* self, const comm::Message&) noexcept;
  static void on_hand_over(void* self, const comm::Message&) noexcept;
  void note_asked(const QueuedRequest&) noexcept;
  enum class Caller : std::uint8_t { pager, worker };
  static constexpr std::size_t kMostPagedIn = 65;
  struct Arriving;
  struct Incoming;
  void page_in(comm::Blocking&, Incoming&, Caller);
  void take_handed(comm::Blocking&, std::span<const Arriving>);
  std::size_t page_in_own(comm::Blocking&, std::span<Request* const>);
  bool hand_over_here(comm::Blocking&, const HandOver&);
  void claim_with(Incoming&) noexcept;
  void put_back(const QueuedRequest&) noexcept;
  [[nodiscard]] bool claim_hinted(comm::Blocking&, PageId) noexcept;
  void claim_asked(comm::Blocking&, Incoming&, std::array<QueuedRequest, kMostPagedIn>&) noexcept;
  [[nodiscard]] bool fits_together(PageId, std::uint64_t blocks) const noexcept;
  [[nodiscard]] BlockMask missing(PageId, const BlockMask& held) const noexcept;
  [[nodiscard]] bool try_claim(PageId page) noexcept {
    return blocks_->claim(page, ClaimFor::page_in, nullptr) == Claim::taken;
  }
  [[nodiscard]] ReadAhead::Plan plan(ReadAhead&, PageId, std::uint64_t piece, std::uint64_t blocks,
                                     std::uint64_t most_blocks, ReadAhead::Purpose) noexcept;
  void read(comm::Blocking&, std::span<mem::SpillRange>, Caller, const mem::View& = {});
  static constexpr std::uint64_t kMostPunched = 256;  ///< blocks, at once, unless a page has more
  void punch(std::span<const PageLock>) noexcept;
  struct EvictionBatch;
  void start_eviction(comm::Blocking&, std::span<const PageId> pages, bool* left, EvictionBatch&);
  template <class Ranges>
  void add_blocks(Ranges&, PageId, const BlockMask&) const;
  void note_as_stored(std::span<const Arriving>) noexcept;
  [[nodiscard]] BlockMask changed(PageId) const noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  const mem::Pages& pages_;
  PageBlocks* blocks_ = nullptr;  ///< connect()
  AddressCache* addresses_ = nullptr;
  mem::Space& space_;
  mem::Residency& residency_;
  const mem::AdviceTable& advice_;
  const Config config_;

  std::atomic<bool> open_{false};
  std::unique_ptr<mem::SpillFile> file_;
  std::unique_ptr<mem::BounceBuffers> staging_;
  /// of blocks of pages that were paged in as a whole: other ranks put to those unnoticed
  std::unique_ptr<mem::Fingerprints> as_stored_;
  /// For reads: a thread that submits has a lane to itself. Submitting makes frames, so it takes long, and
  /// threads on one lane would wait for each other.
  struct Lane {
    std::unique_ptr<mem::SpillQueue> queue;
    std::atomic_flag submitting;
  };
  Lane& take_lane(comm::Blocking&) noexcept;
  static constexpr std::size_t kLanes = 16;
  std::unique_ptr<mem::SpillQueue> writes_;  ///< the pager's
  std::array<Lane, kLanes> lanes_;
  std::size_t lanes_open_ = 0;
  std::atomic<std::uint32_t> next_lane_{0};
  mem::Polling polling_;  ///< of the program's threads, on all lanes
  std::unique_ptr<mem::SpillReader> reader_;
  enum class Reading : std::uint32_t { not_yet, begun, ended };
  std::atomic<Reading> reading_{Reading::not_yet};
  ReadAhead pages_ahead_, blocks_ahead_;
  std::atomic_flag planning_;  ///< lock of the plans; a thread that finds it taken reads nothing ahead
  /// two, the pager's: it fills one while the other is being written
  std::unique_ptr<EvictionBatch[]> eviction_batches_;
  std::size_t turn_ = 0;                                 ///< index of the free one
  std::uint64_t spilled_ = 0;                            ///< bytes, that were counted
  std::atomic<const mem::SpillBatch*> broken_{nullptr};  ///< a read that failed: the pager reports it
  Notes<QueuedRequest, kMostAsked> asked_;
};

}  // namespace kasane::gas
