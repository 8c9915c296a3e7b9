// SPDX-License-Identifier: Apache-2.0
// Runs random data-race-free programs (program.h) as scripts over the simulator: the shipping coherence,
// relocation and allocator of several ranks in one OS thread, on a network that delays, reorders and tears as
// the seed says. The same seed is the same history.
//
//   stress_sim --seed 1 --count 100 [--ranks 3] [--page 4096]   --page 0: every page size in turn, one a seed
//
// Scheduling takes more liberties than sched: at a fork the parent's continuation is stolen by a random rank
// half of the time (claim, release of the victim, the stack moves, acquire), a blocked thread goes on where
// it last ran. Edges are those of docs/design/sched.md.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "stress/program.h"
#include "support/sim_rank.h"

namespace kasane::stress {
namespace {

using test::SimLayout, test::SimRank;

constexpr std::uint64_t kFrameAt = SimLayout::kSlotBytes - 1024;  // the frame's offset in its stack

class SimJob {
 public:
  SimJob(const Program& p, std::uint32_t ranks, std::uint64_t page_bytes)
      : p_(p),
        pages_(SimLayout::pages(page_bytes)),
        world_(ranks, p.seed),
        threads_(p.threads.size()),
        where_(p.objects.size()),
        barriers_(p.barriers.size()),
        free_slots_(ranks) {
    // Every second seed with pages that move by themselves, every eighth without classification; in
    // two of three a block stays open from its first release on.
    for (std::uint32_t r = 0; r < ranks; ++r)
      ranks_.emplace_back(world_, Rank{r}, ranks, pages_,
                          SimLayout::config(p.seed % 2 == 0, p.seed / 2 % 8 != 0,
                                            static_cast<std::uint8_t>(p.seed % 3 == 0 ? 3 : 1)));
    next_slot_.assign(ranks, 0);
  }

  /// Empty, or what is wrong.
  std::string run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) world_.spawn(Rank{r}, [this, r] { serve(r); });
    start(0, 0);
    if (auto ran = world_.run(); !ran && wrong_.empty()) wrong_ = ran.error().message;
    return wrong_;
  }
  [[nodiscard]] std::uint64_t trace_hash() const { return world_.trace_hash(); }
  std::uint64_t hops = 0, owns = 0, faults = 0, moves = 0;

 private:
  /// A scripted thread wherever it runs: a context for each rank.
  struct ThreadState {
    std::uint32_t rank = 0;
    std::uint64_t slot = 0;
    bool exited = false;
    std::uint32_t child[kMaxChildren] = {};
    std::vector<std::unique_ptr<dsm::ThreadContext>> contexts;
  };
  struct Slot {
    std::uint64_t number;
    bool moved;  ///< its pages were handed back by another rank
  };
  struct Lock {
    bool held = false;
    std::uint32_t last = kNone;
    std::uint64_t first = 0, second = 0;  ///< offsets of the two counters
  };
  struct Barrier {
    std::uint32_t arrived = 0, generation = 0;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  dsm::ThreadContext& context(std::uint32_t t, std::uint32_t rank) {
    auto& all = threads_[t].contexts;
    if (all.empty())
      for (auto& r : ranks_)
        all.push_back(std::make_unique<dsm::ThreadContext>(r.transport, r.waiter, counters_));
    return *all[rank];
  }
  SimRank& here(std::uint32_t t) { return ranks_[threads_[t].rank]; }
  dsm::ThreadContext& context(std::uint32_t t) { return context(t, threads_[t].rank); }
  template <class Pred>
  void until(const Pred& ready) {
    world_.waiter().until(ready);
  }

  /// The service thread of a rank: releases for ranks that ask, moves pages here.
  void serve(std::uint32_t r) {
    dsm::ThreadContext ctx(ranks_[r].transport, ranks_[r].waiter, counters_);
    for (;;) {
      until(
          [&] { return over_ || ranks_[r].coherence->fences.asked() || ranks_[r].auto_relocator->asked(); });
      if (over_) return;
      ranks_[r].coherence->fences.serve(ctx);
      ranks_[r].auto_relocator->serve(ctx.io, *ranks_[r].mover);
      moves = counters_.pages_auto_relocated.load();
    }
  }

  // ---- stacks ----
  void take_slot(std::uint32_t t) {
    const std::uint32_t r = threads_[t].rank;
    auto& free = free_slots_[r];
    SimRank& rank = ranks_[r];
    if (!free.empty() && world_.random(4) != 0) {
      const Slot slot = free.front();
      free.pop_front();
      threads_[t].slot = slot.number;
      if (slot.moved)
        rank.coherence->moves.arm_owned(context(t).io, SimLayout::slot_offset(slot.number),
                                        SimLayout::kSlotBytes);
      return;
    }
    threads_[t].slot = r * SimLayout::kSlotsPerRank + next_slot_[r]++;
    const std::uint64_t at = SimLayout::slot_offset(threads_[t].slot);
    for (const PageId page : pages_.in(at, SimLayout::kSlotBytes))
      KASANE_CHECK(rank.mover->assign(context(t).io, page, Rank{r}).has_value());
    rank.coherence->moves.arm_owned(context(t).io, at, SimLayout::kSlotBytes);
  }
  [[nodiscard]] std::uint32_t birth_rank(std::uint32_t t) const {
    return static_cast<std::uint32_t>(threads_[t].slot / SimLayout::kSlotsPerRank);
  }

  // ---- edges ----
  void cross(std::uint32_t t, std::uint32_t source) {
    if (source == threads_[t].rank) return;
    here(t).coherence->fences.ask_release(context(t), Rank{source});
    here(t).coherence->fences.acquire_noticed(context(t));
  }
  /// A thief on another rank has claimed t's continuation.
  void hop(std::uint32_t t, std::uint32_t thief) {
    ThreadState& me = threads_[t];
    const std::uint32_t victim = me.rank;
    if (thief == victim) return;
    ++hops;
    SimRank& there = ranks_[thief];
    there.coherence->fences.ask_release(context(t, thief), Rank{victim});
    const std::uint64_t at = SimLayout::slot_offset(me.slot);
    const gas::ByteRange live{at + kFrameAt - world_.random(256), at + SimLayout::kSlotBytes};
    for (const PageId page : pages_.in(at, SimLayout::kSlotBytes))
      KASANE_CHECK(there.mover->bring(context(t, thief).io, page, live).has_value(),
                   "a stack that waits to be run is not pinned");
    there.coherence->fences.acquire_noticed(context(t, thief));
    me.rank = thief;
  }

  // ---- threads ----
  void start(std::uint32_t t, std::uint32_t rank) {
    threads_[t].rank = rank;
    world_.spawn(Rank{rank}, [this, t] {
      run_thread(t);
      if (t == 0) over_ = true;
    });
  }
  void run_thread(std::uint32_t t) {
    take_slot(t);
    where_[p_.threads[t].frame] = SimLayout::slot_offset(threads_[t].slot) + kFrameAt;
    if (t == 0) make_counters();
    started_count_ += 1;
    for (std::uint32_t i = 0; i < p_.threads[t].ops && wrong_.empty(); ++i) {
      run_op(t, i);
      world_.yield_point();
    }
    // The exit: what ran elsewhere goes back to its birth rank without data, then the fact.
    ThreadState& me = threads_[t];
    if (birth_rank(t) != me.rank)
      for (const PageId page : pages_.in(SimLayout::slot_offset(me.slot), SimLayout::kSlotBytes))
        KASANE_CHECK(here(t).mover->hand_back(context(t).io, page, Rank{birth_rank(t)}));
    faults = counters_.faults_read.load() + counters_.faults_write.load();
    me.exited = true;
  }
  void make_counters() {
    for (Lock& l : locks_) {
      l.first = allocate(0, 8);
      l.second = allocate(0, 8192);
      const std::uint64_t zero = 0;
      here(0).write(context(0), l.first, &zero, 8);
      here(0).write(context(0), l.second, &zero, 8);
    }
  }
  std::uint64_t allocate(std::uint32_t t, std::size_t bytes) {
    const auto placement = world_.random(8) == 0 ? gas::Placement::cyclic : gas::Placement::local;
    return here(t).heap->allocate(context(t).io, t % SimLayout::kCaches, bytes, 16, placement).value();
  }
  /// Now and then the heap page that a thread is about to use moves to its rank: results may not depend on
  /// it.
  void maybe_own(std::uint32_t t, std::uint64_t at) {
    if (at < SimLayout::kHeapOffset || world_.random(12) != 0) return;
    const PageId page = pages_.page_of(at);
    KASANE_CHECK(
        here(t).mover->bring(context(t).io, page, {pages_.offset_of(page), pages_.end_of(page)}).has_value());
    ++owns;
  }
  void fail(std::uint32_t t, std::uint32_t index, std::uint64_t got, std::uint64_t right) {
    if (!wrong_.empty()) return;
    char text[240];
    std::snprintf(text, sizeof text, "seed %llu thread %u operation %u on rank %u: got %llx, should be %llx",
                  static_cast<unsigned long long>(p_.seed), t, index, threads_[t].rank,
                  static_cast<unsigned long long>(got), static_cast<unsigned long long>(right));
    wrong_ = text;
  }

  void run_op(std::uint32_t t, std::uint32_t index) {
    const Op& op = p_.ops[p_.threads[t].first_op + index];
    ThreadState& me = threads_[t];
    switch (op.kind) {
      case OpKind::write:
        maybe_own(t, where_[op.target] + op.offset);
        here(t).write(context(t), where_[op.target] + op.offset, &op.value, op.width);
        break;
      case OpKind::read: {
        std::uint64_t got = 0;
        maybe_own(t, where_[op.target] + op.offset);
        here(t).read(context(t), where_[op.target] + op.offset, &got, op.width);
        if (got != op.value) fail(t, index, got, op.value);
        break;
      }
      case OpKind::fork:
        me.child[op.slot] = op.target;
        start(op.target, me.rank);
        if (world_.random(2) == 0) hop(t, world_.random(static_cast<std::uint32_t>(ranks_.size())));
        break;
      case OpKind::join: {
        ThreadState& child = threads_[me.child[op.slot]];
        until([&] { return child.exited; });
        cross(t, child.rank);
        free_slots_[birth_rank(me.child[op.slot])].push_back(
            {child.slot, birth_rank(me.child[op.slot]) != child.rank});
        break;
      }
      case OpKind::add:
      case OpKind::check: under_lock(t, index, op); break;
      case OpKind::barrier: arrive(t, barriers_[op.target], p_.barriers[op.target].members); break;
      case OpKind::allocate: where_[op.target] = allocate(t, p_.objects[op.target].bytes); break;
      case OpKind::release:
        here(t).heap->free(context(t).io, t % SimLayout::kCaches, where_[op.target]);
        break;
      case OpKind::work:
      case OpKind::yield: world_.yield_point(); break;
    }
  }
  void under_lock(std::uint32_t t, std::uint32_t index, const Op& op) {
    Lock& l = locks_[op.target];
    until([&] { return !l.held; });
    l.held = true;
    if (l.last != kNone) cross(t, l.last);
    std::uint64_t first = 0, second = 0;
    here(t).read(context(t), l.first, &first, 8);
    here(t).read(context(t), l.second, &second, 8);
    if (first != second) fail(t, index, first, second);
    if (op.kind == OpKind::add) {
      first += op.value;
      here(t).write(context(t), l.first, &first, 8);
      here(t).write(context(t), l.second, &first, 8);
    } else if (first != op.value) {
      fail(t, index, first, op.value);
    }
    l.last = threads_[t].rank;
    l.held = false;
  }
  void arrive(std::uint32_t t, Barrier& b, std::uint32_t members) {
    here(t).coherence->fences.release_all(context(t));
    const std::uint32_t generation = b.generation;
    if (++b.arrived == members) {
      b.arrived = 0;
      ++b.generation;
    } else {
      until([&] { return b.generation != generation || !wrong_.empty(); });
    }
    here(t).coherence->fences.acquire_noticed(context(t));
  }

  const Program& p_;
  const mem::Pages pages_;
  comm::sim::World world_;
  std::deque<SimRank> ranks_;
  Counters counters_;
  std::vector<ThreadState> threads_;
  std::vector<std::uint64_t> where_;  ///< of each object
  std::vector<Barrier> barriers_;
  Lock locks_[kLocks];
  std::vector<std::deque<Slot>> free_slots_;
  std::vector<std::uint64_t> next_slot_;
  std::uint32_t started_count_ = 0;
  bool over_ = false;
  std::string wrong_;
};

std::uint64_t number(int argc, char** argv, const char* name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  return otherwise;
}

int main_of(int argc, char** argv) {
  const std::uint64_t first = number(argc, argv, "--seed", 1), count = number(argc, argv, "--count", 100);
  const auto ranks = static_cast<std::uint32_t>(number(argc, argv, "--ranks", 0));
  const std::uint64_t page = number(argc, argv, "--page", mem::kPageBytes);
  Limits limits;
  limits.threads = 24;
  limits.actions = 8;
  std::uint64_t hops = 0, owns = 0, faults = 0, moves = 0, histories = 0;
  int failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Program p = generate(seed, limits);
    const std::uint32_t n = ranks != 0 ? ranks : 2 + static_cast<std::uint32_t>(seed % 3);
    const std::uint64_t page_bytes = page != 0 ? page : mem::kSmallestPageBytes << (seed % 10);
    SimJob job(p, n, page_bytes);
    const std::string wrong = job.run();
    hops += job.hops;
    owns += job.owns;
    faults += job.faults;
    moves += job.moves;
    histories = histories * 31 + job.trace_hash();  // equal for equal seeds and an unchanged protocol
    if (wrong.empty()) continue;
    std::fprintf(
        stderr, "stress_sim: %s\n  replay: stress_sim --seed %llu --count 1 --ranks %u --page %llu\n",
        wrong.c_str(), static_cast<unsigned long long>(seed), n, static_cast<unsigned long long>(page_bytes));
    if (++failed == 5) break;
  }
  std::printf(
      "stress_sim: seeds %llu … %llu: %d wrong; %llu hops, %llu pages owned, %llu faults, %llu pages drawn; "
      "histories %016llx\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1), failed,
      static_cast<unsigned long long>(hops), static_cast<unsigned long long>(owns),
      static_cast<unsigned long long>(faults), static_cast<unsigned long long>(moves),
      static_cast<unsigned long long>(histories));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kasane::stress

int main(int argc, char** argv) { return kasane::stress::main_of(argc, argv); }
