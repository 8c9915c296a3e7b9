// SPDX-License-Identifier: Apache-2.0
// Which of a rank's workers search and which sleep, and how a push finds out without a fence
// (docs/design/sched.md, "Idling").
//
// One word: sleepers 15 | pushes order themselves 1 | searching 16 | waking 1. A push wakes a worker only if
// some worker sleeps, none searches, and no wake-up is in progress. So a burst of pushes costs one system
// call, and wake-ups spread from the woken worker to the next.
//
// Invariant (no wake-up is lost): if an item is visible to all and no worker is about to take it, then a
// worker searches, or a wake-up is in progress, or no worker sleeps. Let push P make its item visible and
// then read the word:
// - P sees no sleeper. A worker that announces itself later runs a membarrier between the announcement and
//   its last look. If P's read came after the barrier it would have seen the announcement. So the read came
//   before, P's item was stored before, and the last look finds it.
// - P sees a searcher, and wakes no worker. Either the searcher finds P's item. Or it finds another item and
//   is the last searcher: then it wakes a sleeper in its place (found()), which searches. Or it finds
//   nothing: then it announces itself and looks again after a membarrier, and P's item was stored before it.
//   By induction over these cases the item is taken, or every worker works, and a worker looks again when it
//   is done.
// - P sees a wake-up in progress. The waker rings after it has set the bit. Every sleeper counted then has
//   read the doorbell before it announced itself, so at least one wakes (or does not fall asleep). That
//   worker clears the bit when it becomes a searcher: the case before.
//
// Without membarrier (old kernel, seccomp) pushes read the word by a read-modify-write instead. It comes
// before the announcement, and then the sleeper's last look sees the item, or it comes after, and the push
// sees the sleeper.
//
// Thread safety: all of it from any thread, except that sleep() and searching belong to workers.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/ids.h"
#include "ult/pool.h"

namespace kasane::ult {

/// The OtherRanks of a job of one rank: an event count on a futex.
class FutexDoorbell final : public OtherRanks {
 public:
  std::uint32_t activity() override;
  void sleep(std::uint32_t seen, std::int64_t timeout_ns) override;
  /// An event; wakes all sleepers.
  void ring(Rank) override;
  /// An event; wakes one sleeper.
  void ring_one();

 private:
  std::atomic<std::uint32_t> events_{0};
};

class IdleWorkers {
 public:
  /// several: other ranks' pushes must be covered too.
  IdleWorkers(Rank own, bool several, OtherRanks* other_ranks);

  /// After an item has been made visible: should wake() be called? One relaxed load (see the invariant).
  [[nodiscard]] bool wanted() noexcept {
    const std::uint64_t word = hint();
    // acq_rel, an exchange with the announcement: either the announcement comes later and the sleeper's last
    // look sees the item, or this read sees the announcement.
    if (word & kOrderedPushes) [[unlikely]]
      return is_wanted(word_.fetch_add(0, std::memory_order_acq_rel));
    return is_wanted(word);
  }
  /// A coarser and cheaper wanted(): not 0 where wanted() may say yes.
  [[nodiscard]] std::uint64_t perhaps_wanted() const noexcept {
    return hint() & (kSleepers | kOrderedPushes);
  }
  [[gnu::noinline]] void wake();
  /// Wakes all workers: something other than a push happened (the root's exit, stop).
  void wake_all() { other_ranks_->ring(own_); }

  /// The number of workers that sleep, for statistics and for the sharing of unused memory. relaxed: a
  /// number.
  [[nodiscard]] std::uint32_t sleepers() const noexcept {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed) & kSleepers);
  }

  // seq_cst: in one order with the other transitions of the word.
  void start_search() noexcept { word_.fetch_add(kSearching, std::memory_order_seq_cst); }
  /// The searcher found work (or gives up for another reason than sleep).
  void found();
  static constexpr std::int64_t kForever = -1;
  /// A searcher goes to sleep for as long as last_look() says, ns (0: it has found something); a searcher
  /// again afterwards.
  template <class LastLook>
  void sleep(std::uint32_t worker, LastLook&& last_look) {
    const std::uint32_t seen = other_ranks_->activity();
    // seq_cst: in one order with the other transitions of the word.
    word_.fetch_add(kSleeper - kSearching, std::memory_order_seq_cst);
    other_ranks_->announce_idle(worker);
    barrier();
    if (const std::int64_t limit = last_look(); limit != 0) other_ranks_->sleep(seen, limit);
    other_ranks_->forget_idle(worker);
    search_again();
  }

  [[nodiscard]] OtherRanks& other_ranks() noexcept { return *other_ranks_; }

 private:
  static constexpr std::uint64_t kSleeper = 1, kOrderedPushes = 1u << 15, kSearching = 1u << 16,
                                 kWaking = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kSleepers = kOrderedPushes - 1;
  /// Sleepers, no searcher, not waking: a value in [1, 2^15), but for the one bit.
  static bool is_wanted(std::uint64_t word) noexcept { return (word & ~kOrderedPushes) - 1 < kSleepers; }
  [[nodiscard]] std::uint64_t hint() const noexcept {
    // The compiler must not read the word before the item is stored; the processor may, which is what the
    // membarrier is for.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return word_.load(std::memory_order_relaxed);
  }
  void barrier() noexcept;
  void search_again() noexcept;

  alignas(64) std::atomic<std::uint64_t> word_{0};
  bool several_;
  Rank own_;
  OtherRanks* other_ranks_;
  FutexDoorbell own_doorbell_;
};

}  // namespace kasane::ult
