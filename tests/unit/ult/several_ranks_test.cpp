// SPDX-License-Identifier: Apache-2.0
// Three ranks in one process: a pool each, one set of stacks that all of them can run, words of other ranks
// by address. So every path for threads born elsewhere runs, and the edges that ult must ask for can be
// counted; the memory behind them is coherent anyway.
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "base/deque.h"
#include "ult/controls.h"
#include "ult/locals.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

constexpr std::uint32_t kRanks = 3, kWorkers = 2, kSlots = 512;
constexpr std::size_t kSlotBytes = 64 * 1024;

class Job;

class JobWords final : public Words {
 public:
  explicit JobWords(Job& job) : job_(job) {}
  std::uint64_t load(Rank r, std::uint64_t o) override { return at(r, o).load(); }
  void store(Rank r, std::uint64_t o, std::uint64_t v) override { at(r, o).store(v); }
  std::uint64_t compare_swap(Rank r, std::uint64_t o, std::uint64_t e, std::uint64_t d) override {
    at(r, o).compare_exchange_strong(e, d);
    return e;
  }
  std::uint64_t fetch_or(Rank r, std::uint64_t o, std::uint64_t v) override { return at(r, o).fetch_or(v); }
  std::uint64_t fetch_and(Rank r, std::uint64_t o, std::uint64_t v) override { return at(r, o).fetch_and(v); }

 private:
  std::atomic_ref<Word> at(Rank r, std::uint64_t offset);
  Job& job_;
};

/// What one rank needs; counts what ult asks for.
class Member final : public Edges, public StackMover, public OtherRanks {
 public:
  Member(Job& job, Rank rank) : job_(job), rank_(rank), region(threads_region_bytes(kWorkers, kSlots)) {}

  std::uint32_t cross(Rank source, Account, ReleaseMark) override {
    EXPECT_NE(source, rank_);
    crossings.fetch_add(1);
    return 0;
  }
  void release(Account) override {}
  void acquire(Account) override {}

  // Which rank owns the pages of a stack; a switch to a stack that is not owned would be a crash with real
  // memory.
  void adopt(StackId stack, std::uintptr_t lo, std::uintptr_t hi, Rank) override;
  void surrender(StackId stack) override;
  void reclaim(StackId stack) override;

  SlotId steal(std::uint32_t) override;
  bool work_elsewhere(std::uint32_t) override;
  void announce_idle(std::uint32_t) override;
  void wake_idle_rank() override;
  void ring(Rank rank) override;
  std::uint32_t activity() override { return events.load(); }
  void sleep(std::uint32_t seen, std::int64_t) override {
    events.wait(seen);
    if (!late) return;
    held.fetch_add(1);
    late.wait(true);
    held.fetch_sub(1);
  }

  Job& job_;
  Rank rank_;
  Pages region;
  std::array<Counters, kWorkers> counters;
  std::atomic<std::uint32_t> events{0};
  std::atomic<bool> late{false};  ///< who is woken gets no processor yet
  std::atomic<unsigned> held{0};  ///< how many these are
  std::atomic<unsigned> crossings{0}, surrendered{0}, reclaimed{0}, stolen{0};
  std::unique_ptr<Pool> pool;
  std::vector<std::thread> threads;
};

class Job {
 public:
  Job() : stacks_(std::size_t{kRanks} * kSlots * kSlotBytes), words(*this), owner(kRanks * kSlots) {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      members.push_back(std::make_unique<Member>(*this, Rank{r}));
      for (std::uint32_t i = 0; i < kSlots; ++i) owner[r * kSlots + i] = r;
    }
    for (auto& m : members) {
      Config c;
      c.rank = m->rank_;
      c.ranks = kRanks;
      c.workers = kWorkers;
      c.slots_per_rank = c.stacks_per_rank = kSlots;
      c.stacks = stacks_.data();
      c.region = m->region.data();
      c.counters = m->counters.data();
      c.words = &words;
      c.edges = m.get();
      c.mover = m.get();
      c.other_ranks = m.get();
      c.prepare_stack = [](void* p, StackId) { static_cast<Job*>(p)->prepared.fetch_add(1); };
      c.stack_context = this;
      auto made = Pool::create(c);
      if (!made) throw std::runtime_error(made.error().message);
      m->pool = std::move(*made);
    }
    for (auto& m : members)
      for (std::uint32_t w = raw(m->rank_) == 0 ? 1 : 0; w < kWorkers; ++w)
        m->threads.emplace_back([pool = m->pool.get(), w] { pool->run_worker(w); });
  }
  ~Job() {
    for (auto& m : members) m->pool->stop();
    for (auto& m : members)
      for (auto& t : m->threads) t.join();
  }
  template <class F>
  void run(F f) {
    members[0]->pool->run_root(0, [](void* p) { (*static_cast<F*>(p))(); }, &f);
  }
  [[nodiscard]] unsigned sum(std::atomic<unsigned> Member::* what) const {
    unsigned n = 0;
    for (const auto& m : members) n += ((*m).*what).load();
    return n;
  }

  Layout layout{kWorkers, kSlots};
  Pages stacks_;
  JobWords words;
  std::vector<std::atomic<std::uint32_t>> owner;
  std::atomic<unsigned> prepared{0};
  std::vector<std::unique_ptr<Member>> members;
};

std::atomic_ref<Word> JobWords::at(Rank r, std::uint64_t offset) {
  return atomic(*reinterpret_cast<Word*>(job_.members[raw(r)]->region.data() + offset));
}

void Member::adopt(StackId stack, std::uintptr_t lo, std::uintptr_t hi, Rank) {
  const auto low = reinterpret_cast<std::uintptr_t>(job_.stacks_.data()) + raw(stack) * kSlotBytes;
  EXPECT_GE(lo, low);
  EXPECT_LE(lo, hi);
  EXPECT_EQ(hi, low + kSlotBytes);
  EXPECT_NE(job_.owner[raw(stack)].exchange(raw(rank_)), raw(rank_));
}
void Member::surrender(StackId stack) {
  surrendered.fetch_add(1);
  EXPECT_EQ(job_.owner[raw(stack)].exchange(raw(stack) / kSlots), raw(rank_));
}
void Member::reclaim(StackId stack) {
  reclaimed.fetch_add(1);
  EXPECT_EQ(job_.owner[raw(stack)].load(), raw(rank_));
  EXPECT_EQ(raw(stack) / kSlots, raw(rank_));
}

SlotId Member::steal(std::uint32_t) {
  for (std::uint32_t i = 1; i < kRanks; ++i) {
    Member& victim = *job_.members[(raw(rank_) + i) % kRanks];
    for (std::uint32_t w = 0; w < kWorkers; ++w) {
      auto* deque = reinterpret_cast<Deque<>*>(victim.region.data() + job_.layout.deque(w));
      std::uint64_t value = 0;
      if (deque->steal(value) != Steal::taken) continue;
      const SlotId slot{static_cast<std::uint32_t>(value)};
      const Word sp =
          job_.words.load(job_.layout.birth_rank(slot), job_.layout.word(slot, offsetof(SlotControl, sp)));
      const auto first = reinterpret_cast<std::uintptr_t>(job_.stacks_.data());
      const StackId stack{static_cast<std::uint32_t>((sp - first) / kSlotBytes)};
      adopt(stack, sp, first + (raw(stack) + 1) * kSlotBytes, victim.rank_);
      job_.words.store(job_.layout.birth_rank(slot), job_.layout.word(slot, offsetof(SlotControl, rank)),
                       raw(rank_));
      stolen.fetch_add(1);
      return slot;
    }
  }
  return kNoSlot;
}
bool Member::work_elsewhere(std::uint32_t) {
  for (const auto& m : job_.members)
    for (std::uint32_t w = 0; w < kWorkers; ++w)
      if (reinterpret_cast<Deque<>*>(m->region.data() + job_.layout.deque(w))->size_hint() != 0) return true;
  return false;
}
void Member::announce_idle(std::uint32_t) {
  for (std::uint32_t r = 0; r < kRanks; ++r)
    if (r != raw(rank_)) job_.words.fetch_or(Rank{r}, Layout::idle_ranks(), 1u << raw(rank_));
}
void Member::wake_idle_rank() {
  const Word bits = job_.words.fetch_and(rank_, Layout::idle_ranks(), 0);
  for (std::uint32_t r = 0; r < kRanks; ++r)
    if (bits & (1u << r)) ring(Rank{r});
}
void Member::ring(Rank rank) {
  job_.members[raw(rank)]->events.fetch_add(1);
  job_.members[raw(rank)]->events.notify_all();
}

void busy(std::uint64_t ns) {
  const std::uint64_t until = now_ns() + ns;
  while (now_ns() < until) relax();
}

/// Where the calling thread is.
[[gnu::noinline]] Rank here() { return Pool::current()->config().rank; }

/// Forks children that keep this rank busy until the caller runs on another rank.
bool change_rank() {
  const Rank before = here();
  for (const std::uint64_t until = now_ns() + 60'000'000'000; now_ns() < until;) {
    if (here() != before) return true;
    Pool::join(fork([] { busy(20'000); }));
  }
  ADD_FAILURE() << "nobody steals";
  return false;
}

unsigned slow_fib(unsigned n) {
  if (n < 2) {
    busy(2000);
    return n;
  }
  unsigned a = 0;
  const ThreadId child = fork([&a, n] { a = slow_fib(n - 1); });
  const unsigned b = slow_fib(n - 2);
  Pool::join(child);
  return a + b;
}

class SeveralRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitized)
      GTEST_SKIP() << "a stack has one fiber in each pool, and cannot move from one to the other";
  }
};

TEST_F(SeveralRanks, ForkAndJoinAcrossRanks) {
  Job job;
  // Until other ranks have taken part: when they do is the machine's business.
  const std::uint64_t deadline = now_ns() + 60'000'000'000u;
  while (job.sum(&Member::crossings) == 0 && now_ns() < deadline) {
    unsigned answer = 0;
    job.run([&] { answer = slow_fib(14); });
    EXPECT_EQ(answer, plain_fib(14));
  }
  EXPECT_GT(job.sum(&Member::stolen), 0u);
  EXPECT_GT(job.sum(&Member::crossings), 0u);
}

TEST_F(SeveralRanks, SlotsOfMovedThreadsComeHome) {
  Job job;
  std::atomic<unsigned> away{0};
  job.run([&] {
    // Each thread moves to another rank and ends there: its stack must be surrendered, returned and
    // reclaimed, or slots run out.
    const std::uint64_t deadline = now_ns() + 60'000'000'000u;
    for (unsigned i = 0; (i < 4 * kSlots || job.sum(&Member::reclaimed) == 0) && now_ns() < deadline; ++i) {
      const ThreadId child = fork([&] {
        const Rank born = here();
        for (int k = 0; k < 3 && here() == born; ++k) Pool::join(fork([] { busy(3000); }));
        if (here() != born) away.fetch_add(1);
      });
      Pool::join(child);
    }
  });
  EXPECT_GT(away.load(), 0u);
  EXPECT_GT(job.sum(&Member::surrendered), 0u);
  EXPECT_GT(job.sum(&Member::reclaimed), 0u);
}

TEST_F(SeveralRanks, AJoinAcrossRanksCrossesTheExitRankOnce) {
  Job job;
  job.run([&] {
    for (int i = 0; i < 20; ++i) {
      Rank ended{0};
      const ThreadId child = fork([&] {
        change_rank();
        ended = here();
      });
      Member& mine = *job.members[raw(here())];
      const unsigned before = mine.crossings.load();
      const Rank joined_on = here();
      Pool::join(child);
      if (here() == joined_on && joined_on != ended) {
        EXPECT_GT(mine.crossings.load(), before);
      }
    }
  });
}

TEST_F(SeveralRanks, ExceptionsAndCatchBlocksMove) {
  Job job;
  std::string what, inner;
  job.run([&] {
    const ThreadId child = fork([&] {
      try {
        throw std::runtime_error("caught before the move");
      } catch (const std::exception& e) {
        change_rank();
        inner = e.what();
        throw;
      }
    });
    try {
      Pool::join(child);
    } catch (const std::runtime_error& e) {
      change_rank();
      what = e.what();
    }
  });
  EXPECT_EQ(inner, "caught before the move");
  EXPECT_EQ(what, "caught before the move");
}

TEST_F(SeveralRanks, LocalsAndIdsTravel) {
  Job job;
  static std::atomic<unsigned> destroyed;
  destroyed = 0;
  job.run([&] {
    const std::uint32_t key = Locals::create_key([](void*) { destroyed.fetch_add(1); });
    for (int i = 0; i < 10; ++i) {
      ThreadId inside;
      const ThreadId child = fork([&] {
        Locals::set(key, &inside);
        const ThreadId before = Pool::id();
        change_rank();
        EXPECT_EQ(Locals::get(key), &inside);
        EXPECT_EQ(Pool::id(), before);
        inside = Pool::id();
      });
      Pool::join(child);
      EXPECT_EQ(inside, child);
    }
  });
  EXPECT_EQ(destroyed.load(), 10u);
}

TEST_F(SeveralRanks, AThreadAllocatedOnOneRankStartsOnAnother) {
  Job job;
  std::uint64_t sum = 0;
  job.run([&] {
    for (std::uint64_t i = 0; i < 20; ++i) {
      struct Argument {
        std::uint64_t number;
        std::uint64_t* out;
      };
      const Rank born = here();
      const Pool::Allocated thread = Pool::allocate(alignof(Argument), sizeof(Argument));
      std::uint64_t out = 0;
      new (thread.argument) Argument{i, &out};
      change_rank();
      EXPECT_NE(here(), born);
      Pool::fork(thread, [](void* p) {
        const auto& a = *static_cast<Argument*>(p);
        Pool::join(fork([] { busy(1000); }));
        *a.out = a.number;
      });
      Pool::join(thread.id);
      sum += out;
    }
  });
  EXPECT_EQ(sum, 190u);
}

TEST_F(SeveralRanks, TheRootMayEndElsewhere) {
  Job job;
  for (int i = 0; i < 20; ++i) {
    job.run([] { change_rank(); });
  }
  EXPECT_THROW(job.run([] {
    change_rank();
    throw std::out_of_range("elsewhere");
  }),
               std::out_of_range);
}

// The report on a job whose threads are all blocked asks for it: a busy machine may keep the worker that
// waits for the root from running for long, and nothing else says that it can go on.
TEST_F(SeveralRanks, ARankWhoseRootHasEndedIsNotQuiet) {
  Job job;
  Member& first = *job.members[0];
  std::atomic<bool> away{false}, may_end{false};
  std::thread caller([&] {
    job.run([&] {
      change_rank();
      away = true;
      away.notify_all();
      may_end.wait(false);
    });
  });
  away.wait(false);
  first.late = true;
  for (const std::uint64_t until = now_ns() + 60'000'000'000; first.held != kWorkers && now_ns() < until;)
    first.ring(first.rank_);
  EXPECT_TRUE(first.pool->quiet());
  const std::uint32_t rung = first.events;
  may_end = true;
  may_end.notify_all();
  first.events.wait(rung);
  EXPECT_TRUE(first.pool->asleep());
  EXPECT_FALSE(first.pool->quiet());
  first.late = false;
  first.late.notify_all();
  caller.join();
}

// Joins, detaches, yields and wake-ups between threads that have been scattered over the ranks.
TEST_F(SeveralRanks, RandomMeetings) {
  Job job;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    unsigned total = 0;
    job.run([&] {
      std::minstd_rand random(seed);
      constexpr unsigned kThreads = 12;
      std::array<std::atomic<std::uint64_t>, kThreads> ids{};
      std::array<unsigned, kThreads> values{};
      for (unsigned t = 0; t < kThreads; ++t) {
        const unsigned kind = static_cast<unsigned>(random() >> 8) % 3;
        ids[t] = fork([&, t, kind] {
                   if (kind == 0) busy(5000);
                   if (kind == 1) Pool::yield();
                   // Every second thread joins its predecessor, wherever that is.
                   if (t % 2 == 1) Pool::join(ThreadId{ids[t - 1].load()});
                   values[t] = t + (t % 2 == 1 ? values[t - 1] : 0);
                 }).value;
      }
      for (unsigned t = 1; t < kThreads; t += 2) {
        Pool::join(ThreadId{ids[t].load()});
        total += values[t];
      }
    });
    ASSERT_EQ(total, 66u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kasane::ult
