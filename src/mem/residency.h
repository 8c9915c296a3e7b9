// SPDX-License-Identifier: Apache-2.0
// Which frames a rank has, counted against its budget, and the bell of the pager (docs/design/tiers.md).
//
//   a thread that is about to fill frames   admitted(n)?   before it holds anything; else it rings and waits
//   … fills them and holds their bits       fill()         never fails: what the budget lacks becomes debt
//   the pager                              empty()        punched and given back; the debt is paid first
//                                           measure_tables()   fill() presumes page tables, and use_stack()
//                                           measure_stacks()   stacks, until they are measured
//
// So the budget is exceeded only by what threads fill that were admitted at the same moment: each at most two
// pages (a frame and a twin), or twice 16 smaller blocks.
//
// Thread safety: every call from any thread, fault handlers too. fill() and empty() of a block: by the holder
// of its busy bit, or while its page is kept busy. arrivals().take() by one thread.
// Invariant: a block in frames() or twins() was counted once; used = their number, the tables and the stacks,
// less the debt.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bell.h"
#include "base/result.h"
#include "mem/arrivals.h"
#include "mem/block_table.h"
#include "mem/page_tables.h"
#include "mem/pages.h"
#include "mem/room.h"
#include "mem/space.h"
#include "mem/stack_frames.h"

namespace kasane::mem {

class Residency {
 public:
  /// The bytes of the space that are counted and may leave DRAM: the heaps.
  struct Range {
    std::uint64_t offset = 0, bytes = 0;
  };
  struct Config {
    Range range;
    std::uint64_t low = 0;  ///< blocks that are kept free; 0: a 16th of the share
    /// The size of the frames that the kernel makes in pages of at least that size (mem/large_frames.h); 0: a
    /// block
    std::uint64_t frame_bytes = 0;
    std::unique_ptr<StackFrames> stacks{};  ///< null: stacks are not counted
  };
  /// rank: its number on the host.
  static Result<std::unique_ptr<Residency>> create(const Space&, const Pages&, HostBudget&,
                                                   std::uint32_t rank, Config);

  [[nodiscard]] const Range& range() const noexcept { return range_; }
  [[nodiscard]] bool counts(std::uint64_t offset) const noexcept {
    return offset - range_.offset < range_.bytes;
  }
  [[nodiscard]] bool counts(PageId page) const noexcept { return counts(pages_.offset_of(page)); }

  /// May so many blocks be filled? False: want() them, and wait until they may.
  [[nodiscard]] bool admitted(std::uint64_t blocks) noexcept { return room_.admitted(blocks); }
  /// Tells the pager to make so much room. A waiting thread calls it repeatedly; the pager is rung once.
  void want(std::uint64_t blocks) noexcept {
    if (room_.want(blocks)) ring();
  }
  /// The thread that waited is admitted, whatever made the room.
  void note_relieved() noexcept {
    room_.note_relieved();
    ring();
  }
  [[nodiscard]] std::uint64_t frame_bytes() const noexcept { return frame_blocks_ * kBlockBytes; }
  [[nodiscard]] bool large_frames() const noexcept { return frame_blocks_ != 1; }
  /// Frames of M, of one page or of several pages of one size, that have bytes from now on. Frames that are
  /// counted already are not counted again.
  void fill(BlockRange) noexcept;
  /// As fill(), of blocks whose bytes were copied into the memory file before any touch
  /// (mem/bounce_buffers.h): the kernel then makes no frame larger than a block, and none later around it.
  void fill_staged(BlockRange) noexcept;
  void fill_twin(BlockId) noexcept;
  /// Blocks of the range whose frames are counted.
  [[nodiscard]] std::uint64_t count(BlockRange) const noexcept;
  /// Punches all frames of M and T in the range.
  void empty(BlockRange) noexcept;

  /// Blocks that should be evicted so that `headroom` can be filled.
  [[nodiscard]] std::uint64_t short_of(std::uint64_t headroom) noexcept { return room_.short_of(headroom); }
  /// When fewer blocks than this can be filled, the pager is rung. It evicts until there are twice as many.
  [[nodiscard]] std::uint64_t low() const noexcept { return room_.low(); }
  /// Nothing can be spilled, and the user asked for no limit.
  void lift_limit() noexcept { room_.lift_limit(); }
  [[nodiscard]] bool limitless() const noexcept { return room_.limitless(); }
  /// By the pager; see mem/room.h.
  [[nodiscard]] bool take_relieved() noexcept { return room_.take_relieved(); }
  [[nodiscard]] std::uint64_t take_wanted() noexcept { return room_.take_wanted(); }
  [[nodiscard]] bool balance(std::uint64_t needed) noexcept { return room_.balance(needed); }
  [[nodiscard]] bool unsettled() const noexcept { return room_.unsettled(); }

  /// Read-ahead was limited by a lack of room: the pager makes room now, not only when less than `low` is
  /// left.
  void note_held_back() noexcept {
    if (!held_back_.exchange(true)) ring();
  }
  [[nodiscard]] bool take_held_back() noexcept { return held_back_.load() && held_back_.exchange(false); }

  void ring() noexcept { bell_.ring(); }
  [[nodiscard]] std::uint32_t rings() const noexcept { return bell_.activity(); }
  /// The pager sleeps until it is rung, a signal comes, timeout_ns has passed (< 0: no limit), or stacks are
  /// to be measured.
  void sleep(std::uint32_t rings, std::int64_t timeout_ns) noexcept {
    const std::int64_t due = ns_to_sleep();
    bell_.sleep(rings, due < 0 || (timeout_ns >= 0 && timeout_ns < due) ? timeout_ns : due);
  }

  /// How often the pager found nothing to evict while threads were waiting.
  [[nodiscard]] std::uint32_t times_stuck() const noexcept { return stuck_.load(); }
  void note_stuck() noexcept { stuck_.fetch_add(1); }

  /// Pages that were filled, and pages that were freed while they had frames and are filled anew.
  [[nodiscard]] Arrivals& arrivals() noexcept { return arrivals_; }
  /// The bytes of these pages do not matter any more, until they are filled anew.
  void note_freed(PageRange) noexcept;
  /// Calls f(page) for all pages in that state, if pages were freed since the last call.
  template <class F>
  void look_at_freed(const F& f) {
    if (!more_freed_.exchange(false)) return;
    for (std::uint64_t p = freed_.next(0); p != ~std::uint64_t{0}; p = freed_.next(p + 1)) f(PageId{p});
  }

  // ---- page tables (mem/page_tables.h), by the pager ----
  /// Have many ranges been used since the last measurement, or is that long ago?
  [[nodiscard]] bool tables_due() const noexcept;
  /// Charges what they take now, in blocks.
  std::uint64_t measure_tables() noexcept;
  /// As PageTables::give_back().
  template <class F>
  std::uint64_t give_tables_back(const F& f) {
    const std::uint64_t gone = tables_.give_back(f);
    if (gone != 0) pay(BudgetUse::entries, gone);
    return gone;
  }
  /// So many blocks of tables were freed, which the last measurement does not show. They stay charged until
  /// the kernel has freed them.
  void note_leaving_tables(std::uint64_t blocks) noexcept;
  [[nodiscard]] std::uint64_t leaving_tables() const noexcept { return leaving_tables_; }
  /// Waits until the kernel has freed them.
  void see_off_tables() noexcept;
  /// From how many blocks on tables are worth examining and waiting for; also the default of `low`.
  [[nodiscard]] std::uint64_t many_tables() const noexcept { return many_tables(share()); }
  /// Tables of the runtime take so many blocks more, which stay.
  void use_entries(std::uint64_t blocks) noexcept { charge(BudgetUse::entries, blocks); }
  /// A page of another rank whose frames are mapped here: its translations take tables of this process.
  void use_tables(BlockRange) noexcept;

  // ---- stacks (mem/stack_frames.h) ----
  /// Blocks that are charged when a thread's stack is used here for the first time. Not in fault handlers.
  [[nodiscard]] std::uint64_t room_of_a_stack() const noexcept { return stacks_->presumed_of_one(); }
  void use_stack(StackId) noexcept;
  void forget_stack(StackId stack) noexcept { stacks_->forget(stack); }
  [[nodiscard]] bool stacks_due() const noexcept { return ns_to_sleep() == 0; }
  /// Charges what they take now; nothing happens if another thread measures.
  void measure_stacks() noexcept;
  /// Blocks that were measured; and how many stacks are known.
  [[nodiscard]] std::uint64_t used_by_stacks() const noexcept {
    return stacks_ == nullptr ? 0 : stacks_->measured();
  }
  [[nodiscard]] std::uint64_t stacks() const noexcept { return stacks_ == nullptr ? 0 : stacks_->known(); }

  /// Blocks of frames, of tables and of stacks.
  [[nodiscard]] std::uint64_t used() const noexcept {
    // A payment of debt is charged under whatever use it came from, so only the sum is exact.
    std::uint64_t sum = room_.debt();
    for (std::size_t use = 0; use < kBudgetUses; ++use)
      sum += room_.budget().used(static_cast<BudgetUse>(use));
    return sum;
  }
  /// Without what is only presumed.
  [[nodiscard]] std::uint64_t used_by_tables() const noexcept {
    return tables_.measured() + tables_.entries();
  }
  [[nodiscard]] std::uint64_t share() const noexcept { return room_.budget().fair(); }
  /// Budget::rightful(), and what is held.
  [[nodiscard]] std::uint64_t rightful(std::uint64_t headroom) noexcept {
    return room_.limitless() ? 0 : room_.budget().rightful(headroom);
  }
  [[nodiscard]] std::uint64_t held() const noexcept { return room_.budget().held(); }
  /// Blocks that were filled beyond the budget.
  [[nodiscard]] std::uint64_t debt() const noexcept { return room_.debt(); }
  [[nodiscard]] std::uint64_t credit() const noexcept { return room_.budget().credit(); }
  /// By the pager: do this rank's threads do nothing?
  void set_idle(bool idle) noexcept { room_.budget().set_idle(idle); }
  [[nodiscard]] bool idle() const noexcept { return room_.budget().idle(); }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  /// Blocks of it that this rank may always have.
  [[nodiscard]] std::uint64_t fair() const noexcept { return room_.budget().fair(); }
  [[nodiscard]] const BlockSet& frames() const noexcept { return frames_; }

 private:
  [[nodiscard]] static std::uint64_t many_tables(std::uint64_t share) noexcept {
    return std::clamp<std::uint64_t>(share / 16, 64, 8192);
  }
  struct Sets {
    BlockSet frames, twins;
    PageSet freed;
    Arrivals arrivals;
    PageTables tables;
  };
  Residency(const Space&, const Pages&, HostBudget&, std::uint32_t rank, Config, Sets) noexcept;
  [[nodiscard]] BlockRange frames_of(BlockRange) const noexcept;
  void count_in(BlockRange) noexcept;
  void charge(BudgetUse use, std::uint64_t blocks) noexcept {
    if (room_.charge(use, blocks)) ring();
  }
  void pay(BudgetUse use, std::uint64_t blocks) noexcept {
    if (room_.pay(use, blocks)) ring();
  }
  void correct(BudgetUse use, Measured measured) noexcept {
    if (measured.now > measured.charged) charge(use, measured.now - measured.charged);
    if (measured.now < measured.charged) pay(use, measured.charged - measured.now);
  }
  std::uint64_t punch(int fd, BlockSet&, BlockRange) noexcept;
  /// -1: no limit.
  [[nodiscard]] std::int64_t ns_to_sleep() const noexcept {
    if (stacks() == 0 || room_.limitless()) return -1;
    return static_cast<std::int64_t>(stacks_->ns_until_due());
  }

  const Space& space_;
  const Pages& pages_;
  const Range range_;
  const std::uint64_t total_;
  Room room_;
  const std::uint64_t frame_blocks_;
  BlockSet frames_, twins_;  ///< blocks of M and T that were counted
  PageSet freed_;            ///< pages with frames whose bytes do not matter
  std::atomic<bool> more_freed_{false};
  Arrivals arrivals_;
  static constexpr std::uint64_t kMeasureEachNs = 20'000'000;
  PageTables tables_;
  /// Blocks, until the next measurement
  const std::uint64_t presumed_most_ = std::max(many_tables() / 8, 4 * PageTables::kPresumed);
  std::uint64_t measured_ns_ = 0, leaving_tables_ = 0;
  const std::unique_ptr<StackFrames> stacks_;  ///< null: not counted
  std::atomic<bool> stacks_used_{false};
  Bell bell_{};
  std::atomic<std::uint32_t> stuck_{0};
  std::atomic<bool> held_back_{false};  ///< seq_cst: noted before the bell is rung
};

}  // namespace kasane::mem
