// SPDX-License-Identifier: Apache-2.0
// Several ranks that run threads without dsm: the stacks, and all data of the test program, lie in one
// mapping that every rank shares at the same address, so nothing has to be made coherent. Edges and
// StackMover only count, and check that the rank that runs a thread owns its stack. What is left is exactly
// sched: steals, wake-ups, idling, and where fences are asked for.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/counters.h"
#include "comm/collectives/collectives.h"
#include "comm/shm/shm_transport.h"
#include "gas/regions.h"
#include "sched/sched.h"
#include "support/multi_rank.h"
#include "support/service_thread.h"
#include "ult/layout.h"
#include "ult/pool.h"

namespace kasane::sched::test {

inline constexpr std::uint32_t kMostRanks = 8, kMostWorkers = 4, kSlots = 1024;
inline constexpr std::size_t kSlotBytes = 64 * 1024, kArenaBytes = std::size_t{16} << 20;

/// What the doubles counted, a set a rank; any worker of the rank adds.
struct Tally {
  std::atomic<std::uint64_t> cross{0}, ask_release{0}, release{0}, acquire{0}, adopt{0}, surrender{0},
      reclaim{0};
  std::atomic<std::uint64_t> rank_stores{0};  ///< of SlotControl::rank, by words
  /// a stack was adopted, surrendered or reclaimed by a rank that may not
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> out_of_order{0};  ///< a steal that did not go release, adopt, acquire
};

/// Shared by all ranks; made before the fork.
struct Shared {
  Tally tally[kMostRanks];
  Counters counters[kMostRanks][kMostWorkers];
  /// 1 + rank that owns the stack's pages; 0: its birth rank
  std::atomic<std::uint32_t> owner[kMostRanks * kSlots];
  alignas(64) std::byte arena[kArenaBytes];  ///< the program's data

  [[nodiscard]] std::uint64_t sum(std::atomic<std::uint64_t> Tally::* field) const {
    std::uint64_t n = 0;
    for (const auto& t : tally) n += (t.*field).load();
    return n;
  }
  [[nodiscard]] std::uint64_t sum(std::atomic<std::uint64_t> Counters::* field) const {
    std::uint64_t n = 0;
    for (const auto& rank : counters)
      for (const auto& c : rank) n += (c.*field).load();
    return n;
  }
};

/// The words of all regions, of which it counts the stores to SlotControl::rank.
class CountingWords final : public ult::Words {
 public:
  CountingWords(comm::Transport& transport, Tally& tally, const ult::Layout& layout)
      : words_(transport), tally_(tally), layout_(layout) {}
  std::uint64_t load(Rank r, std::uint64_t o) override { return words_.load(r, o); }
  void store(Rank r, std::uint64_t o, std::uint64_t v) override {
    const bool in_slots = o >= layout_.controls() && o < layout_.sync_records();
    if (in_slots && (o - layout_.controls()) % sizeof(ult::SlotControl) == offsetof(ult::SlotControl, rank))
      ++tally_.rank_stores;
    words_.store(r, o, v);
  }
  std::uint64_t compare_swap(Rank r, std::uint64_t o, std::uint64_t e, std::uint64_t d) override {
    return words_.compare_swap(r, o, e, d);
  }
  std::uint64_t fetch_or(Rank r, std::uint64_t o, std::uint64_t v) override {
    return words_.fetch_or(r, o, v);
  }
  std::uint64_t fetch_and(Rank r, std::uint64_t o, std::uint64_t v) override {
    return words_.fetch_and(r, o, v);
  }

 private:
  RegionWords words_;
  Tally& tally_;
  const ult::Layout layout_;
};

class CountingEdges final : public ult::Edges {
 public:
  CountingEdges(Shared& shared, Rank own) : tally_(shared.tally[raw(own)]), own_(own) {}
  std::uint32_t cross(Rank source, Account, ult::ReleaseMark) override {
    if (source == own_) ++tally_.wrong;
    ++tally_.cross;
    return 0;
  }
  void ask_release(Rank source) override {
    if (source == own_) ++tally_.wrong;
    ++tally_.ask_release;
    expect_stage(0, 1);
  }
  void release(Account) override { ++tally_.release; }
  void acquire(Account) override {
    ++tally_.acquire;
    if (stage_ != 0) expect_stage(2, 0);
  }
  void adopted() { expect_stage(1, 2); }

 private:
  void expect_stage(int now, int then) {
    if (stage_ != now) ++tally_.out_of_order;
    stage_ = then;
  }
  Tally& tally_;
  Rank own_;
  static inline thread_local int stage_ = 0;  ///< of the theft on this worker: none, released, adopted
};

class CountingMover final : public ult::StackMover {
 public:
  CountingMover(Shared& shared, Rank own, CountingEdges& edges, const ult::Config& config)
      : shared_(shared), own_(own), edges_(edges), config_(config) {}

  void adopt(StackId stack, std::uintptr_t low, std::uintptr_t high, Rank from) override {
    Tally& tally = shared_.tally[raw(own_)];
    ++tally.adopt;
    const auto begin = reinterpret_cast<std::uintptr_t>(config_.stacks) + raw(stack) * kSlotBytes;
    if (low <= begin || low >= high || high != begin + kSlotBytes) ++tally.wrong;
    hand_over(stack, from, own_);
    edges_.adopted();
  }
  void surrender(StackId stack) override {
    ++shared_.tally[raw(own_)].surrender;
    hand_over(stack, own_, birth(stack));
  }
  void reclaim(StackId stack) override {
    ++shared_.tally[raw(own_)].reclaim;
    hand_over(stack, own_, own_);
  }

 private:
  static Rank birth(StackId stack) { return Rank{raw(stack) / kSlots}; }
  void hand_over(StackId stack, Rank from, Rank to) {
    const std::uint32_t old = shared_.owner[raw(stack)].exchange(raw(to) + 1);
    if (Rank{old == 0 ? raw(birth(stack)) : old - 1} != from) ++shared_.tally[raw(own_)].wrong;
  }
  Shared& shared_;
  Rank own_;
  CountingEdges& edges_;
  const ult::Config& config_;
};

/// One rank: transport, words, scheduler, pool and its workers.
class RankOfThreads {
 public:
  RankOfThreads(const comm::Job& job, std::uint32_t workers, Shared& shared, std::byte* slots,
                std::uint64_t seed)
      : transport_(make_transport(job)), waiter_(*transport_), all_(*transport_, waiter_) {
    config_.rank = job.rank;
    config_.ranks = job.ranks;
    config_.workers = workers;
    config_.slots_per_rank = config_.stacks_per_rank = kSlots;
    config_.stack_bytes = kSlotBytes;
    config_.stacks = slots;
    config_.counters = shared.counters[raw(job.rank)];
    attach_region();
    words_ = std::make_unique<CountingWords>(*transport_, shared.tally[raw(job.rank)],
                                             ult::Layout(workers, kSlots));
    edges_ = std::make_unique<CountingEdges>(shared, job.rank);
    mover_ = std::make_unique<CountingMover>(shared, job.rank, *edges_, config_);
    scheduler_ = std::make_unique<Scheduler>(*transport_, *words_, *edges_, *mover_, config_,
                                             std::vector(config_.ranks, Distance::host), seed);
    config_.words = words_.get();
    config_.edges = edges_.get();
    config_.mover = mover_.get();
    config_.other_ranks = scheduler_.get();
    auto pool = ult::Pool::create(config_);
    if (!pool) throw std::runtime_error(pool.error().message);
    pool_ = std::move(*pool);
    transport_->set_handler(
        gas::kStopHandler, [](void* p, const comm::Message&) noexcept { static_cast<ult::Pool*>(p)->stop(); },
        pool_.get());
    service_ = std::make_unique<kasane::test::ServiceThread>(*transport_);
    all_.barrier();
  }

  /// Rank 0 runs program as the root thread, over and over if it likes; the others work for it.
  template <class Program>
  void run(Program program) {
    const bool first = raw(config_.rank) == 0;
    std::vector<std::thread> others;
    for (std::uint32_t w = first ? 1 : 0; w < config_.workers; ++w)
      others.emplace_back([this, w] { pool_->run_worker(w); });
    if (first) {
      program([this](auto root) {
        // The root runs a copy on its own, shared stack: it may move away from this one.
        const auto body = [](void* p) {
          auto copy = *static_cast<decltype(root)*>(p);
          copy();
        };
        pool_->run_root(0, body, &root);
      });
      stop_everybody();
    }
    for (auto& t : others) t.join();
    all_.barrier();
  }

 private:
  static std::unique_ptr<comm::Transport> make_transport(const comm::Job& job) {
    auto transport = comm::shm::create(job);
    if (!transport) throw std::runtime_error(transport.error().message);
    return std::move(*transport);
  }
  void attach_region() {
    const std::size_t bytes = ult::threads_region_bytes(config_.workers, kSlots);
    const int fd = ::memfd_create("threads", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("memfd");
    void* region = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (region == MAP_FAILED) throw std::runtime_error("mmap");
    config_.region = static_cast<std::byte*>(region);
    const auto attached = transport_->attach(gas::kThreads, fd, config_.region, bytes);
    if (!attached) throw std::runtime_error(attached.error().message);
  }
  void stop_everybody() {
    comm::Blocking io(*transport_, waiter_);
    for (std::uint32_t r = 1; r < config_.ranks; ++r) io.send(Rank{r}, gas::kStopHandler, {});
    pool_->stop();
  }

  std::unique_ptr<comm::Transport> transport_;
  comm::PollWaiter waiter_;
  comm::Collectives all_;
  ult::Config config_;
  std::unique_ptr<CountingWords> words_;
  std::unique_ptr<CountingEdges> edges_;
  std::unique_ptr<CountingMover> mover_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ult::Pool> pool_;
  std::unique_ptr<kasane::test::ServiceThread> service_;
};

/// A job's shared memory, and running a program on all its ranks. Destroyed in the parent.
class Cluster {
 public:
  Cluster(std::uint32_t ranks, std::uint32_t workers) : ranks_(ranks), workers_(workers) {
    shared = new (map(sizeof(Shared))) Shared;
    const auto raw_slots = reinterpret_cast<std::uintptr_t>(map(slots_bytes() + kSlotBytes));
    slots_ = reinterpret_cast<std::byte*>((raw_slots + kSlotBytes - 1) & ~(kSlotBytes - 1));
  }
  // the stacks' mapping lives as long as the test program: a few MiB touched
  ~Cluster() { ::munmap(shared, sizeof(Shared)); }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// program(run) is called on rank 0 only; run(root) runs root() as the root thread.
  template <class Program>
  void run(Program program, std::uint64_t seed = 1, std::chrono::seconds limit = std::chrono::seconds(120)) {
    kasane::test::run_ranks(
        ranks_,
        [&](const comm::Job& job) {
          RankOfThreads rank(job, workers_, *shared, slots_, seed);
          rank.run(program);
        },
        limit);
    EXPECT_EQ(shared->sum(&Tally::wrong), 0u)
        << "a stack changed hands that its rank did not own, or an edge to the own rank";
    EXPECT_EQ(shared->sum(&Tally::out_of_order), 0u) << "a steal is release, adopt, acquire";
  }

  Shared* shared;

 private:
  static void* map(std::size_t bytes) {
    void* p =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("mmap");
    return p;
  }
  [[nodiscard]] std::size_t slots_bytes() const { return std::size_t{ranks_} * kSlots * kSlotBytes; }

  std::uint32_t ranks_, workers_;
  std::byte* slots_;
};

}  // namespace kasane::sched::test
