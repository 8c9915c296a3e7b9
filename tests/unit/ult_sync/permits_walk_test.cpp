// SPDX-License-Identifier: Apache-2.0
// Permits (semaphore, shared mutex) and the latch: every order of every access of two to four threads, and of
// the timers of those that wait with a deadline, which may fire at any moment. No thread waits for ever,
// never more is taken than there is, no permit is lost, a wake-up goes to a thread that waits, and no thread
// touches the record once the thread that is to destroy it may go on.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "model/explorer.h"
#include "ult/sync/latch_record.h"
#include "ult/sync/semaphore_record.h"
#include "ult/timed_wait.h"
#include "unit/ult_sync/machine_step.h"

namespace kasane::ult::test {
namespace {

constexpr std::uint32_t kThreads = 4;

struct Op {
  /// take_timed: where it expires, the next op is left out. destroy: the object must be idle and unused
  enum Kind : std::uint32_t { take, take_timed, give, count_down, wait, destroy, end };
  Kind kind = end;
  std::uint32_t amount = 0;
};
using Script = std::vector<Op>;

/// A rule taken away: the walk must find what it was for.
enum class Mutation {
  none,
  fifo_not_stored,
  notes_lost,
  wake_dropped,
  links_lost,
  leave_not_noted,  ///< a timer that finds a server does not tell it
  goes_at_once,     ///< a settled thread goes on although its timer is not done
  grant_forgotten,  ///< granted while the timer asks: taken for expired
  all_leave,        ///< the server also lets waiters go that have no expired timer
  none_leave,       ///< … no waiter
};

struct ModelThread {
  enum Status : std::uint32_t { running, machine, suspended };
  std::uint32_t op, status, ready, pad;
  std::uint64_t result;
  SemaphoreAcquire take;
  SemaphoreRelease give;
  LatchWait wait;
  LatchCount count;
};
struct ModelTimer {
  enum Doing : std::uint32_t { nothing, set, asking, asked };
  std::uint32_t doing, pad;
  std::uint64_t round;  ///< what it runs are its thread's machine and result, since that waits meanwhile
};
struct State {
  Word word, fifo, next[kThreads], timed[kThreads];
  ModelTimer timers[kThreads];
  std::uint32_t held, destroyed;
  ModelThread threads[kThreads];
  std::uint64_t broken;  ///< 1 + index in kWrong
};
static_assert(std::has_unique_object_representations_v<State>);

class Model {
 public:
  using State = test::State;
  Model(std::vector<Script> scripts, Word initial, std::uint32_t most, Mutation mutation)
      : scripts_(std::move(scripts)), initial_(initial), most_(most), mutation_(mutation) {
    for (Script& s : scripts_) s.push_back({});
  }
  State initial() const {
    State s{};
    for (auto& t : s.threads) t = ModelThread{};
    for (auto& t : s.timers) t = ModelTimer{};
    s.word = initial_;
    return s;
  }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint32_t i = 0; i < scripts_.size(); ++i) {
      State n = s;
      if (step(n, i))
        emit(n, model::Step{0, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(op(s, i).kind)});
      if (s.timers[i].doing == ModelTimer::nothing) continue;
      State t = s;
      step_timer(t, i);
      emit(t, model::Step{1, static_cast<std::uint8_t>(i), 0});
    }
  }
  const char* violation(const State& s) const {
    if (s.broken != 0) return kWrong[s.broken - 1];
    return s.held > most_ ? "more is taken than there is" : nullptr;
  }
  bool finished(const State& s) const {
    for (std::uint32_t i = 0; i < scripts_.size(); ++i)
      if (op(s, i).kind != Op::end) return false;
    return scripts_[0][0].kind == Op::count_down || scripts_[0][0].kind == Op::wait || nothing_lost(s);
  }
  std::string name(const model::Step& step) const {
    static constexpr const char* kOps[] = {"take", "take_timed", "give", "count_down",
                                           "wait", "destroy",    "end"};
    if (step.kind == 1) return "timer of thread " + std::to_string(step.actor);
    return "thread " + std::to_string(step.actor) + " in " + kOps[step.detail];
  }
  std::string show(const State& s) const {
    std::string text = "word " + std::to_string(s.word >> 32) + "|" + std::to_string(s.word & 0xFFFFFFFF) +
                       " fifo " + std::to_string(s.fifo) + " held " + std::to_string(s.held);
    for (std::uint32_t i = 0; i < scripts_.size(); ++i)
      text += " t" + std::to_string(i) + ":op" + std::to_string(s.threads[i].op) + "/" +
              std::to_string(s.threads[i].status);
    return text;
  }

 private:
  static constexpr const char* kWrong[] = {"a thread is woken that does not wait", "a thread is woken twice",
                                           "a machine refused", "the record is used after it was destroyed",
                                           "it is destroyed in use"};
  enum Wrong : std::uint64_t { not_waiting = 1, twice, refused, used_late, in_use };

  bool nothing_lost(const State& s) const {
    const SemaphoreWord w = SemaphoreWord::unpack(s.word);
    return w.available + s.held == SemaphoreWord::unpack(initial_).available && !w.waited_for();
  }
  const Op& op(const State& s, std::uint32_t i) const { return scripts_[i][s.threads[i].op]; }

  Word perform(State& s, const SyncStep& step) const {
    if (step.kind == SyncStep::Kind::wake) {
      if (mutation_ != Mutation::wake_dropped || raw(step.slot) != 0) wake(s, raw(step.slot));
      return 0;
    }
    if (step.kind == SyncStep::Kind::settle) {
      TimedWord w = TimedWord::unpack(s.timed[raw(step.slot)]);
      if (mutation_ == Mutation::goes_at_once && w.leaving()) w.state = TimedState::left;
      turn(s, raw(step.slot), w,
           static_cast<TimedOutcome>(step.value) == TimedOutcome::granted ? TimedEvent::grant
                                                                          : TimedEvent::expire);
      return 0;
    }
    if (step.field == SyncField::timed) {
      if (mutation_ == Mutation::none_leave) return TimedWord{1, TimedState::armed}.pack();
      return mutation_ == Mutation::all_leave ? TimedWord{1, TimedState::left}.pack()
                                              : s.timed[raw(step.slot)];
    }
    if (step.field != SyncField::next && s.destroyed != 0) s.broken = used_late;
    Word& word = step.field == SyncField::next   ? s.next[raw(step.slot)]
                 : step.field == SyncField::word ? s.word
                                                 : s.fifo;
    const Word old = word;
    if (step.kind == SyncStep::Kind::store &&
        !(mutation_ == Mutation::fifo_not_stored && step.field == SyncField::fifo)) {
      word = mutation_ == Mutation::notes_lost ? step.value & 0xFFFFFFFFu : step.value;
    }
    if (mutation_ == Mutation::links_lost && step.kind == SyncStep::Kind::store &&
        step.field == SyncField::next)
      word = old;
    if (step.kind == SyncStep::Kind::compare_swap && old == step.expected) {
      word = step.value;
      SemaphoreWord w = SemaphoreWord::unpack(word);
      const SemaphoreWord before = SemaphoreWord::unpack(old);
      if (mutation_ == Mutation::leave_not_noted && before.serving && w.leaving && !before.leaving) {
        w.leaving = false;
        word = w.pack();
      }
    }
    return old;
  }
  static void wake(State& s, std::uint32_t i) {
    ModelThread& t = s.threads[i];
    if (t.status != ModelThread::suspended) s.broken = not_waiting;
    if (t.ready != 0) s.broken = twice;
    t.ready = 1;
  }
  /// One event of i's wait with a deadline.
  static TimedAction turn(State& s, std::uint32_t i, TimedWord w, TimedEvent event, std::uint64_t round = 0) {
    const TimedStep step = ult::next(w, event, round);
    s.timed[i] = step.next.pack();
    if (step.action == TimedAction::refuse) s.broken = refused;
    if (step.action == TimedAction::go) wake(s, i);
    return step.action;
  }
  static TimedAction turn(State& s, std::uint32_t i, TimedEvent event, std::uint64_t round = 0) {
    return turn(s, i, TimedWord::unpack(s.timed[i]), event, round);
  }

  // A timer whose thread has gone on, and waits again, may still fire: its round is over then.
  void step_timer(State& s, std::uint32_t i) const {
    ModelTimer& t = s.timers[i];
    switch (t.doing) {
      case ModelTimer::set: {
        const bool ask = turn(s, i, TimedEvent::due, t.round) == TimedAction::ask;
        t = ModelTimer{};
        if (!ask) return;
        t.doing = ModelTimer::asking;
        s.threads[i].give = SemaphoreRelease::leave();
        return;
      }
      case ModelTimer::asking:
        if (!advance(s, s.threads[i].give, s.threads[i].result)) return;
        s.threads[i].result = 0;
        t.doing = ModelTimer::asked;
        return;
      case ModelTimer::asked: {
        t = ModelTimer{};
        TimedWord w = TimedWord::unpack(s.timed[i]);
        if (mutation_ == Mutation::grant_forgotten && w.state == TimedState::granted_asking)
          w.state = TimedState::expired_asking;
        turn(s, i, w, TimedEvent::asked);
        return;
      }
      default: return;
    }
  }

  template <class Machine>
  bool advance(State& s, Machine& m, std::uint64_t& result) const {
    return advance_machine(m, result, [&](const SyncStep& step) { return perform(s, step); });
  }

  bool step(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    const Op& o = op(s, i);
    if (t.status == ModelThread::suspended) {
      if (t.ready == 0) return false;
      t.ready = 0;
      return go_on(s, i), true;
    }
    if (t.status == ModelThread::machine) return run(s, i), true;
    const SlotId self{i};
    t.result = 0;
    t.status = ModelThread::machine;
    switch (o.kind) {
      case Op::take: t.take = SemaphoreAcquire(self, o.amount, true); break;
      case Op::take_timed:
        turn(s, i, TimedEvent::arm);
        t.take = SemaphoreAcquire(self, o.amount, true, true);
        break;
      case Op::give:
        s.held -= o.amount;
        t.give = SemaphoreRelease(o.amount, most_);
        break;
      case Op::count_down: t.count = LatchCount(o.amount); break;
      case Op::wait: t.wait = LatchWait(self, true); break;
      case Op::destroy:
        // The destroying thread knows that all others are done with it, or about to return from their last
        // call.
        if (s.word != o.amount || s.fifo != 0) s.broken = in_use;
        s.destroyed = 1;
        t.status = ModelThread::running;
        ++t.op;
        return true;
      case Op::end: t.status = ModelThread::running; return false;
    }
    return run(s, i), true;
  }
  void run(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    switch (op(s, i).kind) {
      case Op::take:
        if (!advance(s, t.take, t.result)) return;
        return t.result == static_cast<Word>(SemaphoreAction::taken) ? go_on(s, i) : suspend(t);
      case Op::take_timed: {
        if (!advance(s, t.take, t.result)) return;
        const bool taken = t.result == static_cast<Word>(SemaphoreAction::taken);
        suspend(t);
        if (taken)
          turn(s, i, TimedEvent::grant);
        else
          s.timers[i] = {.doing = ModelTimer::set, .pad = 0, .round = TimedWord::unpack(s.timed[i]).round};
        return;
      }
      case Op::give:
        if (!advance(s, t.give, t.result)) return;
        if (t.result == static_cast<Word>(SemaphoreAction::refuse)) s.broken = refused;
        return go_on(s, i);
      case Op::count_down:
        if (!advance(s, t.count, t.result)) return;
        if (t.result == static_cast<Word>(LatchAction::refuse)) s.broken = refused;
        return go_on(s, i);
      case Op::wait:
        if (!advance(s, t.wait, t.result)) return;
        return t.result == static_cast<Word>(LatchAction::pass) ? go_on(s, i) : suspend(t);
      default: return;
    }
  }
  static void suspend(ModelThread& t) {
    t.status = ModelThread::suspended;
    t.result = 0;
  }
  void go_on(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    bool has = op(s, i).kind == Op::take;
    if (op(s, i).kind == Op::take_timed) {
      has = TimedWord::unpack(s.timed[i]).state == TimedState::granted;
      turn(s, i, TimedEvent::collect);
      if (scripts_[i].size() < t.op + 3u || scripts_[i][t.op + 2].kind != Op::take_timed)
        s.timers[i] = ModelTimer{};
      if (!has) ++t.op;
    }
    if (has) s.held += op(s, i).amount;
    t.status = ModelThread::running;
    t.result = 0;
    ++t.op;
  }

  std::vector<Script> scripts_;
  Word initial_;
  std::uint32_t most_;
  Mutation mutation_;
};

model::Outcome walk(std::vector<Script> scripts, Word initial, std::uint32_t most,
                    Mutation mutation = Mutation::none) {
  return model::explore(Model(std::move(scripts), initial, most, mutation),
                        {.states = 20'000'000, .bytes = 4ull << 30});
}
void expect_exhausted(const model::Outcome& o) {
  EXPECT_TRUE(o.ok()) << o.report();
  EXPECT_GT(o.endings, 0u) << o.report();
  std::cout << o.report() << "\n";
}
Script times(int n, const Script& body) {
  Script s;
  for (int i = 0; i < n; ++i) s.insert(s.end(), body.begin(), body.end());
  return s;
}
Word permits(std::uint32_t n) { return SemaphoreWord{kNoSlot, n}.pack(); }

constexpr std::uint32_t kAll = 3;  // what a writer takes here
const Script kReader{{Op::take, 1}, {Op::give, 1}}, kWriter{{Op::take, kAll}, {Op::give, kAll}};

TEST(SemaphoreWord, PacksEveryField) {
  for (const SlotId newest : {kNoSlot, SlotId{0}, SlotId{0xFFFFFFFEu}})
    for (const std::uint32_t available : {0u, 1u, kMaxPermits})
      for (const bool second : {false, true})
        for (const bool serving : {false, true}) {
          const SemaphoreWord w{newest, available, second && !serving, serving, second && serving};
          EXPECT_EQ(SemaphoreWord::unpack(w.pack()), w);
        }
  EXPECT_EQ(SemaphoreWord{}.pack(), 0u);
}

TEST(SemaphoreWord, RefusesMoreThanThereAre) {
  EXPECT_EQ(next({kNoSlot, 2}, SemaphoreEvent::give, 2, kNoSlot, 3).action, SemaphoreAction::refuse);
  EXPECT_EQ(next({kNoSlot, 1}, SemaphoreEvent::give, kMaxPermits).action, SemaphoreAction::refuse);
}

TEST(PermitsWalk, SemaphoreOfOne) {
  expect_exhausted(walk({times(2, kReader), times(2, kReader), kReader}, permits(1), 1));
  expect_exhausted(walk({kReader, kReader, kReader, kReader}, permits(1), 1));
}
TEST(PermitsWalk, SemaphoreOfTwo) {
  expect_exhausted(walk({times(2, kReader), times(2, kReader), times(2, kReader)}, permits(2), 2));
}
TEST(PermitsWalk, ManyAtOnce) {
  expect_exhausted(
      walk({{{Op::give, 3}}, {{Op::take, 1}}, {{Op::take, 1}}, {{Op::take, 1}}}, permits(0), ~0u));
}
TEST(PermitsWalk, ReadersAndWriters) {
  expect_exhausted(walk({kWriter, kReader, kReader, kWriter}, permits(kAll), kAll));
  expect_exhausted(walk({times(2, kWriter), times(2, kReader), kReader}, permits(kAll), kAll));
}
TEST(PermitsWalk, TheLastHolderMayDestroyIt) {
  const auto and_destroy = [](Script s) {
    return s.push_back({Op::destroy, static_cast<std::uint32_t>(permits(0))}), s;
  };
  expect_exhausted(walk({{{Op::give, 1}}, and_destroy({{Op::take, 1}})}, permits(0), ~0u));
  expect_exhausted(
      walk({{{Op::give, 1}}, {{Op::give, 1}}, and_destroy({{Op::take, 1}, {Op::take, 1}})}, permits(0), ~0u));
}
TEST(PermitsWalk, FindsMutants) {
  const std::vector<Script> many{kWriter, kReader, kReader, kWriter};
  for (const auto& [mutation, name] :
       {std::pair{Mutation::fifo_not_stored, "fifo_not_stored"},
        std::pair{Mutation::notes_lost, "notes_lost"}, std::pair{Mutation::wake_dropped, "wake_dropped"},
        std::pair{Mutation::links_lost, "links_lost"}}) {
    const auto o = walk(many, permits(kAll), kAll, mutation);
    EXPECT_FALSE(o.ok()) << name;
    std::cout << name << ": " << o.why << "\n";
  }
}

// With deadlines. A round that a thread waits in vain leaves its `give` out, so whatever is not there in the
// end was lost.
const Script kTimedReader{{Op::take_timed, 1}, {Op::give, 1}},
    kTimedWriter{{Op::take_timed, kAll}, {Op::give, kAll}};

TEST(PermitsWalk, DeadlinesOfASemaphore) {
  expect_exhausted(walk({times(2, kTimedReader), kReader, kReader}, permits(1), 1));
  expect_exhausted(walk({kTimedReader, kTimedReader, kReader}, permits(1), 1));
  expect_exhausted(walk({kTimedReader, kTimedReader, kTimedReader}, permits(0), 0));  // no thread gives
  // the untimed one gets it in the end
  expect_exhausted(walk({{{Op::give, 1}}, kTimedReader, {{Op::take, 1}}}, permits(0), ~0u));
}
TEST(PermitsWalk, DeadlinesOfReadersAndWriters) {
  // readers behind a writer that gives up
  expect_exhausted(walk({kReader, kTimedWriter, kReader}, permits(kAll), kAll));
  expect_exhausted(walk({kWriter, kTimedWriter, kTimedReader}, permits(kAll), kAll));
}
// No other thread uses it then: the one that waited may destroy it, whether it was granted or let go.
TEST(PermitsWalk, WhoWaitedWithADeadlineMayDestroyIt) {
  const Op destroy{Op::destroy, static_cast<std::uint32_t>(permits(0))};
  expect_exhausted(walk({{{Op::give, 1}}, {{Op::take_timed, 1}, destroy}}, permits(0), ~0u));
  expect_exhausted(walk({{{Op::take_timed, 1}, {Op::give, 1}, destroy}}, permits(0), ~0u));
  EXPECT_FALSE(
      walk({{{Op::give, 1}}, {{Op::take_timed, 1}, destroy}}, permits(0), ~0u, Mutation::goes_at_once).ok());
}
TEST(PermitsWalk, FindsMutantsOfDeadlines) {
  const std::vector<Script> semaphore{kTimedReader, kTimedReader, kReader};
  for (const auto& [mutation, name] :
       {std::pair{Mutation::leave_not_noted, "leave_not_noted"},
        std::pair{Mutation::goes_at_once, "goes_at_once"},
        std::pair{Mutation::grant_forgotten, "grant_forgotten"}, std::pair{Mutation::all_leave, "all_leave"},
        std::pair{Mutation::none_leave, "none_leave"}, std::pair{Mutation::links_lost, "links_lost"},
        std::pair{Mutation::notes_lost, "notes_lost"}}) {
    // Where a time-out is lost, only threads that never get a permit notice it.
    const bool never = mutation == Mutation::leave_not_noted || mutation == Mutation::none_leave;
    const auto o = never ? walk({kTimedReader, kTimedReader}, permits(0), 0, mutation)
                         : walk(semaphore, permits(1), 1, mutation);
    EXPECT_FALSE(o.ok()) << name;
    std::cout << name << ": " << o.why << "\n";
  }
}

TEST(LatchWalk, WaitersAndCounters) {
  const Script down{{Op::count_down, 1}}, waits{{Op::wait}};
  expect_exhausted(walk({down, down, waits, waits}, LatchWord{2, kNoSlot}.pack(), ~0u));
  expect_exhausted(walk({{{Op::count_down, 2}, {Op::wait}}, {{Op::count_down, 1}, {Op::wait}}, waits},
                        LatchWord{3, kNoSlot}.pack(), ~0u));
}
TEST(LatchWalk, WhoPassedMayDestroyIt) {
  const Script down{{Op::count_down, 1}};
  expect_exhausted(walk({down, down, {{Op::wait}, {Op::destroy, 0}}}, LatchWord{2, kNoSlot}.pack(), ~0u));
}
TEST(LatchWalk, FindsMutants) {
  const std::vector<Script> scripts{{{Op::wait}}, {{Op::wait}}, {{Op::count_down, 1}}};
  EXPECT_FALSE(walk(scripts, LatchWord{1, kNoSlot}.pack(), ~0u, Mutation::wake_dropped).ok());
  EXPECT_FALSE(walk(scripts, LatchWord{1, kNoSlot}.pack(), ~0u, Mutation::links_lost).ok());
}

}  // namespace
}  // namespace kasane::ult::test
