// SPDX-License-Identifier: Apache-2.0
// The DRAM of a host, shared by its ranks: how many blocks each rank may fill.
//
//   total ──┬── free, in shared memory: granted to no rank
//           ├── held by rank 0 ──┬── used: owned pages, cached copies, twins, page tables, stacks …
//           │                    └── credit: granted, not used; only here do charges and discharges meet
//           └── held by rank 1 ── …
//
// A rank takes from free in batches, and gives back when it has more than two batches to spare.
//
// **Fair shares.** Any rank may take free blocks. When there are none, a rank below its share (total / ranks)
// asks. From then on no rank above its share takes, and each such rank gives what is asked for until it is
// down to its share: first its credit, then what it evicts. If no rank is above its share, the shares add up
// to the total; so an ask within a share is always met in the end. mem/room.h says which thread asks, and
// until when.
//
// **Idle ranks.** A rank whose threads do nothing says so. Its share is then the floor, and the other ranks
// share the rest equally. It gives way down to the floor, and gets its own share back by asking.
//
// Nothing here blocks, sleeps or sends messages: the answers say what the caller has to do.
//
// Thread safety: any thread of a rank, fault handlers too; ask() by one thread. Ranks meet only in
// HostBudget.
// Invariants: used + credit <= held, and free + the sum of held <= total, at every moment; equal when no call
// is under way. So the total is never exceeded.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "base/atomics.h"
#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

/// What the blocks of DRAM are used for.
enum class BudgetUse : std::uint8_t { owned, cached, twins, page_tables, entries, stacks };
inline constexpr std::size_t kBudgetUses = 6;

/// A measurement of a use that is presumed at first: the blocks charged until then, and the blocks that it
/// found.
struct Measured {
  std::uint64_t charged, now;
};

/// none: there are too few. had: they were this rank's credit. taken: the rank took them from free; it holds
/// more than before, so other ranks may have a claim on some.
enum class [[nodiscard]] Charge : std::uint8_t { none, had, taken };

/// none: nothing was asked for, or this rank has its share and must discharge something. free: there are as
/// many, so charge them. others: other ranks have to give some; ring them.
enum class [[nodiscard]] Ask : std::uint8_t { none, free, others };

/// In memory that all ranks of a host map: bytes(ranks), aligned to 64.
template <class Atomics>
struct BasicHostBudget {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

  struct alignas(64) Slot {
    Atomic<std::uint64_t> held{0};   // blocks; changed by its rank
    Atomic<std::uint64_t> asked{0};  // blocks that the rank lacks, within its share
  };

  /// By one rank, before the others use it. lowest: blocks with which a rank can still run.
  BasicHostBudget(std::uint64_t blocks, std::uint32_t of_ranks, std::uint64_t lowest = 0) noexcept
      : total(blocks),
        ranks(of_ranks),
        floor(std::min(blocks / of_ranks, std::max(lowest, blocks / of_ranks / 8))),
        free(blocks) {
    for (std::uint32_t r = 0; r < ranks; ++r) new (&slot(r)) Slot;
  }
  [[nodiscard]] static constexpr std::size_t bytes(std::uint32_t of_ranks) noexcept {
    return sizeof(BasicHostBudget) + of_ranks * sizeof(Slot);
  }
  [[nodiscard]] Slot& slot(std::uint32_t rank) noexcept { return reinterpret_cast<Slot*>(this + 1)[rank]; }

  const std::uint64_t total;  // blocks
  const std::uint32_t ranks;
  const std::uint64_t floor;        // blocks: the share of an idle rank
  Atomic<std::uint32_t> asking{0};  // slots whose asked is not 0
  Atomic<std::uint32_t> idle{0};    // ranks
  alignas(64) Atomic<std::uint64_t> free;
};

template <class Atomics>
class BasicBudget {
 public:
  using Host = BasicHostBudget<Atomics>;

  /// rank: its number on the host. batch: blocks taken from the host at once; 0: a 64th of the share, 1 to
  /// 1024.
  BasicBudget(Host& host, std::uint32_t rank, std::uint64_t batch = 0) noexcept
      : host_(host),
        slot_(host.slot(rank)),
        batch_(batch != 0 ? batch : std::clamp<std::uint64_t>(fair() / 64, 1, 1024)) {}

  /// Before blocks are filled.
  Charge charge(BudgetUse use, std::uint64_t blocks) noexcept {
    Charge how = Charge::had;
    for (std::uint64_t missing; (missing = spend(blocks)) != 0; how = Charge::taken) {
      if (!take(missing)) return Charge::none;
    }
    add(used_[static_cast<std::size_t>(use)], blocks);
    return how;
  }

  /// As many of the blocks as there are.
  [[nodiscard]] std::uint64_t charge_part(BudgetUse use, std::uint64_t blocks) noexcept {
    std::uint64_t got = 0;
    for (std::uint64_t credit = credit_.load(std::memory_order_relaxed); got != blocks;) {
      const std::uint64_t more = std::min(credit, blocks - got);
      if (more == 0 && !take(1)) break;
      if (more == 0)
        credit = credit_.load(std::memory_order_relaxed);
      else if (credit_.compare_exchange_strong(credit, credit - more, std::memory_order_relaxed,
                                               std::memory_order_relaxed))
        got += more, credit -= more;
    }
    if (got != 0) add(used_[static_cast<std::size_t>(use)], got);
    return got;
  }

  /// After blocks have been emptied (punched or unmapped). True: some went to a rank that asks; ring the
  /// other ranks.
  bool discharge(BudgetUse use, std::uint64_t blocks) noexcept {
    add(used_[static_cast<std::size_t>(use)], 0 - blocks);
    credit_.fetch_add(blocks, std::memory_order_relaxed);  // relaxed: see spend()
    return trim();
  }

  /// Gives other ranks the unused blocks that they ask for, or those beyond two batches unless this rank asks
  /// itself. True: as discharge().
  bool trim() noexcept {
    std::uint64_t credit = credit_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t due = due_to_others();
      const std::uint64_t give = due != 0                         ? std::min(credit, due)
                                 : credit > 2 * batch_ && !asks() ? credit - batch_
                                                                  : 0;
      if (give == 0) return false;
      if (!credit_.compare_exchange_strong(credit, credit - give, std::memory_order_relaxed,
                                           std::memory_order_relaxed))
        continue;
      slot_.held.fetch_add(0 - give, std::memory_order_relaxed);
      host_.free.fetch_add(give, std::memory_order_seq_cst);  // seq_cst: see ask()
      return host_.asking.load(std::memory_order_seq_cst) != 0;
    }
  }

  /// By one thread of the rank, which lacks `must` blocks and would like `may` more. From now on, and until
  /// the next ask(), the other ranks give all of them; or only the `must`, or none, where the rank would hold
  /// more than its share.
  Ask ask(std::uint64_t must, std::uint64_t may) noexcept {
    const std::uint64_t room = share() - std::min(share(), held()),
                        credit = credit_.load(std::memory_order_relaxed);
    std::uint64_t asked = 0;
    for (const std::uint64_t short_of : {must, must + may}) {
      if (const std::uint64_t missing = short_of - std::min(short_of, credit); missing <= room)
        asked = missing;
    }
    const std::uint64_t before = slot_.asked.load(std::memory_order_relaxed);
    if (asked != before) slot_.asked.store(asked, std::memory_order_relaxed);
    if (asked == 0) {
      if (before != 0) host_.asking.fetch_add(~std::uint32_t{0}, std::memory_order_relaxed);
      return Ask::none;
    }
    // seq_cst with free: a giver reads `asking` after it has added to free; an asker reads free after it has
    // added to `asking`. So one of them sees the other.
    if (before == 0) host_.asking.fetch_add(1, std::memory_order_seq_cst);
    return host_.free.load(std::memory_order_seq_cst) < asked ? Ask::others : Ask::free;
  }

  [[nodiscard]] bool asks() const noexcept { return slot_.asked.load(std::memory_order_relaxed) != 0; }

  /// Blocks that should be evicted now: those that other ranks lack, or those missing for `headroom` blocks
  /// to be available.
  [[nodiscard]] std::uint64_t to_evict(std::uint64_t headroom) noexcept {
    const std::uint64_t due = due_to_others(), ready = available();
    return std::max(due, headroom - std::min(headroom, ready));
  }

  /// Blocks that could be charged now.
  [[nodiscard]] std::uint64_t available() noexcept {
    const std::uint64_t free = host_.free.load(std::memory_order_relaxed),
                        mine = share() - std::min(share(), held());
    return credit_.load(std::memory_order_relaxed) + (others_ask() ? std::min(free, mine) : free);
  }

  [[nodiscard]] std::uint64_t used(BudgetUse use) const noexcept {
    return used_[static_cast<std::size_t>(use)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t held() const noexcept { return slot_.held.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t credit() const noexcept { return credit_.load(std::memory_order_relaxed); }
  /// Each rank's share while no rank is idle.
  [[nodiscard]] std::uint64_t fair() const noexcept { return host_.total / host_.ranks; }
  /// This rank's share now.
  [[nodiscard]] std::uint64_t share() const noexcept {
    const std::uint32_t idle = host_.idle.load(std::memory_order_relaxed);
    if (idle == 0) [[likely]]
      return fair();
    if (idle_.load(std::memory_order_relaxed)) return host_.floor;
    return fair() + idle * (fair() - host_.floor) / std::max(host_.ranks - std::min(idle, host_.ranks), 1u);
  }
  /// Called by one thread of the rank. True: the state changed.
  bool set_idle(bool idle) noexcept {
    if (idle_.load(std::memory_order_relaxed) == idle) return false;
    idle_.store(idle, std::memory_order_relaxed);
    host_.idle.fetch_add(idle ? 1 : ~std::uint32_t{0}, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool idle() const noexcept { return idle_.load(std::memory_order_relaxed); }

  /// Blocks that are missing for `headroom` to be available, as far as the rank holds less than its share:
  /// other ranks give them once it asks.
  [[nodiscard]] std::uint64_t rightful(std::uint64_t headroom) noexcept {
    return std::min(headroom - std::min(headroom, available()), share() - std::min(share(), held()));
  }

 private:
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

  // relaxed, here and where no other order is named: these are numbers. The protocol that emptied a block
  // orders its contents, not its charge.
  static void add(Atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);
  }

  // 0: spent. Else the number of blocks that are missing.
  std::uint64_t spend(std::uint64_t blocks) noexcept {
    std::uint64_t credit = credit_.load(std::memory_order_relaxed);
    while (credit >= blocks) {
      if (credit_.compare_exchange_strong(credit, credit - blocks, std::memory_order_relaxed,
                                          std::memory_order_relaxed))
        return 0;
    }
    return blocks - credit;
  }

  // Takes a batch from the host, at least `least`; leaves what is above this rank's share to ranks that ask.
  bool take(std::uint64_t least) noexcept {
    const std::uint64_t mine = share() - std::min(share(), held());
    std::uint64_t most = std::max(least, batch_);
    if (others_ask()) {
      if (least > mine) return false;
      most = std::min(most, mine);
    }
    std::uint64_t free = host_.free.load(std::memory_order_seq_cst);  // seq_cst: see ask()
    while (free >= least) {
      const std::uint64_t got = std::min(free, most);
      if (!host_.free.compare_exchange_strong(free, free - got, std::memory_order_relaxed,
                                              std::memory_order_relaxed))
        continue;
      slot_.held.fetch_add(got, std::memory_order_relaxed);
      credit_.fetch_add(got, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  [[nodiscard]] bool others_ask() noexcept {
    const std::uint32_t asking = host_.asking.load(std::memory_order_seq_cst);  // seq_cst: see ask()
    return asking > 1 || (asking == 1 && !asks());
  }

  // What other ranks ask for and have not got yet, as far as this rank is above its share.
  [[nodiscard]] std::uint64_t due_to_others() noexcept {
    if (!others_ask()) return 0;
    const std::uint64_t above = held() - std::min(held(), share());
    std::uint64_t asked = 0;
    for (std::uint32_t r = 0; above != 0 && r < host_.ranks; ++r)
      asked += &host_.slot(r) != &slot_ ? host_.slot(r).asked.load(std::memory_order_relaxed) : 0;
    const std::uint64_t free = host_.free.load(std::memory_order_relaxed);
    return std::min(above, asked - std::min(asked, free));
  }

  Host& host_;
  typename Host::Slot& slot_;
  const std::uint64_t batch_;
  alignas(64) Atomic<std::uint64_t> credit_{0};
  Atomic<bool> idle_{false};
  std::array<Atomic<std::uint64_t>, kBudgetUses> used_{};
};

using HostBudget = BasicHostBudget<StdAtomics>;
using Budget = BasicBudget<StdAtomics>;

/// What a rank needs beside its share of the budget, if the program allocates nothing outside global memory
/// (docs/guide/memory.md).
inline constexpr std::uint64_t kSlackBytes = 12u << 20;

/// The budget of a host that was given none, in bytes: three quarters of the machine's memory, or of the
/// limit of this process's control groups (group); of a group's limit at most what leaves each rank its
/// slack.
[[nodiscard]] std::uint64_t default_budget(std::uint64_t machine, std::optional<std::uint64_t> group,
                                           std::uint32_t ranks) noexcept;

/// The budget of a host in blocks: asked_bytes, or default_budget() where that is 0. Errc::invalid_argument,
/// with the size needed, where each rank could not hold `least_bytes` (what it pins).
Result<std::uint64_t> budget_blocks(std::uint64_t asked_bytes, std::uint32_t ranks,
                                    std::uint64_t least_bytes);

/// Memory of the machine, in bytes.
[[nodiscard]] std::uint64_t machine_memory() noexcept;

}  // namespace kasane::mem
