// SPDX-License-Identifier: Apache-2.0
// Keeps what this rank sees in V coherent with the other ranks: serves faults, sends changes at a release,
// and drops cached blocks at an acquire (BACKER's reconcile and flush; Endo's thesis §6.2). Drives
// dsm/protocol.h over the block table. Design: docs/design/dsm.md.
//
// Thread safety: every call from any thread of the rank, each with a ThreadContext of its own; also inside a
// fault handler. No call allocates, logs, or holds anything but busy bits while it waits.
// Consistency: release_all makes all earlier stores of all threads of this rank visible to every rank that
// acquires later. acquire_noticed makes visible what was released by the ranks whose notices have arrived
// here; acquire_all makes all that was released visible.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/counters.h"
#include "base/notes.h"
#include "base/time_spent.h"
#include "comm/index_pool.h"
#include "dsm/protocol.h"
#include "dsm/race_check.h"
#include "dsm/rewritten.h"
#include "dsm/rounds.h"
#include "dsm/sweeps.h"
#include "dsm/windows.h"
#include "gas/address_cache.h"
#include "gas/auto_relocator.h"
#include "gas/heap_hooks.h"
#include "gas/mover.h"
#include "gas/sharing.h"
#include "gas/tiers.h"
#include "mem/block_table.h"
#include "mem/fault_engine.h"
#include "mem/residency.h"
#include "mem/space.h"

namespace kasane::dsm {

class Outbox;

/// Which faults a thread serves: its own, or one after another those of other threads
/// (mem::Served::for_another). In the second case it never waits for what one of those threads may hold, that
/// is for room.
enum class Serves : bool { itself, others };

/// What an OS thread (or a scripted thread) passes to every call.
struct ThreadContext {
  ThreadContext(comm::Transport& transport, comm::Waiter& waiter, Counters& c,
                Serves s = Serves::itself) noexcept
      : io(transport, waiter, &c), counters(c), serves(s) {}

  comm::Blocking io;
  Counters& counters;
  const Serves serves;
  Sweeps sweeps;
  /// A fault that finds nothing to do has lost a race to another thread. If the same fault repeats
  /// kMaxIdleFaults times, it cannot be served.
  std::uint64_t idle_fault = ~std::uint64_t{0};
  std::uint32_t idle_faults = 0;
};

class Coherence final : public gas::PageBlocks, public gas::HeapHooks {
 public:
  struct Parts {
    mem::Space& space;
    mem::BlockTable& table;
    mem::BlockSet& cached;
    mem::BlockSet& dirty;
    mem::FaultEngine& engine;
    comm::Transport& transport;
    gas::AddressCache& addresses;
    gas::Sharing& sharing;
    /// counts uses of other ranks' pages; null: pages do not move by themselves
    gas::AutoRelocator* auto_relocator = nullptr;
    gas::Tiers* tiers = nullptr;           ///< null: memory has no limit
    RaceListener* races = nullptr;         ///< is called for data races; null: they are not looked for
    std::uint8_t releases_until_open = 5;  ///< Rewritten
  };
  /// Sets kReleaseHandler and kChangesHandler, and connects the tiers to this object and its mover.
  explicit Coherence(const Parts&);

  /// Moves pages to this rank and away. The mover and this object need each other, so this object contains
  /// it.
  [[nodiscard]] gas::Mover& mover() noexcept { return mover_; }

  /// Makes the access possible. False: the address is not allocated, or the fault has another cause.
  bool fault(ThreadContext&, std::uint64_t offset, mem::Access);

  // Account: whose time the fences below are.
  void release_all(ThreadContext&, Account = Account::fence_others);
  /// The same, if no more than so many blocks have changed: a number since which this rank has released.
  /// 0: nothing was done.
  std::uint32_t release_little(ThreadContext&, std::uint32_t blocks, Account);
  /// The number of the last release that has begun. A thread that reads it after its stores and a full fence
  /// knows that they are released when a release with a higher number has ended.
  [[nodiscard]] const std::atomic<std::uint64_t>& releases_begun() const noexcept {
    return release_rounds_.began();
  }
  /// Drops the blocks for which notices have arrived: all that was released before by the ranks that this
  /// thread's edges come from.
  void acquire_noticed(ThreadContext&, Account = Account::fence_others);
  /// Drops all that is cached. Afterwards also direct puts of other ranks are visible that were not released
  /// yet.
  void acquire_all(ThreadContext&, Account = Account::fence_others);
  /// Asks rank `source` to release and waits for it. Returns at once if that rank has no changes, or has
  /// released since the number `since` was read there (its lower bits; 0: none was). Returns how many
  /// releases have ended there since; 0: it was asked for one.
  std::uint32_t ask_release(ThreadContext&, Rank source, Account = Account::fence_others,
                            std::uint32_t since = 0);
  /// Called by the service thread: releases for the ranks that have asked. True if there was something to do.
  bool serve(ThreadContext&);
  /// Called by a worker between two threads' steps: runs handlers of messages that have arrived, and releases
  /// for the ranks that have asked, so that the service thread need not be woken.
  void answer(ThreadContext&);
  /// Has another rank asked for a release? Cheap; the service thread calls it before it sleeps.
  [[nodiscard]] bool asked() const noexcept { return asked_.any(); }

  /// Makes the range present (and writable), and keeps it so until unpin(). Returns the first block that is
  /// not allocated, if there is one; then nothing is pinned.
  [[nodiscard]] std::optional<BlockId> pin(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);
  void unpin(ThreadContext&, std::uint64_t offset, std::size_t bytes);

  // ---- atomics of the program, executed at the owner (bytes within one block; words.cpp) ----
  /// Called before: what this rank has stored to these bytes has arrived at their owner afterwards.
  void send_bytes(ThreadContext&, std::uint64_t offset, std::size_t bytes);
  /// Called after the owner's bytes were changed for this rank: its copy of them is as new.
  void renew_bytes(ThreadContext&, std::uint64_t offset, std::size_t bytes);
  /// From now on threads of this rank may change owned blocks by restartable sequences (traps/restartable.h)
  /// that look at the block's word first: a page that leaves restarts them.
  void allow_restartable() noexcept { restartable_.store(true); }

  /// A hint. Makes the range present, like a view that ends at once. Blocks on SSD are only requested, and
  /// write_only blocks that lie in the range only in part are skipped.
  void prefetch(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);
  /// Starts reads of what of the range is in this rank's spill file. Returns how much of it is not here: in
  /// parts that a page and a window have in common. Waits for room, and for no disk.
  std::size_t send_for(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);

  /// The contents of the range become undefined: of blocks whose pages may leave DRAM here.
  void blank(comm::Blocking&, std::uint64_t offset, std::size_t bytes);

  // ---- memory larger than DRAM (eviction.cpp): called by the rank's pager ----
  /// Drops V's translations of the pages' blocks that this rank owns and that are free; the bytes stay.
  /// pages: sorted.
  void retire(std::span<const PageId> pages) noexcept;
  /// Was the page accessed since retire()?
  [[nodiscard]] bool touched(PageId) const noexcept;
  /// Returns whole kernel page tables of a range to the kernel, if all of its blocks are invalid
  /// (page_tables.cpp). False: one is not.
  bool give_tables_back(mem::BlockRange) noexcept;
  /// The same for this rank's mappings of other ranks' frames: all their translations are dropped.
  void give_back_tables_of_others() noexcept;
  /// For callers that must not wait for ever: returns when there is room for so many blocks, or when nothing
  /// could be evicted for a while. The caller holds nothing.
  void admit_for_now(comm::Blocking&, std::uint64_t blocks);
  /// Sends changes to their owners without a release, so that their blocks can be dropped.
  void clean(comm::Blocking&);
  /// Called after busy bits or room became free without a message: waiting threads look again at once.
  void wake_waiting() noexcept {
    // A read-modify-write: what became free is visible before waiting_ is read. So a thread that counts
    // itself later sees it, or this thread sees the count.
    if (waiting_.fetch_add(0) != 0) transport_.wake(transport_.rank(), comm::Doorbell::messages);
  }

  // gas::HeapHooks
  void arm_owned(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void take(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void discard(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  [[nodiscard]] bool arms_without_frames() const noexcept override { return residency_ == nullptr; }
  [[nodiscard]] bool fits(std::uint64_t bytes) noexcept override;

  // gas::PageBlocks
  void admit(comm::Blocking&, PageId) override;
  gas::YieldAnswer yield(PageId) noexcept override;
  bool try_evict(PageId, bool punch, gas::BlockMask* unsaved) noexcept override;
  void claim_for_page_in(comm::Blocking&, PageId) override;
  bool try_claim_for_page_in(PageId) noexcept override;
  [[nodiscard]] bool holds(BlockId b) const noexcept override { return state(b).owned || state(b).dirty(); }
  [[nodiscard]] bool as_stored(BlockId b) const noexcept override { return state(b).saved || !holds(b); }
  gas::Claim claim(comm::Blocking&, PageId) override;
  gas::Claim try_claim(PageId) noexcept override;
  void unclaim(PageId) noexcept override;
  std::span<std::byte> arrival_frame(PageId, gas::ByteRange live) noexcept override;
  void begin_merge(comm::Batch&, PageId, gas::ByteRange live, Rank from) override;
  void end_merge(comm::Blocking&, PageId, gas::ByteRange live, Rank from) override;
  void settle(PageId page) override { settle_touched(page, {pages_.blocks_of(page).first, 0}); }
  void settle_unused(PageId) override;
  void settle_touched(PageId, mem::BlockRange used) override;
  void begin_entry_update() noexcept override;
  void end_entry_update(PageId) noexcept override;
  void replaced(PageId) noexcept override;

  /// Number of acquires so far.
  [[nodiscard]] std::uint64_t acquires() const noexcept { return acquires_.load(); }
  /// The state of a block, for tests and checks of invariants.
  [[nodiscard]] BlockState state(BlockId) const noexcept;
  ~Coherence() override;

 private:
  [[nodiscard]] bool try_claim(BlockId, BlockState before, const BlockStep&) noexcept;
  [[nodiscard]] Verdict try_claim(mem::BlockRange, BlockEvent) noexcept;
  /// Claims a block for the event; waits while another thread holds it. The step's verdict is done, refuse,
  /// or proceed (then the block is claimed).
  BlockStep claim_block(comm::Blocking&, BlockId, BlockEvent);
  void finish(BlockId, BlockState after) noexcept;
  void wait_free(comm::Blocking&, BlockId);
  /// Like Waiter::until(), and wake_waiting() knows of it.
  template <class Ready>
  void await(comm::Blocking& io, const Ready& ready) {
    waiting_.fetch_add(1);  // seq_cst: before the condition is read
    io.waiter().until(ready);
    waiting_.fetch_sub(1);
  }

  void protect(mem::BlockRange, mem::Access) noexcept;
  void protect(const Stripe&, mem::Access) noexcept;
  void make_room() noexcept;

  void await_page(comm::Blocking&, PageId);
  static bool cannot_be_served(ThreadContext&, std::uint64_t offset) noexcept;
  enum class Fault { served, again, not_allocated };
  Fault carry_out_fault(ThreadContext&, BlockId, BlockEvent, const BlockStep&);
  void carry_out_actions(BlockId, const Stripe&, const BlockStep&);
  /// The blocks of its sweep that a fault has claimed, its own block first or last. `here`: how many of them
  /// lie in its page.
  struct Claimed {
    Stripe blocks;
    std::uint32_t here;
  };
  Claimed claim_sweep(ThreadContext&, BlockId, BlockEvent, const BlockStep&);
  [[nodiscard]] FramesAround frames_around(BlockId) const noexcept;
  [[nodiscard]] std::uint32_t changed_below(BlockId, mem::BlockRange within) const noexcept;
  [[nodiscard]] bool leads_to(PageId other, PageId page) const noexcept;
  bool gather_sweep(ThreadContext&, BlockId, BlockEvent, const Claimed&);
  void arm_own_page(BlockId, const Stripe& held, std::uint32_t pins) noexcept;
  using BlocksOfAPage = std::bitset<mem::kMostBlocksOfAPage>;
  [[nodiscard]] BlocksOfAPage opened(mem::BlockRange page, const Stripe& used) const noexcept;
  Fetched locate(comm::Blocking&, PageId, gas::AddressCache::Found&);
  Fetched fetch(ThreadContext&, BlockId, const Stripe&, bool bytes_too, gas::AddressCache::Found&);
  class ReadBack;
  struct BackgroundRead;
  void make_background_reads();
  void read_ahead(ThreadContext&, BlockId, BlockEvent);
  void start_read(ThreadContext&, BackgroundRead&);
  void claim_ahead(comm::Blocking&, BlockId, const gas::ReadAhead::Plan&, BackgroundRead&);
  void claim_part(comm::Blocking&, mem::BlockRange part, BackgroundRead&);
  void complete_read(const BackgroundRead&) noexcept;
  Fault bring_blocks(ThreadContext&, BlockId, const Stripe&, BlockEvent, gas::Location found);
  void arm_small_pages(comm::Blocking&, BlockId) noexcept;
  /// The address where the owner's bytes are mapped here, or null.
  [[nodiscard]] const std::byte* frame_of(Rank owner, std::uint64_t offset) const noexcept {
    const std::byte* frames = transport_.mapped(owner, gas::kFrames);
    return frames == nullptr ? nullptr : frames + offset;
  }

  struct Wanted;
  class Gathering;
  bool pin_block(ThreadContext&, BlockId, BlockEvent);
  [[nodiscard]] std::uint64_t shown_until(std::uint64_t first, std::uint64_t end, Use) const noexcept;
  [[nodiscard]] std::uint64_t pin_shown(std::uint64_t first, std::uint64_t end, Use) noexcept;
  bool count_pin(BlockId, BlockState before, int by) noexcept;
  void send_for(ThreadContext&, std::uint64_t begin, std::uint64_t end, BlockEvent);
  [[nodiscard]] bool is_coming(mem::BlockRange) const noexcept;
  template <class F>
  void for_each_part(std::uint64_t begin, std::uint64_t end, const F&) const;

  void flush_dirty(ThreadContext&);
  class FenceBatch;
  void drop_cached(ThreadContext&);
  void drop_noticed(ThreadContext&);
  [[nodiscard]] bool has_copies_beside(PageId, gas::PartMask) const noexcept;
  /// Calls f(block, its part) for the cached blocks in these parts of the page.
  template <class F>
  void for_each_cached(PageId page, gas::PartMask parts, const F& f) const {
    const mem::BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = cached_.next(raw(all.first)); b < end_of(all); b = cached_.next(b + 1)) {
      if (const gas::PartMask part = gas::part_of(all, BlockId{b}); (parts & part) != 0) f(BlockId{b}, part);
    }
  }
  void hide(mem::BlockRange) noexcept;
  [[nodiscard]] bool retires_with(mem::BlockRange, PageId next_page) const noexcept;
  gas::Sharing::Inspection inspect(PageId, bool watch) noexcept;
  void fence_block(comm::Blocking&, Counters*, BlockId, BlockEvent);
  void carry_out_fence(comm::Blocking&, Counters*, BlockId, const BlockStep&);
  template <BlockEvent>
  bool concerns(BlockId) const noexcept;
  bool begin_put(comm::Blocking&, PageId, std::optional<gas::AddressCache::Put>&);
  BlockState become_owned(BlockId) noexcept;
  bool put_page(comm::Blocking&, Counters*, PageId, std::span<const BlockId>, std::span<bool> open);
  gas::PartMask put_blocks(Outbox&, Counters*, Rank owner, PageId, std::span<const BlockId>,
                           std::span<bool> open);
  void sent_changes(PageId, gas::PartMask) noexcept;
  void close(std::span<const BlockId>, std::span<bool> open) noexcept;
  std::size_t put_changed(Outbox&, Counters*, Rank owner, std::uint64_t offset, const std::byte* bytes,
                          std::byte* base, bool open = false);
  bool put_live(comm::Blocking&, Counters*, BlockId, const BlockStep&);
  static void on_changes(void* self, const comm::Message&) noexcept;
  template <class F>
  bool read_as_reader(comm::Blocking&, PageId, const F& read);
  void stay_reader(comm::Blocking&, PageId);
  void refresh(comm::Blocking&, BlockId, bool twin);
  bool refresh(comm::Blocking&, std::uint64_t offset, std::size_t bytes, bool twin);
  template <class F>
  void for_each_arriving(PageId, gas::ByteRange live, const F& part) const;
  void unclaim(BlockId first, std::uint64_t count) noexcept;
  void mark_dirty(BlockId) noexcept;
  void mark_clean(BlockId) noexcept;

  void arm_claimed(std::uint64_t first, std::uint64_t last) noexcept;

  void blank(comm::Blocking&, mem::BlockRange);
  [[nodiscard]] bool is_blank(PageId) const noexcept;
  bool make_present(ThreadContext&, mem::BlockRange used, Fetched, Rank owner);
  bool admit(comm::Blocking&, std::uint64_t blocks, Serves);
  bool admit(ThreadContext&, PageId, std::uint64_t blocks);
  void fill(mem::BlockRange) noexcept;
  void fill(const Stripe&) noexcept;
  void fill_staged(mem::BlockRange) noexcept;
  void fill_staged(const Stripe&) noexcept;
  void fill_staged(BlockId window, Mask) noexcept;
  void fill_otherwise(mem::BlockRange) noexcept;
  void fill_otherwise(const Stripe&) noexcept;
  void fill_twin(BlockId) noexcept;

  static void on_release(void* self, const comm::Message&) noexcept;

  mem::Space& space_;
  mem::BlockTable& table_;
  /// blocks of other ranks that may be visible; only the holder of the busy bit changes it
  mem::BlockSet& cached_;
  mem::BlockSet& dirty_;  ///< blocks with changes that were not sent
  mem::FaultEngine& engine_;
  comm::Transport& transport_;
  gas::AddressCache& addresses_;
  const gas::Directory& directory_;
  gas::Mover mover_;
  const mem::Pages& pages_;
  gas::AutoRelocator* const auto_relocator_;
  gas::Sharing& sharing_;
  RaceListener* const races_;
  gas::Tiers* const tiers_;
  mem::Residency* const residency_;  ///< of the tiers; null: memory has no limit
  static constexpr std::uint32_t kPiecesPerRead = 4, kBackgroundReads = 64;
  static constexpr std::uint64_t kBlocksPerRead = kPiecesPerRead * gas::Tiers::kPieceBytes / mem::kBlockBytes;
  /// reads of blocks from the spill file that no thread waits for
  std::unique_ptr<BackgroundRead[]> background_reads_;
  comm::IndexPool<> free_background_reads_{kBackgroundReads};
  std::atomic<std::uint32_t> reads_under_way_{0};  ///< of them

  std::atomic<std::uint32_t> waiting_{0};  ///< threads of this rank in await()
  std::atomic<std::uint64_t> acquires_{0};
  /// acquires that dropped something; rule 2: a fetch that finds another number at its end is repeated
  std::atomic<std::uint64_t> drops_{0};
  std::atomic<bool> restartable_{false};
  Rewritten rewritten_;
  Rounds release_rounds_, acquire_rounds_, notice_rounds_;

  static constexpr std::uint32_t kMaxIdleFaults = 10'000;
  // with a PollWaiter: some tens of microseconds, and then naps
  static constexpr unsigned kLooksAtPage = 400;
  Notes<comm::ReplyToken, 4096> asked_;      ///< requests for a release
  std::atomic<std::uint32_t> answering_{0};  ///< threads that run handlers and will call serve() afterwards
};

}  // namespace kasane::dsm
