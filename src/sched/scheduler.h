// SPDX-License-Identifier: Apache-2.0
// What a rank's workers do beyond their rank: steal continuations from other ranks, tell them that this rank
// is idle, wake them when this rank has work. The pool (ult) calls it. It moves stacks and fences through
// interfaces, so it depends neither on dsm nor on how pages move.
//
//   idle worker ── steal ──► deque of another rank            sched/steal.h
//               ── take_over ──► a thread in the own ready list that came from another rank
//               ── nudge ───► kRequestPending in the idle-ranks word of the rank that is asked, whose workers
//                             answer() at their next fork
//               ── announce_idle ──► idle-ranks word of every rank
//   pushing worker ── wake_idle_rank ──► clears a bit of its own idle-ranks word, rings that rank's doorbell
//
// docs/design/sched.md, "Idling", says why no wake-up is lost across ranks, and where one may be late. A
// thief that succeeds also wakes an idle rank: two pushers may have rung the same rank.
//
// Thread safety: every call from any worker of the rank, at the same time.
// Invariants: at most one worker of a rank is in a remote theft; a slot returned by steal() has been claimed,
// adopted and fenced.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "comm/transport.h"
#include "sched/idle_bits.h"
#include "sched/nap_wait.h"
#include "sched/steal.h"
#include "sched/victims.h"
#include "ult/edges.h"
#include "ult/layout.h"
#include "ult/lazy.h"
#include "ult/pool.h"

namespace kasane::sched {

class Scheduler final : public ult::OtherRanks {
 public:
  /// The first and the longest nap where a wake-up could be late. Where arrivals do not ring, a look is not
  /// cheap: the rank that is looked at takes short naps for a while.
  static constexpr std::int64_t kFirstNapNs = 1'000'000, kLongestNapNs = 64'000'000,
                                kLongestUnrungNapNs = 1'024'000'000;

  /// All but config outlive it; config.other_ranks is not used. from_here: how far each rank is. seed: of the
  /// victims' order, so that a run can be varied and repeated.
  Scheduler(comm::Transport&, ult::Words&, ult::Edges&, ult::StackMover&, const ult::Config& config,
            std::span<const Distance> from_here, std::uint64_t seed = 1);

  SlotId steal(std::uint32_t worker) override;
  void take_over(SlotId, Rank last) override;
  bool work_elsewhere(std::uint32_t worker) override;
  void announce_idle(std::uint32_t worker) override;
  void forget_idle(std::uint32_t worker) override;
  void wake_idle_rank() override;
  void answer() override;
  void ring(Rank) override;
  void wake_os_thread(Rank, SlotId) override;
  [[nodiscard]] bool all_work_at(Rank) override;
  void progress() override { transport_.progress(); }
  std::uint32_t activity() override;
  /// Tells the workers of rank `to` that a request was sent there (comm::Transport::set_nudge).
  void nudge(Rank to);
  void sleep(std::uint32_t seen, std::int64_t timeout_ns) override;

 private:
  static constexpr std::int64_t kFirstBackoffNs = 500, kLongestBackoffNs = 16'000;
  /// Deques of ranks that are not mapped here, which one last look asks: of all in turn, look by look.
  static constexpr std::uint32_t kMostLooks = 16;
  /// How long a thread stays in the ready list of a rank at work before other ranks bring it to theirs.
  static constexpr std::uint64_t kLeftAloneNs = 50'000;

  struct Look {
    std::uint64_t top, bottom;
  };
  /// The lines of a deque that a look reads.
  struct DequeEnds {
    static constexpr std::size_t kApart = (Deque<>::kBottomOffset - Deque<>::kTopOffset) / sizeof(ult::Word);
    ult::Word words[kApart + 1];
    [[nodiscard]] Look look() const noexcept { return {words[0], words[kApart]}; }
  };
  struct alignas(64) WorkerState {
    std::uint64_t random;
  };

  static void on_wake(void* self, const comm::Message&) noexcept;
  SlotId steal_anywhere(std::uint32_t worker);
  SlotId steal_from_rank(std::uint32_t worker, Rank victim);
  SlotId steal_from(std::uint32_t worker, Rank victim, std::uint32_t deque);
  /// What another rank's ready list has for this rank to bring: nothing; something, perhaps soon; now.
  enum class Waiting : std::uint8_t { none, soon, now };
  Waiting waiting_at(Rank victim);
  void bring_ready(std::uint32_t worker, Rank victim);
  [[nodiscard]] Rank rank_of(SlotId);
  [[nodiscard]] std::uint64_t top_of(std::uint32_t deque) const noexcept;
  [[nodiscard]] std::uint64_t bottom_of(std::uint32_t deque) const noexcept;
  [[nodiscard]] Look look(Rank victim, std::uint32_t deque);
  /// Goes through a theft; true if the thread is ours and may be resumed.
  Steal carry_out(Theft&, Rank victim, std::uint32_t deque);
  /// Tells a worker there that this rank wants work, or has sent a request.
  void want_of(Rank victim, std::uint32_t worker, ult::Word who = ult::LazyWorker::kHungry);
  /// Performs one step of a theft; result2 is the second result of a look.
  std::uint64_t perform(const TheftStep&, Rank victim, std::uint32_t deque, std::uint64_t& result2);
  void back_off(bool succeeded);
  /// sleep() in naps (sched/nap_wait.h).
  void watch(std::uint32_t seen, std::int64_t timeout_ns);

  bool work_far_away();
  void set_idle_bits();
  void clear_idle_bits();
  void change_idle_bits(bool idle);
  [[nodiscard]] std::uint32_t pick(std::uint32_t worker, std::uint32_t n) noexcept;
  void count_for(std::uint32_t worker, std::atomic<std::uint64_t> Counters::* counter,
                 std::uint64_t n = 1) noexcept;

  comm::Transport& transport_;
  ult::Words& words_;
  ult::Edges& edges_;
  ult::StackMover& mover_;
  const ult::Config config_;
  const ult::Layout layout_;
  const IdleBits idle_bits_;
  bool naps_;  ///< a wake-up could slip through
  Naps nap_lengths_;
  std::vector<WorkerState> workers_;
  /// What was seen of each rank: how often its workers had taken its ready list, and since when that is so;
  /// since 0: the list was empty. relaxed: hints
  struct Seen {
    std::atomic<std::uint64_t> taken{0}, since_ns{0};
  };
  std::vector<Seen> seen_;

  // Only the holder of thief_ touches victims_ and backoff_ns_.
  Victims victims_;
  std::int64_t backoff_ns_ = kFirstBackoffNs;

  alignas(64) std::atomic<bool> thief_{false};
  std::atomic<std::uint64_t> next_round_ns_{0};
  alignas(64) std::atomic<std::uint32_t> announced_{0};
  std::atomic<std::uint32_t> wake_turn_{0}, look_turn_{0};
  std::atomic<bool> watched_{false};  ///< one of the sleeping workers is the watcher
};

}  // namespace kasane::sched
