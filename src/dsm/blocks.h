// SPDX-License-Identifier: Apache-2.0
// What this rank has of each block: the words of the block table (dsm/protocol.h) and what follows from them,
// V's rights and the sets of cached and of changed blocks. A word changes in three ways: its block is claimed
// and finished by a Held (dsm/held.h) or by a Fence (dsm/fence.h); a pin is counted; the table's memory goes.
//
// Invariants, of blocks that are free:
//   in cached()   if and only if another rank owns it and V allows something
//   in changed()  if and only if it has changes that were not sent
// The holder of a block keeps them: show() puts a block into changed() before V allows a store, and marks the
// page of an own block that becomes writable; finish() takes it out of both sets before the bit is free.
// Into cached() a block goes before its bytes are read: an acquire that does not find it there began before,
// and needs nothing of it.
//
// Thread safety: every call from any thread. Nothing here allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/assert.h"
#include "comm/waiter.h"
#include "dsm/parts.h"
#include "dsm/protocol.h"

namespace kasane::dsm {

class Blocks {
 public:
  explicit Blocks(const Parts& parts) noexcept : p_(parts) {}

  [[nodiscard]] const Parts& parts() const noexcept { return p_; }

  [[nodiscard]] BlockState state(BlockId b) const noexcept { return BlockState::of(p_.table[b].load()); }
  /// For a guess.
  [[nodiscard]] BlockState glance(BlockId b) const noexcept {
    return BlockState::of(p_.table[b].load(std::memory_order_relaxed));  // relaxed: nothing depends on it
  }
  [[nodiscard]] const mem::BlockSet& cached() const noexcept { return p_.cached; }
  [[nodiscard]] const mem::BlockSet& changed() const noexcept { return p_.changed; }
  [[nodiscard]] mem::FaultEngine& engine() const noexcept { return p_.engine; }

  /// Claim and finish of a step without actions, in one compare-swap. False: the word has changed meanwhile.
  bool count_pin(BlockId, BlockState before, int by) noexcept;
  /// Merges mappings: drops clean cached blocks that are neither claimed nor pinned. Never waits.
  void make_room() noexcept;
  /// Returns whole kernel page tables of a range to the kernel, if all of its blocks are invalid
  /// (page_tables.cpp). False: one is not.
  bool give_tables_back(mem::BlockRange) noexcept;

  void wait_free(comm::Blocking& io, BlockId b) {
    await(io, [this, b] { return !state(b).busy; });
  }
  /// Like Waiter::until(), and wake_waiting() knows of it.
  template <class Ready>
  void await(comm::Blocking& io, const Ready& ready) {
    waiting_.fetch_add(1);  // seq_cst: before the condition is read
    io.waiter().until(ready);
    waiting_.fetch_sub(1);
  }
  /// Called after busy bits or room became free without a message: waiting threads look again at once.
  void wake_waiting() noexcept {
    // A read-modify-write: what became free is visible before waiting_ is read. So a thread that counts
    // itself later sees it, or this thread sees the count.
    if (waiting_.fetch_add(0) != 0) p_.transport.wake(p_.transport.rank(), comm::Doorbell::messages);
  }
  /// The same for threads that have left faults.
  void wake_leavers() noexcept {
    // A read-modify-write, for the same reason: a worker counts itself before it looks for the last time.
    if (p_.waits_asleep != nullptr && p_.waits_asleep->fetch_add(0) != 0)
      p_.transport.wake(p_.transport.rank(), comm::Doorbell::work);
  }

 private:
  friend class Held;
  friend class Fence;

  /// One compare-swap from `before` to the step's claimed word.
  bool try_claim(BlockId b, const BlockState& before, const BlockStep& step) noexcept {
    std::uint32_t expected = before.word();
    // seq_cst: the busy bit orders this thread's later look at the directory against an acquire's walk over
    // cached().
    return p_.table[b].compare_exchange_strong(expected, step.claimed.word());
  }
  /// Claims the block for the event; waits while another thread holds it. The step's verdict is done, refuse,
  /// or proceed (then the block is claimed).
  BlockStep claim(comm::Blocking&, BlockId, BlockEvent);
  /// The word of a claimed block, as if it were free.
  [[nodiscard]] BlockState before(BlockId b) const noexcept {
    BlockState s = state(b);
    s.busy = false;
    return s;
  }
  /// The caller's block has changes from now on.
  void begin_change(BlockId b) noexcept {
    p_.changed.insert(b);
    p_.sharing.add_dirty();  // before any store can happen: ask_release() of other ranks relies on it
  }
  [[nodiscard]] static bool writable_here(const BlockState& s) noexcept {
    return s.owned && s.access == Access::write;
  }
  void protect(mem::BlockRange, Access) noexcept;
  void finish(BlockId, const BlockState& before, const BlockState& after) noexcept;
  /// What V allows of the claimed blocks for which each(f) calls f(i, block), in ascending order, becomes
  /// that of after(i, before): a call of the engine for each run of blocks that have an access in common and
  /// of which one did not have it.
  template <class Each, class After>
  void show(const Each& each, const After& after) noexcept {
    mem::BlockRange run{BlockId{0}, 0};
    Access access = Access::none;
    bool changes = false;
    std::optional<PageId> marked;
    const auto end_run = [&] {
      if (run.count != 0 && changes) protect(run, access);
      run.count = 0;
      changes = false;
    };
    each([&](std::uint64_t i, BlockId b) {
      const BlockState was = before(b), becomes = after(i, was);
      if (becomes.dirty() && !was.dirty()) begin_change(b);
      if (writable_here(becomes) && !writable_here(was) && marked != pages_.page_of(b))
        p_.sharing.mark(*(marked = pages_.page_of(b)));
      if (run.count == 0 || raw(run.first) + run.count != raw(b) || access != becomes.access) {
        end_run();
        run.first = b;
        access = becomes.access;
      }
      ++run.count;
      changes |= was.access != becomes.access;
    });
    end_run();
  }

  const Parts p_;
  const mem::Pages& pages_ = p_.pages();
  std::atomic<std::uint32_t> waiting_{0};  ///< threads of this rank in await()
};

}  // namespace kasane::dsm
