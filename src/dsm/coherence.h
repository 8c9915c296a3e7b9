// SPDX-License-Identifier: Apache-2.0
// Keeps what this rank sees in V coherent with the other ranks: serves faults, sends changes at a release, drops cached blocks at an
// acquire (BACKER's reconcile and flush; Endo's thesis §6.2). Drives dsm/protocol.h over the block table; design: docs/design/dsm.md.
//
// Thread safety: every call from any thread of the rank, each with a ThreadContext of its own; also inside a fault handler. No call
// allocates, logs, or holds anything but busy bits while it waits.
// Consistency: release_all makes all earlier stores of all threads of this rank visible to whoever acquires later;
// acquire_told makes visible here what was released by those whose facts this rank has seen, acquire_all all that was released.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/counters.h"
#include "base/notes.h"
#include "comm/index_pool.h"
#include "dsm/protocol.h"
#include "dsm/race_check.h"
#include "dsm/rounds.h"
#include "dsm/sweeps.h"
#include "dsm/windows.h"
#include "dsm/write_buffer.h"
#include "gas/address_cache.h"
#include "gas/attractor.h"
#include "gas/heap_hooks.h"
#include "gas/mover.h"
#include "gas/read_ahead.h"
#include "gas/sharing.h"
#include "gas/tiers.h"
#include "mem/block_table.h"
#include "mem/fault_engine.h"
#include "mem/residency.h"
#include "mem/space.h"

namespace kasane::dsm {

class Outbox;

/// Whose faults a thread serves: its own; or those of others, one after the other (mem::Served::for_another). Then it waits for nothing that one of those others may hold: room.
enum class Serves : bool { itself, others };

/// What one OS thread (or one scripted thread) brings to every call.
struct ThreadContext {
  ThreadContext(comm::Transport& transport, comm::Waiter& waiter, Counters& c, Serves s = Serves::itself) noexcept : io(transport, waiter, &c), counters(c), serves(s) {}

  comm::Blocking io;
  Counters& counters;
  const Serves serves;
  Sweeps sweeps;
  gas::ReadAhead asleep;   ///< sweeps over pages of other ranks that are on SSD
  /// A fault that finds nothing to do is a race lost to another thread; the same one again and again is not one we can serve.
  std::uint64_t idle_fault = ~std::uint64_t{0};
  std::uint32_t idle_faults = 0;
};

class Coherence final : public gas::PageHolder, public gas::HeapHooks {
 public:
  /// Sets kReleaseHandler and kChangesHandler.
  Coherence(mem::Space&, mem::BlockTable&, mem::BlockSet& cached, mem::BlockSet& dirty, mem::FaultEngine&, comm::Transport&,
            gas::AddressCache&, gas::Sharing&);

  /// Before the first fault: who brings untouched pages here (null: there are none), and who draws pages that are used here (null: they stay where they are).
  void set_movers(gas::Mover* mover, gas::Attractor* attractor) noexcept {
    mover_ = mover;
    attractor_ = attractor;
  }

  /// Before the first block is armed: where frames are counted, and from whose range pages may leave, and where blocks of ours come back from. Without it memory has no limit.
  void set_tiers(mem::Residency& residency, gas::Tiers& tiers) {
    residency_ = &residency;
    tiers_ = &tiers;
    make_flights();
    engine_.expect_punches(residency.range().offset, residency.range().bytes, residency.frame_bytes());
  }

  /// Before the first fault: who hears of data races (null: they are not looked for).
  void set_race_listener(RaceListener* listener) noexcept { races_ = listener; }

  /// Before the first fault: how many changed blocks of other ranks' pages are kept for the next release; 0: all.
  void set_write_buffer(std::uint64_t blocks) noexcept { write_buffer_.set_limit(blocks); }

  /// Makes the access possible. False: the address is not allocated (or faults for a reason that is not ours).
  bool fault(ThreadContext&, std::uint64_t offset, mem::Access);

  void release_all(ThreadContext&);
  /// Drops what other ranks have told of: all that was released before by ranks that this thread's edges come from.
  void acquire_told(ThreadContext&);
  /// Drops whatever is cached. Also what another rank has put directly, and has not released yet, is seen afterwards.
  void acquire_all(ThreadContext&);
  /// Asks rank `source` to release and waits for it; nothing to wait for where it has no changes.
  void ask_release(ThreadContext&, Rank source);
  /// The service thread's part: releases for whoever asked. True if there was something to do.
  bool serve(ThreadContext&);
  /// A worker's part, between two threads' steps: runs what has arrived and releases for whoever asked, so that the service thread need not be woken for it.
  void answer(ThreadContext&);
  /// Has somebody asked? Cheap; for the service thread before it sleeps.
  [[nodiscard]] bool asked() const noexcept { return asked_.any(); }

  /// Makes the range present (and writable), and keeps it so until unpin(). Returns the first block that is not allocated, if any: then nothing is pinned.
  [[nodiscard]] std::optional<BlockId> pin(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);
  void unpin(ThreadContext&, std::uint64_t offset, std::size_t bytes);

  /// A hint: makes the range present, as a view that ends at once; but what is on SSD is only sent for, and write_only blocks that are not in it as a whole are left out.
  void prefetch(ThreadContext&, std::uint64_t offset, std::size_t bytes, Use);

  /// The values of the range are not needed any more: of blocks that may leave DRAM here.
  void blank(comm::Blocking&, std::uint64_t offset, std::size_t bytes);

  // ---- memory larger than DRAM (eviction.cpp): for the rank's keeper ----
  /// The pages' translations in V are dropped where their blocks are ours and free; the bytes stay. pages: sorted.
  void rest(std::span<const PageId> pages) noexcept;
  /// Was it touched since?
  [[nodiscard]] bool touched(PageId) const noexcept;
  /// The kernel's page tables behind a range, whole ones, if no block there has anything (page_tables.cpp). False: one has.
  bool give_tables_back(mem::BlockRange) noexcept;
  /// Those behind this rank's mappings of the others' frames: all translations there go.
  void give_back_tables_of_others() noexcept;
  /// For what cannot wait for ever: returns when there is room for so many blocks, or nothing could leave for a while. Nothing is held.
  void admit_for_now(comm::Blocking&, std::uint64_t blocks);
  /// Changes that no release has sent go to their owners, so that their blocks can be dropped.
  void clean(comm::Blocking&);
  /// Bits were given back, or there is room, by a thread that no message told of: who waits looks again at once.
  void wake_waiting() noexcept {
    // An atomic that writes: what was given back is visible before the number is read, so either it is seen by who counts himself next, or he is seen here.
    if (waiting_.fetch_add(0) != 0) transport_.wake(transport_.rank(), comm::Doorbell::messages);
  }

  // gas::HeapHooks
  void arm_owned(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void take(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  void discard(comm::Blocking&, std::uint64_t offset, std::size_t bytes) override;
  [[nodiscard]] bool fits(std::uint64_t bytes) noexcept override;

  // gas::PageHolder
  void admit(comm::Blocking&, PageId) override;
  gas::YieldAnswer yield(PageId) noexcept override;
  bool let_go(PageId, bool punch, gas::BlockMask* unsaved) noexcept override;
  void claim_rest(comm::Blocking&, PageId) override;
  bool try_claim_rest(PageId) noexcept override;
  [[nodiscard]] bool holds(BlockId b) const noexcept override { return state(b).owned || state(b).dirty(); }
  [[nodiscard]] bool as_stored(BlockId b) const noexcept override { return state(b).saved || !holds(b); }
  gas::Claim claim(comm::Blocking&, PageId) override;
  gas::Claim try_claim(PageId) noexcept override;
  void give_up(PageId) noexcept override;
  std::span<std::byte> landing(PageId, gas::ByteRange live) noexcept override;
  void begin_merge(comm::Batch&, PageId, gas::ByteRange live, Rank from) override;
  void end_merge(comm::Blocking&, PageId, gas::ByteRange live, Rank from) override;
  void settle(PageId) override;
  void settle_unused(PageId) override;
  void begin_naming() noexcept override;
  void end_naming(PageId) noexcept override;
  void replaced(PageId) noexcept override;

  /// Acquires so far.
  [[nodiscard]] std::uint64_t acquires() const noexcept { return acquires_.load(); }
  /// The state of a block, for tests and invariant walks.
  [[nodiscard]] BlockState state(BlockId) const noexcept;
  ~Coherence() override;

 private:
  [[nodiscard]] bool try_claim(BlockId, BlockState before, const Step&) noexcept;
  [[nodiscard]] Verdict try_claim(mem::BlockRange, Event) noexcept;
  /// Claims block for event, waiting while others hold it. The step's verdict is done, refuse or proceed (then claimed).
  Step claim_block(comm::Blocking&, BlockId, Event);
  void finish(BlockId, BlockState after) noexcept;
  void wait_free(comm::Blocking&, BlockId);
  /// As Waiter::until(), and known to wake_waiting().
  template <class Ready>
  void await(comm::Blocking& io, const Ready& ready) {
    waiting_.fetch_add(1);   // seq_cst: before it looks
    io.waiter().until(ready);
    waiting_.fetch_sub(1);
  }

  void protect(mem::BlockRange, mem::Access) noexcept;
  void protect(const Stripe&, mem::Access) noexcept;
  void make_room() noexcept;

  void await_page(comm::Blocking&, PageId);
  static bool hopeless(ThreadContext&, std::uint64_t offset) noexcept;
  enum class Fault { served, again, wild };
  Fault carry_out_fault(ThreadContext&, BlockId, Event, const Step&);
  /// What a fault has claimed of its sweep, its own block first or last; `here`: how many of them lie in its page.
  struct Claimed {
    Stripe blocks;
    std::uint32_t here;
  };
  Claimed claim_sweep(ThreadContext&, BlockId, Event, const Step&);
  [[nodiscard]] bool leads_to(PageId other, PageId page) const noexcept;
  bool gather_sweep(ThreadContext&, BlockId, Event, const Claimed&);
  void arm_own_page(BlockId, const Stripe& held, std::uint32_t pins) noexcept;
  Fetched locate(comm::Blocking&, PageId, gas::AddressCache::Found&);
  Fetched fetch(ThreadContext&, BlockId, const Stripe&, bool bytes_too, gas::AddressCache::Found&);
  class Incoming;
  struct Flight;
  void make_flights();
  void read_ahead(ThreadContext&, BlockId, Event);
  void fly(ThreadContext&, Flight&);
  void claim_ahead(comm::Blocking&, BlockId, const gas::ReadAhead::Plan&, Flight&);
  void claim_part(comm::Blocking&, mem::BlockRange part, Flight&);
  void land(const Flight&) noexcept;
  Fault bring_blocks(ThreadContext&, BlockId, const Stripe&, Event, gas::Location found);
  /// Where the owner's bytes are mapped here; else null.
  [[nodiscard]] const std::byte* frame_of(Rank owner, std::uint64_t offset) const noexcept {
    const std::byte* frames = transport_.mapped(owner, gas::kFrames);
    return frames == nullptr ? nullptr : frames + offset;
  }

  struct Wanted;
  class Gathering;
  bool pin_block(ThreadContext&, BlockId, Event);
  [[nodiscard]] std::uint64_t shown_until(std::uint64_t first, std::uint64_t end, Use) const noexcept;
  [[nodiscard]] std::uint64_t pin_shown(std::uint64_t first, std::uint64_t end, Use) noexcept;
  bool count_pin(BlockId, BlockState before, int by) noexcept;
  void send_for(ThreadContext&, std::uint64_t begin, std::uint64_t end, Event);
  [[nodiscard]] bool is_coming(mem::BlockRange) const noexcept;
  template <class F>
  void for_each_part(std::uint64_t begin, std::uint64_t end, const F&) const;

  void flush_dirty(ThreadContext&);
  void write_back(ThreadContext&, std::uint64_t newest);
  class Volley;
  void drop_cached(ThreadContext&);
  void drop_told(ThreadContext&);
  [[nodiscard]] bool has_copies_beside(PageId, gas::Parts) const noexcept;
  /// Calls f(block, its part) for those in these parts of the page.
  template <class F>
  void for_each_cached(PageId page, gas::Parts parts, const F& f) const {
    const mem::BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = cached_.next(raw(all.first)); b < end_of(all); b = cached_.next(b + 1)) {
      if (const gas::Parts part = gas::part_of(all, BlockId{b}); (parts & part) != 0) f(BlockId{b}, part);
    }
  }
  void hide(mem::BlockRange) noexcept;
  [[nodiscard]] bool rests_with(mem::BlockRange, PageId next_page) const noexcept;
  gas::Sharing::Look look_at(PageId, bool watch) noexcept;
  void fence_block(comm::Blocking&, Counters*, BlockId, Event);
  void carry_out_fence(comm::Blocking&, Counters*, BlockId, const Step&);
  template <Event>
  bool concerns(BlockId) const noexcept;
  bool begin_put(comm::Blocking&, PageId, std::optional<gas::AddressCache::Put>&);
  BlockState come_home(BlockId) noexcept;
  bool put_page(comm::Blocking&, Counters*, PageId, std::span<const BlockId>);
  gas::Parts put_blocks(Outbox&, Counters*, Rank owner, PageId, std::span<const BlockId>);
  std::size_t put_changed(Outbox&, Counters*, Rank owner, std::uint64_t offset, const std::byte* bytes, const std::byte* base);
  bool put_live(comm::Blocking&, Counters*, BlockId, const Step&);
  static void on_changes(void* self, const comm::Message&) noexcept;
  template <class F>
  bool read_as_reader(comm::Blocking&, PageId, const F& read);
  void stay_reader(comm::Blocking&, PageId);
  void refresh(comm::Blocking&, BlockId, bool twin);
  template <class F>
  void for_each_arriving(PageId, gas::ByteRange live, const F& part) const;
  void give_back(BlockId first, std::uint64_t count) noexcept;
  void mark_dirty(Counters&, BlockId) noexcept;
  void mark_clean(BlockId) noexcept;

  void arm_claimed(std::uint64_t first, std::uint64_t last) noexcept;

  void blank(comm::Blocking&, mem::BlockRange);
  [[nodiscard]] bool is_blank(PageId) const noexcept;
  void make_present(ThreadContext&, PageId, Fetched, Rank owner);
  void rouse(ThreadContext&, PageId, Rank owner);
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
  mem::BlockSet& cached_;   ///< blocks that are not ours and may be visible; changed only by the holder of the busy bit
  mem::BlockSet& dirty_;    ///< those with a twin
  mem::FaultEngine& engine_;
  comm::Transport& transport_;
  gas::AddressCache& addresses_;
  const gas::Directory& directory_;
  gas::Mover* mover_ = nullptr;
  const mem::Pages& pages_;
  gas::Attractor* attractor_ = nullptr;
  gas::Sharing& sharing_;
  RaceListener* races_ = nullptr;
  mem::Residency* residency_ = nullptr;   ///< null: memory has no limit, and there are no tiers
  gas::Tiers* tiers_ = nullptr;
  static constexpr std::uint32_t kPiecesOfAFlight = 4, kFlights = 64;
  static constexpr std::uint64_t kBlocksOfAFlight = kPiecesOfAFlight * gas::Tiers::kPieceBytes / mem::kBlockBytes;
  std::unique_ptr<Flight[]> flights_;     ///< blocks that are on their way from the spill file
  comm::IndexPool<> free_flights_{kFlights};

  std::atomic<std::uint32_t> waiting_{0};    ///< threads of this rank in await()
  std::atomic<std::uint64_t> acquires_{0};
  std::atomic<std::uint64_t> drops_{0};      ///< acquires that dropped something; rule 2: a fetch that saw another number than the present one is repeated
  WriteBuffer write_buffer_;
  Rounds release_rounds_, acquire_rounds_, told_rounds_;

  static constexpr std::uint32_t kMaxIdleFaults = 10'000;
  static constexpr unsigned kLooksAtPage = 400;   // with a PollWaiter: some tens of microseconds, and then naps
  Notes<comm::ReplyToken, 4096> asked_;      ///< who waits for a release
  std::atomic<std::uint32_t> answering_{0};  ///< threads that run handlers and will serve() afterwards
};

}  // namespace kasane::dsm
