// SPDX-License-Identifier: Apache-2.0
// Which frames a rank has, counted against its budget, and the bell of who makes room (docs/design/tiers.md).
//
//   whoever is about to fill frames         admitted(n)?    before it holds anything: else it rings, and waits
//   … fills them, bits held                 fill()          never fails: what the budget has not got is owed (mem/room.h)
//   who makes room, alone                   empty()         punched: given back, what is owed first
//                                           measure_tables()    page tables: as fill() presumed, until they are measured; so are stacks
//
// So the budget is exceeded by what threads that were admitted at the same moment fill: at most two pages each (a frame and a twin), or twice 16 blocks of smaller ones.
//
// Thread safety: every call from any thread, fault handlers too. fill() and empty() of a block: by who holds its busy bit, or keeps its page busy. arrivals().take() by one thread.
// Invariant: a block in frames() or twins() was counted once; used = their number, the tables and the stacks, less what is owed.
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
    std::uint64_t low = 0;                   ///< blocks that are kept free; 0: a 16th of the share
    std::uint64_t frame_bytes = 0;           ///< of a frame that the kernel makes in pages of at least that size (mem/large_frames.h); 0: a block
    std::unique_ptr<StackFrames> stacks{};   ///< null: stacks are not counted
  };
  /// rank: among those of the host.
  static Result<std::unique_ptr<Residency>> create(const Space&, const Pages&, HostBudget&, std::uint32_t rank, Config);

  [[nodiscard]] const Range& range() const noexcept { return range_; }
  [[nodiscard]] bool counts(std::uint64_t offset) const noexcept { return offset - range_.offset < range_.bytes; }
  [[nodiscard]] bool counts(PageId page) const noexcept { return counts(pages_.offset_of(page)); }

  /// May so many blocks be filled? False: want() them, and wait until they may.
  [[nodiscard]] bool admitted(std::uint64_t blocks) noexcept { return room_.admitted(blocks); }
  /// Whoever makes room is to make so much. Again and again while one waits: he takes note of it once.
  void want(std::uint64_t blocks) noexcept {
    if (room_.want(blocks)) ring();
  }
  /// Who waited is admitted, whoever made the room.
  void note_relieved() noexcept {
    room_.note_relieved();
    ring();
  }
  [[nodiscard]] std::uint64_t frame_bytes() const noexcept { return frame_blocks_ * kBlockBytes; }
  [[nodiscard]] bool large_frames() const noexcept { return frame_blocks_ != 1; }
  /// Frames of M, of one page or several of one size, that have bytes from now on; those counted already are not counted again.
  void fill(BlockRange) noexcept;
  /// Likewise, of blocks that are not touched before bytes were copied to the memory file for them (mem/bounce_buffers.h): that makes no frame larger than a block, and none is made later around it.
  void fill_staged(BlockRange) noexcept;
  void fill_twin(BlockId) noexcept;
  /// Blocks there whose frames are counted.
  [[nodiscard]] std::uint64_t count(BlockRange) const noexcept;
  /// Punches all frames of M and T there.
  void empty(BlockRange) noexcept;

  /// Blocks that should leave, so that as many as `headroom` can be filled.
  [[nodiscard]] std::uint64_t short_of(std::uint64_t headroom) noexcept { return room_.short_of(headroom); }
  /// Below so many blocks that can be filled, whoever makes room is rung; he goes on to twice as many.
  [[nodiscard]] std::uint64_t low() const noexcept { return room_.low(); }
  /// There is nowhere to go, and nobody asked for a limit.
  void lift_limit() noexcept { room_.lift_limit(); }
  [[nodiscard]] bool limitless() const noexcept { return room_.limitless(); }
  /// By who makes room, as those of mem/room.h.
  [[nodiscard]] bool take_relieved() noexcept { return room_.take_relieved(); }
  [[nodiscard]] std::uint64_t take_wanted() noexcept { return room_.take_wanted(); }
  [[nodiscard]] bool balance(std::uint64_t needed) noexcept { return room_.balance(needed); }
  [[nodiscard]] bool unsettled() const noexcept { return room_.unsettled(); }

  /// A sweep could not be kept as far ahead of as it might be: whoever makes room does so now, not only when `low` is gone.
  void note_held_back() noexcept {
    if (!held_back_.exchange(true)) ring();
  }
  [[nodiscard]] bool take_held_back() noexcept { return held_back_.load() && held_back_.exchange(false); }

  void ring() noexcept { bell_.ring(); }
  [[nodiscard]] std::uint32_t rings() const noexcept { return bell_.activity(); }
  /// Until it is rung, a signal comes, so long (< 0: no limit), or stacks are to be measured.
  void sleep(std::uint32_t rings, std::int64_t timeout_ns) noexcept {
    const std::int64_t due = ns_to_sleep();
    bell_.sleep(rings, due < 0 || (timeout_ns >= 0 && timeout_ns < due) ? timeout_ns : due);
  }

  /// How often whoever makes room found nothing that could leave, though some were waiting.
  [[nodiscard]] std::uint32_t times_stuck() const noexcept { return stuck_.load(); }
  void note_stuck() noexcept { stuck_.fetch_add(1); }

  /// Pages that were filled, and pages that were freed while they had frames and are filled anew.
  [[nodiscard]] Arrivals& arrivals() noexcept { return arrivals_; }
  /// The bytes of these pages do not matter any more, until they are filled anew.
  void note_freed(PageRange) noexcept;
  /// Calls f(page) for those that were freed, if there are more since the last time.
  template <class F>
  void look_at_freed(const F& f) {
    if (!more_freed_.exchange(false)) return;
    for (std::uint64_t p = freed_.next(0); p != ~std::uint64_t{0}; p = freed_.next(p + 1)) f(PageId{p});
  }

  // ---- page tables (mem/page_tables.h), by who makes room ----
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
  /// So many blocks of tables have gone back, which the last measurement does not show any more: they stay charged until the kernel has freed them.
  void note_leaving_tables(std::uint64_t blocks) noexcept;
  [[nodiscard]] std::uint64_t leaving_tables() const noexcept { return leaving_tables_; }
  /// Waits until the kernel has freed them.
  void see_off_tables() noexcept;
  /// So many blocks of tables are worth looking for, and waiting for: what `low` is if nobody says.
  [[nodiscard]] std::uint64_t many_tables() const noexcept { return many_tables(share()); }
  /// Tables of the runtime's own take so many blocks more, which stay.
  void use_entries(std::uint64_t blocks) noexcept { charge(BudgetUse::entries, blocks); }
  /// A page of another rank, of which nothing comes here but what its frames show: its translations do.
  void use_tables(BlockRange) noexcept;

  // ---- stacks (mem/stack_frames.h) ----
  /// A thread's stack is used here for the first time: blocks that are charged for it. Not from fault handlers.
  [[nodiscard]] std::uint64_t room_of_a_stack() const noexcept { return stacks_->presumed_of_one(); }
  void use_stack(StackId) noexcept;
  void forget_stack(StackId stack) noexcept { stacks_->forget(stack); }
  [[nodiscard]] bool stacks_due() const noexcept { return ns_to_sleep() == 0; }
  /// Charges what they take now; nothing if another thread is at it.
  void measure_stacks() noexcept;
  /// Blocks, without what is only presumed; and how many stacks have some.
  [[nodiscard]] std::uint64_t used_by_stacks() const noexcept { return stacks_ == nullptr ? 0 : stacks_->measured(); }
  [[nodiscard]] std::uint64_t stacks() const noexcept { return stacks_ == nullptr ? 0 : stacks_->known(); }

  /// Blocks of frames, of tables and of stacks.
  [[nodiscard]] std::uint64_t used() const noexcept {
    // What is owed is paid under whatever use there is, so only the sum tells.
    std::uint64_t sum = room_.debt();
    for (std::size_t use = 0; use < kBudgetUses; ++use) sum += room_.budget().used(static_cast<BudgetUse>(use));
    return sum;
  }
  /// Without what is only presumed.
  [[nodiscard]] std::uint64_t used_by_tables() const noexcept { return tables_.measured() + tables_.entries(); }
  [[nodiscard]] std::uint64_t share() const noexcept { return room_.budget().fair(); }
  /// Budget::rightful(), and what is held.
  [[nodiscard]] std::uint64_t rightful(std::uint64_t headroom) noexcept { return room_.limitless() ? 0 : room_.budget().rightful(headroom); }
  [[nodiscard]] std::uint64_t held() const noexcept { return room_.budget().held(); }
  /// Blocks that were filled beyond what there was.
  [[nodiscard]] std::uint64_t debt() const noexcept { return room_.debt(); }
  [[nodiscard]] std::uint64_t credit() const noexcept { return room_.budget().credit(); }
  /// By who makes room: do this rank's threads do nothing?
  void set_idle(bool idle) noexcept { room_.budget().set_idle(idle); }
  [[nodiscard]] bool idle() const noexcept { return room_.budget().idle(); }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] const BlockSet& frames() const noexcept { return frames_; }

 private:
  [[nodiscard]] static std::uint64_t many_tables(std::uint64_t share) noexcept { return std::clamp<std::uint64_t>(share / 16, 64, 8192); }
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
  /// -1: for ever.
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
  BlockSet frames_, twins_;   ///< blocks of M and T that were counted
  PageSet freed_;            ///< pages with frames whose bytes do not matter
  std::atomic<bool> more_freed_{false};
  Arrivals arrivals_;
  static constexpr std::uint64_t kMeasureEachNs = 20'000'000;
  PageTables tables_;
  const std::uint64_t presumed_most_ = std::max(many_tables() / 8, 4 * PageTables::kPresumed);   ///< blocks, until somebody measures
  std::uint64_t measured_ns_ = 0, leaving_tables_ = 0;
  const std::unique_ptr<StackFrames> stacks_;   ///< null: not counted
  std::atomic<bool> stacks_used_{false};
  Bell bell_{};
  std::atomic<std::uint32_t> stuck_{0};
  std::atomic<bool> held_back_{false};   ///< seq_cst: noted before the bell is rung
};

}  // namespace kasane::mem
