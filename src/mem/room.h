// SPDX-License-Identifier: Apache-2.0
// The room of a rank: what its threads fill and wait for, what was filled beyond the budget (the debt), and
// what the rank asks of other ranks.
//
//   a thread that waits     admitted(n)? ── no ──▶ want(n) ──ring──▶┐
//                           yes, at last: note_relieved() ────ring──▶┤ the pager: take_wanted(), balance():
//   a thread that fills     charge(n): may add debt ──────────ring──▶┤ asks for debt + need, or ends the ask;
//   a thread that empties   pay(n): reduces the debt first ───ring──▶┘ rings other ranks: they give, or got;
//                                                                      evicts, if less than `low` is left
//                                                                      or other ranks ask for blocks
//
// **One thread asks**: the pager. It computes the ask anew each time it is rung, so an ask ends when there
// is no debt and no thread waits, whichever call brought that about. A call that changes what the ask depends
// on only has to ring. An ask that stayed would keep every other rank to its share, whatever is free.
//
// Nothing here blocks, sleeps or rings: the answers say which thread is to be rung. The table is in
// docs/design/budget.md, "Asks and rings"; tests/model/room_test.cpp walks it, access by access.
//
// Thread safety: any thread of the rank, fault handlers too; the pager's calls by one thread.
// Invariant: frames that have been charged and not paid for = used of the budget + debt.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mem/budget.h"

namespace kasane::mem {

/// What threads of the rank wait for, as the pager knows it.
struct Need {
  std::uint64_t blocks = 0;

  /// The pager was rung. wanted: since it was rung before. relieved: a thread got its room meanwhile;
  /// threads that still wait want theirs again. forgotten: no thread has wanted any for long (faults that
  /// were put off, and whose pages came otherwise).
  [[nodiscard]] constexpr Need next(std::uint64_t wanted, bool relieved, bool forgotten) const noexcept {
    if (relieved) return {};
    return {std::max(forgotten ? 0 : blocks, wanted)};
  }
};

template <class Atomics>
class BasicRoom {
 public:
  using Host = BasicHostBudget<Atomics>;
  using Rank = BasicBudget<Atomics>;

  /// low: blocks that are kept free. batch: as of the budget.
  BasicRoom(Host& host, std::uint32_t rank, std::uint64_t low, std::uint64_t batch = 0) noexcept
      : budget_(host, rank, batch), low_(low) {}

  // ---- any thread. A result of true means, where nothing else is said: ring the pager ----

  /// May so many blocks be filled? False: want() them, and ask again.
  [[nodiscard]] bool admitted(std::uint64_t blocks) noexcept {
    return limitless() || (debt() == 0 && (budget_.credit() >= blocks || budget_.available() >= blocks));
  }
  /// A waiting thread calls it repeatedly; it is noted once.
  [[nodiscard]] bool want(std::uint64_t blocks) noexcept {
    std::uint64_t wanted = wanted_.load(std::memory_order_relaxed);
    while (wanted < blocks) {
      if (wanted_.compare_exchange_strong(wanted, blocks, std::memory_order_relaxed,
                                          std::memory_order_relaxed))
        return true;
    }
    return false;
  }
  /// The thread that waited is admitted, whatever made the room. Ring the pager in any case.
  void note_relieved() noexcept { relieved_.store(true, std::memory_order_relaxed); }
  /// Blocks that are filled in any case: what the budget lacks becomes debt.
  [[nodiscard]] bool charge(BudgetUse use, std::uint64_t blocks) noexcept {
    const Charge how = budget_.charge(use, blocks);
    if (how == Charge::none) {
      debt_.fetch_add(blocks, std::memory_order_relaxed);
      return true;
    }
    // A rank that takes while another one asks may have to give that one what it took: the other's ring may
    // have come before.
    return (how == Charge::taken || budget_.credit() < low_) && short_of(low_) != 0;
  }
  /// Blocks that were emptied.
  [[nodiscard]] bool pay(BudgetUse use, std::uint64_t blocks) noexcept {
    const Settled settled = settle(blocks);
    const bool given = blocks > settled.paid && note_given(budget_.discharge(use, blocks - settled.paid));
    return given || settled.all;
  }
  /// Blocks that should be evicted so that `headroom` can be filled.
  [[nodiscard]] std::uint64_t short_of(std::uint64_t headroom) noexcept {
    return limitless() ? 0 : debt() + budget_.to_evict(headroom);
  }
  /// Nothing can be spilled, and the user asked for no limit.
  void lift_limit() noexcept { limitless_.store(true, std::memory_order_relaxed); }
  // relaxed, here and where no other order is named: numbers. The bell orders what was noted before it was
  // rung.
  [[nodiscard]] bool limitless() const noexcept { return limitless_.load(std::memory_order_relaxed); }

  // ---- the pager ----

  /// Before take_wanted(): so what a relieved thread wanted is taken before, or with it.
  [[nodiscard]] bool take_relieved() noexcept { return relieved_.exchange(false, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t take_wanted() noexcept {
    return wanted_.exchange(0, std::memory_order_relaxed);
  }

  /// By the pager, when it was rung and when something was evicted. Pays the debt as far as blocks are free,
  /// asks other ranks for the rest and for what is needed, or ends the ask, and gives other ranks what they
  /// ask for. True: ring the other ranks.
  [[nodiscard]] bool balance(std::uint64_t needed) noexcept {
    bool tell = given_.exchange(false, std::memory_order_acq_rel);  // acquire, release: as note_given() says
    for (;;) {
      tell |= pay_debt();
      const std::uint64_t debt = limitless() ? 0 : this->debt();
      const Ask ask = budget_.ask(debt, limitless() ? 0 : needed);
      tell |= ask == Ask::others;
      // A giver that did not see the ask rings no rank, so blocks may be free. Those that are needed stay
      // there: the waiting thread takes them.
      if (debt == 0 || ask != Ask::free) break;
    }
    return budget_.trim() || tell;
  }

  /// The rank asks, or has debt. A rank that could give may not have been able to when it was rung, and is
  /// not rung again. So the pager checks again after a while.
  [[nodiscard]] bool unsettled() const noexcept { return debt() != 0 || budget_.asks(); }

  [[nodiscard]] std::uint64_t debt() const noexcept { return debt_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t low() const noexcept { return low_; }
  [[nodiscard]] Rank& budget() noexcept { return budget_; }
  [[nodiscard]] const Rank& budget() const noexcept { return budget_; }

 private:
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;
  struct Settled {
    std::uint64_t paid;
    bool all;  ///< the debt is paid: the ask may be over
  };

  /// Reduces the debt.
  Settled settle(std::uint64_t blocks) noexcept {
    std::uint64_t debt = this->debt(), paid = 0;
    do {
      if (debt == 0) return {0, false};
      paid = std::min(debt, blocks);
    } while (!debt_.compare_exchange_strong(debt, debt - paid, std::memory_order_relaxed,
                                            std::memory_order_relaxed));
    return {paid, paid == debt};
  }
  /// True: some blocks went to a rank that asks.
  bool pay_debt() noexcept {
    const std::uint64_t debt = this->debt(),
                        got = debt == 0 ? 0 : budget_.charge_part(BudgetUse::owned, debt);
    if (got == 0) return false;
    const std::uint64_t paid = settle(got).paid;  // other threads may have paid some of it meanwhile
    return paid != got && budget_.discharge(BudgetUse::owned, got - paid);
  }
  /// True: for the first time since the other ranks were rung. acquire, release: a rank that is rung sees
  /// what was given.
  bool note_given(bool given) noexcept { return given && !given_.exchange(true, std::memory_order_acq_rel); }

  Rank budget_;
  const std::uint64_t low_;
  Atomic<std::uint64_t> debt_{0}, wanted_{0};
  Atomic<bool> limitless_{false}, relieved_{false}, given_{false};
};

using Room = BasicRoom<StdAtomics>;

}  // namespace kasane::mem
