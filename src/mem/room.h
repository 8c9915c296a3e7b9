// SPDX-License-Identifier: Apache-2.0
// The room of a rank: what its threads fill, owe and wait for, and what the rank therefore asks of others.
//
//   thread that waits   admitted(n)? ── no ──▶ want(n) ──ring──▶┐                                ┌──▶ ask of the rank, in HostBudget: owed + needed, else none
//                            └─ yes, at last ▶ note_relieved() ─▶┤                                ├──▶ others are rung: they owe some of it, or got something
//   thread that fills   charge(n): never fails, may owe ──ring──▶├─▶ keeper: take_need, balance() ┤
//   thread that empties pay(n): what is owed first ─────────ring─▶┘                                └──▶ less than `low` left, or others are owed some: lets pages go
//
// **One thread asks**, the keeper, and it looks anew each time it is rung: so an ask ends when nothing is owed and nobody waits, whoever brought that about; who changes what the ask depends on
// only has to ring. An ask that stayed would keep every other rank to its share, whatever is free.
//
// Nothing here blocks, sleeps or rings: answers say who is to be rung. The table is in docs/design/tiers.md, "Who asks, and who is rung"; tests/model/room_test.cpp walks it, access by access.
//
// Thread safety: any thread of the rank, fault handlers too; what is said to be the keeper's, by one.
// Invariant: frames that have been charged and not paid for = used of the budget + owed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mem/budget.h"

namespace kasane::mem {

/// What threads of the rank wait for, as the keeper knows it.
struct Need {
  std::uint64_t blocks = 0;

  /// It is rung. wanted: since it was rung before. relieved: somebody got his room meanwhile; who still waits wants his again. forgotten: nobody has wanted any for long: faults that were put
  /// off, and whose pages came otherwise.
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
  BasicRoom(Host& host, std::uint32_t rank, std::uint64_t low, std::uint64_t batch = 0) noexcept : budget_(host, rank, batch), low_(low) {}

  // ---- any thread; true, where it is not said otherwise: the keeper is to be rung ----

  /// May so many blocks be filled? False: want() them, and look again.
  [[nodiscard]] bool admitted(std::uint64_t blocks) noexcept {
    return limitless() || (debt() == 0 && (budget_.credit() >= blocks || budget_.available() >= blocks));
  }
  /// Again and again while one waits: it is noted once.
  [[nodiscard]] bool want(std::uint64_t blocks) noexcept {
    std::uint64_t wanted = wanted_.load(std::memory_order_relaxed);
    while (wanted < blocks) {
      if (wanted_.compare_exchange_strong(wanted, blocks, std::memory_order_relaxed, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  /// Who waited is admitted, whoever made the room; he will not want it any more. Always to be rung.
  void note_relieved() noexcept { relieved_.store(true, std::memory_order_relaxed); }
  /// Blocks that are filled whatever comes of it: what the budget has not got is owed.
  [[nodiscard]] bool charge(BudgetUse use, std::uint64_t blocks) noexcept {
    const Charge how = budget_.charge(use, blocks);
    if (how == Charge::none) {
      debt_.fetch_add(blocks, std::memory_order_relaxed);
      return true;
    }
    // Who takes while another one asks may owe it what he took: the ring of that one may have come before.
    return (how == Charge::taken || budget_.credit() < low_) && short_of(low_) != 0;
  }
  /// Blocks that were emptied.
  [[nodiscard]] bool pay(BudgetUse use, std::uint64_t blocks) noexcept {
    const Settled settled = settle(blocks);
    const bool given = blocks > settled.paid && note_given(budget_.discharge(use, blocks - settled.paid));
    return given || settled.all;
  }
  /// Blocks that should leave, so that as many as `headroom` can be filled.
  [[nodiscard]] std::uint64_t short_of(std::uint64_t headroom) noexcept { return limitless() ? 0 : debt() + budget_.to_evict(headroom); }
  /// There is nowhere to go, and nobody asked for a limit.
  void lift_limit() noexcept { limitless_.store(true, std::memory_order_relaxed); }
  // relaxed, here and wherever else none is named: numbers. The bell orders what was noted before it was rung.
  [[nodiscard]] bool limitless() const noexcept { return limitless_.load(std::memory_order_relaxed); }

  // ---- the keeper ----

  /// First this, then take_wanted(): so what is wanted by somebody who has been relieved is taken before, or with it.
  [[nodiscard]] bool take_relieved() noexcept { return relieved_.exchange(false, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t take_wanted() noexcept { return wanted_.exchange(0, std::memory_order_relaxed); }

  /// Pays what is owed as far as there is something, asks others for the rest and for what is needed, or ends the ask; gives others what is owed to them. When it was rung, and when something has
  /// left. True: ring the others.
  [[nodiscard]] bool balance(std::uint64_t needed) noexcept {
    bool tell = given_.exchange(false, std::memory_order_acq_rel);   // acquire, release: as note_given() says
    for (;;) {
      tell |= pay_debt();
      const std::uint64_t debt = limitless() ? 0 : this->debt();
      const Ask ask = budget_.ask(debt, limitless() ? 0 : needed);
      tell |= ask == Ask::others;
      if (debt == 0 || ask != Ask::free) break;   // who gave before the ask was seen rings nobody. What is needed stays where it is: who waits takes it
    }
    return budget_.trim() || tell;
  }

  /// It asks, or owes: whoever could give, or pay, may not have been able to when it was rung, and is not rung when it is. So the keeper looks again after a while.
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
    bool all;   ///< nothing is owed any more: the ask may be over
  };

  /// Takes off what is owed.
  Settled settle(std::uint64_t blocks) noexcept {
    std::uint64_t debt = this->debt(), paid = 0;
    do {
      if (debt == 0) return {0, false};
      paid = std::min(debt, blocks);
    } while (!debt_.compare_exchange_strong(debt, debt - paid, std::memory_order_relaxed, std::memory_order_relaxed));
    return {paid, paid == debt};
  }
  /// True: some went to a rank that asks.
  bool pay_debt() noexcept {
    const std::uint64_t debt = this->debt(), got = debt == 0 ? 0 : budget_.charge_part(BudgetUse::owned, debt);
    if (got == 0) return false;
    const std::uint64_t paid = settle(got).paid;   // others may have paid some of it meanwhile
    return paid != got && budget_.discharge(BudgetUse::owned, got - paid);
  }
  /// True: for the first time since the others were rung. acquire, release: who is rung sees what was given.
  bool note_given(bool given) noexcept { return given && !given_.exchange(true, std::memory_order_acq_rel); }

  Rank budget_;
  const std::uint64_t low_;
  Atomic<std::uint64_t> debt_{0}, wanted_{0};
  Atomic<bool> limitless_{false}, relieved_{false}, given_{false};
};

using Room = BasicRoom<StdAtomics>;

}  // namespace kasane::mem
