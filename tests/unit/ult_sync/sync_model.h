// SPDX-License-Identifier: Apache-2.0
// Threads that use one mutex, one condition variable and one barrier, as a System for model/explorer.h. The machines are those
// that ship; here each of their steps is one indivisible access to three records, taken in every order.
//
// A thread that waits for the condition variable leaves an *agent* behind: what its worker still does for it (push, then
// unlock) while it may already be awake elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "model/explorer.h"
#include "ult/barrier_record.h"
#include "ult/condition_variable_record.h"
#include "ult/layout.h"
#include "ult/mutex_record.h"

namespace kasane::ult::test {

inline constexpr std::uint32_t kThreads = 4;

struct Op {
  enum Kind : std::uint32_t { lock, unlock, add, wait_until, notify_one, notify_all, barrier, end };
  Kind kind = end;
  std::uint32_t value = 0;   ///< wait_until: data >= value
};
using Script = std::vector<Op>;

/// A rule taken away: the walk must find what it was for.
enum class Mutation { none, unlock_before_push, last_not_written, relock_dropped };

struct ModelThread {
  enum Status : std::uint32_t { running, machine, suspended, check_last };
  std::uint32_t op, status, ready, arrivals;
  std::uint64_t result;
  MutexLock lock;
  MutexUnlock unlock;
  std::uint32_t no_padding;
  ConditionNotify notify;
  BarrierArrival arrival;
  MutexLock relock;                 ///< of the waiter that notify moves
  std::uint32_t relocking, relocked_slot;
  std::uint64_t relock_result;
};

struct ModelAgent {
  enum Doing : std::uint32_t { nothing, pushing, unlocking };
  std::uint32_t doing, pad;
  std::uint64_t result;
  ConditionWait wait;
  MutexUnlock unlock;
  std::uint32_t no_padding;
};

struct SyncState {
  Word m_word, m_fifo, m_last, c_word, c_fifo, b_word;
  std::uint32_t next[kThreads], inside, data, last_rank, pad;
  ModelThread threads[kThreads];
  ModelAgent agents[kThreads][2];
  std::uint64_t broken;   ///< 1 + index in kWrong
};
static_assert(std::has_unique_object_representations_v<SyncState>);

class SyncModel {
 public:
  using State = SyncState;

  SyncModel(std::vector<Script> scripts, std::vector<std::uint32_t> ranks, Mutation mutation = Mutation::none)
      : scripts_(std::move(scripts)), ranks_(std::move(ranks)), mutation_(mutation) {
    for (Script& s : scripts_) s.push_back({});
  }

  State initial() const {
    State s{};
    for (auto& t : s.threads) t = ModelThread{};
    for (auto& pair : s.agents)
      for (auto& a : pair) a = ModelAgent{};
    s.b_word = BarrierWord{count(), kNoSlot}.pack();
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint32_t i = 0; i < count(); ++i) {
      State n = s;
      if (step_thread(n, i)) emit(n, model::Step{0, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(op(s, i).kind)});
      for (std::uint32_t k = 0; k < 2; ++k) {
        if (s.agents[i][k].doing == ModelAgent::nothing) continue;
        State a = s;
        step_agent(a, i, a.agents[i][k]);
        emit(a, model::Step{1, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(k)});
      }
    }
  }

  const char* violation(const State& s) const {
    if (s.broken != 0) return kWrong[s.broken - 1];
    return (s.inside & (s.inside - 1)) != 0 ? "two threads hold the mutex" : nullptr;
  }
  bool finished(const State& s) const {
    for (std::uint32_t i = 0; i < count(); ++i) {
      if (op(s, i).kind != Op::end || s.threads[i].status != ModelThread::running) return false;
      for (const auto& a : s.agents[i])
        if (a.doing != ModelAgent::nothing) return false;
    }
    return s.m_word == 0 && s.m_fifo == 0 && s.c_word == 0 && s.c_fifo == 0;
  }
  std::string name(const model::Step& step) const {
    static constexpr const char* kOps[] = {"lock", "unlock", "add", "wait_until", "notify_one", "notify_all", "barrier", "end"};
    const std::string who = (step.kind == 1 ? "agent of thread " : "thread ") + std::to_string(step.actor);
    return step.kind == 1 ? who : who + " in " + kOps[step.detail];
  }
  std::string show(const State& s) const {
    std::string text = "mutex " + std::to_string(s.m_word >> 32) + "|" + std::to_string(s.m_word & 0xFFFFFFFF) + " fifo " +
                       std::to_string(s.m_fifo) + " condition " + std::to_string(s.c_word) + " fifo " + std::to_string(s.c_fifo) +
                       " barrier " + std::to_string(s.b_word) + " data " + std::to_string(s.data);
    for (std::uint32_t i = 0; i < count(); ++i)
      text += " t" + std::to_string(i) + ":op" + std::to_string(s.threads[i].op) + "/" + std::to_string(s.threads[i].status);
    return text;
  }

 private:
  static constexpr const char* kWrong[] = {"a thread is woken that does not wait", "a thread is woken twice",
                                           "`last` is not the rank of the last holder", "a machine refused",
                                           "a thread passed the barrier before all had arrived"};
  enum Wrong : std::uint64_t { not_waiting = 1, twice, wrong_last, refused, early };

  std::uint32_t count() const { return static_cast<std::uint32_t>(scripts_.size()); }
  const Op& op(const State& s, std::uint32_t i) const { return scripts_[i][s.threads[i].op]; }

  // ---- one access -------------------------------------------------------------------------------------------------

  enum class Record { mutex, condition, barrier };

  static Word& field(State& s, Record r, SyncField f, Word& n) {
    switch (r) {
      case Record::mutex: return f == SyncField::word ? s.m_word : f == SyncField::fifo ? s.m_fifo : s.m_last;
      case Record::condition: return f == SyncField::word ? s.c_word : s.c_fifo;
      case Record::barrier: return f == SyncField::word ? s.b_word : n;
    }
    return n;
  }

  Word perform(State& s, Record r, const SyncStep& step) const {
    Word n = count();   // the barrier's data0
    if (step.kind == SyncStep::Kind::wake) return wake(s, raw(step.slot));
    if (step.field == SyncField::next) {
      std::uint32_t& link = s.next[raw(step.slot)];
      if (step.kind == SyncStep::Kind::load) return link;
      link = static_cast<std::uint32_t>(step.value);
      return 0;
    }
    Word& word = field(s, r, step.field, n);
    const Word old = word;
    if (step.kind == SyncStep::Kind::store && !(mutation_ == Mutation::last_not_written && step.field == SyncField::last))
      word = step.value;
    if (step.kind == SyncStep::Kind::compare_swap && old == step.expected) word = step.value;
    return old;
  }

  static Word wake(State& s, std::uint32_t i) {
    if (s.threads[i].status != ModelThread::suspended) s.broken = not_waiting;
    if (s.threads[i].ready != 0) s.broken = twice;
    s.threads[i].ready = 1;
    return 0;
  }

  /// One step of a machine. True if it has ended, with its outcome in result; it is set back then, so that equal situations are equal states.
  template <class Machine>
  bool advance(State& s, Record r, Machine& m, std::uint64_t& result) const {
    const SyncStep step = m.next(result);
    result = perform(s, r, step);
    Machine peek = m;
    const SyncStep after = peek.next(result);
    if (after.kind != SyncStep::Kind::done) return false;
    result = after.value;
    m = Machine();
    return true;
  }

  // ---- threads ----------------------------------------------------------------------------------------------------

  bool step_thread(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    if (t.status == ModelThread::suspended) return t.ready != 0 && (resume(s, i), true);
    if (t.status == ModelThread::check_last) {
      if (s.m_last != (s.last_rank == 0 ? 0 : s.last_rank)) s.broken = wrong_last;
      t.status = ModelThread::running;
      if (op(s, i).kind == Op::lock) ++t.op;
      return true;
    }
    if (t.status == ModelThread::machine) return run_machine(s, i), true;
    return op(s, i).kind != Op::end && (begin(s, i), true);
  }

  void begin(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    const Op& o = op(s, i);
    const SlotId self{i};
    t.result = 0;
    t.status = ModelThread::machine;
    switch (o.kind) {
      case Op::lock: t.lock = MutexLock(self, false); return run_machine(s, i);
      case Op::unlock:
        leave(s, i);
        t.unlock = MutexUnlock(self, Rank{ranks_[i]});
        return run_machine(s, i);
      case Op::add:
        ++s.data;
        ++t.op;
        t.status = ModelThread::running;
        return;
      case Op::wait_until: return begin_wait(s, i);
      case Op::notify_one:
      case Op::notify_all: t.notify = ConditionNotify(o.kind == Op::notify_all); return run_machine(s, i);
      case Op::barrier:
        ++t.arrivals;
        t.arrival = BarrierArrival(self, true);
        return run_machine(s, i);
      case Op::end: return;
    }
  }

  void begin_wait(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    if (s.data >= op(s, i).value) {
      ++t.op;
      t.status = ModelThread::running;
      return;
    }
    leave(s, i);
    t.status = ModelThread::suspended;
    ModelAgent& a = s.agents[i][s.agents[i][0].doing == ModelAgent::nothing ? 0 : 1];
    a = ModelAgent{};
    a.doing = mutation_ == Mutation::unlock_before_push ? ModelAgent::unlocking : ModelAgent::pushing;
    a.wait = ConditionWait(SlotId{i});
    a.unlock = MutexUnlock(SlotId{i}, Rank{ranks_[i]});
  }

  void run_machine(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    switch (op(s, i).kind) {
      case Op::lock:
        if (!advance(s, Record::mutex, t.lock, t.result)) return;
        if (t.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
        if (t.result == static_cast<Word>(MutexAction::acquired)) enter(s, i);
        else t.status = ModelThread::suspended;
        break;
      case Op::unlock:
        if (!advance(s, Record::mutex, t.unlock, t.result)) return;
        if (t.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
        next_op(t);
        break;
      case Op::notify_one:
      case Op::notify_all: return run_notify(s, t);
      case Op::barrier:
        if (!advance(s, Record::barrier, t.arrival, t.result)) return;
        if (t.result == static_cast<Word>(BarrierAction::open)) pass(s, i);
        else t.status = ModelThread::suspended;
        break;
      default: break;
    }
    t.result = 0;
  }

  void run_notify(State& s, ModelThread& t) const {
    if (t.relocking != 0) {
      if (!advance(s, Record::mutex, t.relock, t.relock_result)) return;
      if (t.relock_result == static_cast<Word>(MutexAction::acquired)) wake(s, t.relocked_slot);
      t.relocking = t.relocked_slot = 0;
      t.relock_result = 0;
      return end_of_notify(t);
    }
    const SyncStep step = t.notify.next(t.result);
    t.result = 0;
    if (step.kind == SyncStep::Kind::requeue) {
      if (mutation_ == Mutation::relock_dropped) return end_of_notify(t);
      t.relocking = 1;
      t.relocked_slot = raw(step.slot);
      t.relock = MutexLock(step.slot, true);
      return;
    }
    t.result = perform(s, Record::condition, step);
    end_of_notify(t);
  }
  static void end_of_notify(ModelThread& t) {
    ConditionNotify peek = t.notify;
    if (peek.next(t.result).kind != SyncStep::Kind::done) return;
    t.notify = ConditionNotify();
    next_op(t);
  }

  void resume(State& s, std::uint32_t i) const {
    s.threads[i].ready = 0;
    if (op(s, i).kind == Op::barrier) return pass(s, i);
    enter(s, i);
  }
  void enter(State& s, std::uint32_t i) const {
    s.inside |= 1u << i;
    s.threads[i].status = ModelThread::check_last;
  }
  void leave(State& s, std::uint32_t i) const {
    s.inside &= ~(1u << i);
    s.last_rank = ranks_[i] + 1;
  }
  void pass(State& s, std::uint32_t i) const {
    for (std::uint32_t j = 0; j < count(); ++j)
      if (s.threads[j].arrivals < s.threads[i].arrivals) s.broken = early;
    next_op(s.threads[i]);
  }
  static void next_op(ModelThread& t) {
    ++t.op;
    t.status = ModelThread::running;
    t.result = 0;
  }

  void step_agent(State& s, std::uint32_t, ModelAgent& a) const {
    if (a.doing == ModelAgent::pushing) {
      if (!advance(s, Record::condition, a.wait, a.result)) return;
      a.result = 0;
      if (mutation_ == Mutation::unlock_before_push) a = ModelAgent{};
      else a.doing = ModelAgent::unlocking;
      return;
    }
    if (!advance(s, Record::mutex, a.unlock, a.result)) return;
    if (a.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
    a.result = 0;
    if (mutation_ == Mutation::unlock_before_push) a.doing = ModelAgent::pushing;
    else a = ModelAgent{};
  }

  std::vector<Script> scripts_;
  std::vector<std::uint32_t> ranks_;
  Mutation mutation_;
};

}  // namespace kasane::ult::test
