// SPDX-License-Identifier: Apache-2.0
// A simulated cluster for kasane bench scale: the shipping sched, gas, dsm, collectives and the protocols of
// sync records, one of each a rank, over the simulator's times. A worker (a scripted thread) a rank does what
// ult's worker does around them: its deque, ready list, search and sleep; a service thread answers requests.
// What runs on it is a script, not a stack: it says what it computes (a time), loads, stores and waits for.
//
// Thread safety: none (as the simulator).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deque.h"
#include "base/random.h"
#include "comm/collectives/collectives.h"
#include "scale/stage.h"
#include "sched/scheduler.h"
#include "sched/words.h"
#include "support/sim_rank.h"
#include "ult/controls.h"
#include "ult/sync_record_step.h"

namespace kasane::scale {

class Cluster;
class Member;

/// Where the time of a rank went, ns.
struct Parts {
  std::uint64_t compute = 0, misses = 0, transfers = 0, fences = 0, steals = 0, locks = 0, idle = 0;
};

/// How often a mutex was taken, and how long it was waited for.
struct LockLoad {
  SyncName name;
  std::uint64_t taken = 0, wait_ns = 0;
};

/// One rank.
class Member final : public Actor, public ult::Edges, public ult::StackMover {
 public:
  Member(Cluster&, Rank);
  ~Member() override = default;

  // ---- what a script's thread does; on the rank's worker ----
  void compute(std::uint64_t ns) override;
  void read(std::uint64_t offset, std::size_t bytes) override;
  void write(std::uint64_t offset, std::size_t bytes) override;
  void wait(SyncName barrier);
  void meet() override;
  void lock(SyncName mutex) override;
  void unlock(SyncName mutex) override;
  void get(std::uint64_t offset, std::size_t bytes) override;
  void put(std::uint64_t offset, std::size_t bytes) override;
  void add(std::uint64_t offset) override;
  void allreduce(std::size_t doubles) override;
  void barrier_of_collectives() override { collectives->barrier(); }
  void release_all() { release(Account::fence_others); }
  void acquire_noticed() { acquire(Account::fence_others); }
  /// The page moves to this rank.
  void own(std::uint64_t offset);
  /// Until the other end of a fork and join has ended.
  void run_root(const ForkJoin&, const Node&);
  void work(const ForkJoin&);

  [[nodiscard]] Rank rank() const noexcept override { return me_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override;
  [[nodiscard]] Parts parts() const noexcept;
  [[nodiscard]] std::uint64_t random(std::uint64_t bound) override { return random_.below(bound); }
  void new_mutex(std::uint32_t index);
  void new_barrier(std::uint32_t index, std::uint32_t n);
  void arrive(SyncName barrier);
  void climb(std::uint32_t apart, std::uint32_t level);

  test::SimRank sim;
  Counters counters, service_counters;
  dsm::ThreadContext context, service_context;
  std::unique_ptr<comm::Collectives> collectives;

 private:
  friend class Cluster;
  struct Task;

  // ult::Edges
  std::uint32_t cross(Rank source, Account, ult::ReleaseMark) override;
  void ask_release(Rank source) override;
  void release(Account) override;
  void acquire(Account) override;
  // ult::StackMover
  void adopt(StackId, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank from) override;
  void surrender(StackId) override;
  void reclaim(StackId) override;

  void serve();
  SlotId allocate();
  void free(SlotId);
  void push(SlotId);
  void make_ready(SlotId, Rank);
  SlotId take_ready();
  SlotId look_around();
  bool something_to_do();
  SlotId search(bool (*stop)(void*), void* argument);
  SlotId next_thread(bool (*stop)(void*), void* argument);
  void wait_for_own_slot(Account);
  template <class Machine>
  ult::Word run(SyncName, Machine);
  ult::Word perform(SyncName, const ult::SyncStep&);
  SlotId step(const ForkJoin&, SlotId);
  [[nodiscard]] std::uint64_t frame_of(SlotId) const noexcept;

  Cluster& cluster_;
  Rank me_;
  ult::Layout layout_;
  std::byte* region_;
  sched::RegionWords words_;
  ult::Controls controls_;
  Deque<>* deque_;
  ult::Config config_;
  std::optional<sched::Scheduler> scheduler_;
  std::vector<SlotId> free_;
  std::uint32_t never_used_ = 0;
  SlotId own_ = kNoSlot;  ///< of the script's thread that stays here
  Random random_;
  std::uint64_t compute_ns_ = 0, transfer_ns_ = 0;
  std::uint64_t idle_since_ns_ = 0;  ///< 0: it has work
  std::vector<std::byte> buffer_;
  std::uint8_t fill_ = 0;
};

struct ClusterOptions {
  std::uint32_t ranks = 2;
  comm::sim::Timing timing = comm::sim::Timing::rdma();
  std::uint64_t heap_bytes = 0;
  std::uint64_t page_bytes = mem::kPageBytes;
  std::uint64_t seed = 1;
  Rank slow = kNoRank;  ///< computes half as fast as the others
  Rank dies = kNoRank;  ///< at dies_ns of the run; who is told first ends the job, as the runtime does
  std::uint64_t dies_ns = 0;
};

class Cluster final : public Stage {
 public:
  static constexpr std::uint32_t kSlots = 128;  ///< threads of a rank
  static constexpr std::size_t kStackBytes = 64 * 1024;
  /// Control blocks know addresses: stacks as if they lay here.
  static constexpr std::uintptr_t kStacksAt = std::uintptr_t{1} << 44;

  explicit Cluster(const ClusterOptions&);
  ~Cluster() override;

  void place(std::uint64_t offset, std::uint64_t bytes,
             const std::function<Rank(std::uint64_t page)>& owner) override {
    const PageId first = pages_.page_of(offset);
    members_.front()->sim.directory->name_fresh(members_.front()->context.io, first,
                                                (bytes + options_.page_bytes - 1) / options_.page_bytes,
                                                [&](PageId page) { return owner(raw(page) - raw(first)); });
  }
  void make_mutex(SyncName name) override { members_[raw(name.rank)]->new_mutex(name.index); }
  [[nodiscard]] std::uint64_t heap() const noexcept override { return heap_offset_; }
  Result<void> play(const std::function<void(Actor&)>& body) override { return run_team(body); }
  Result<void> run_team(const std::function<void(Member&)>& body);
  Result<std::uint64_t> play_tree(const ForkJoin&, const Node& root) override;

  [[nodiscard]] std::uint32_t ranks() const noexcept override { return options_.ranks; }
  [[nodiscard]] Member& member(std::uint32_t r) noexcept { return *members_[r]; }
  /// A rank has died, and the job was ended.
  [[nodiscard]] bool ended_by_death() const noexcept { return dead_; }
  [[nodiscard]] std::uint64_t elapsed_ns() const noexcept { return elapsed_ns_; }
  [[nodiscard]] std::uint32_t longest_chain() const noexcept { return chain_; }
  /// Of the mutex that was waited for longest. taken = 0: none was taken.
  [[nodiscard]] LockLoad most_waited_for() const;
  /// Since the run began.
  [[nodiscard]] comm::sim::Traffic traffic(std::uint32_t rank) const noexcept;

  comm::sim::World world;

 private:
  friend class Member;
  void begin();
  void end();

  ClusterOptions options_;
  std::uint64_t heap_offset_, space_bytes_;
  mem::Pages pages_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<comm::sim::Traffic> before_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, LockLoad> locks_;  ///< by rank and index
  std::vector<std::unique_ptr<Member::Task>> tasks_;                   ///< by slot
  bool over_ = false, dead_ = false;
  std::uint64_t began_ns_ = 0, elapsed_ns_ = 0, tree_ns_ = 0;
  std::uint32_t chain_ = 0, chain_before_ = 0;
};

}  // namespace kasane::scale
