// SPDX-License-Identifier: Apache-2.0
// Threads that use one mutex, one condition variable and one barrier, as a System for model/explorer.h. The
// machines are those that ship; here each of their steps is one indivisible access to three records, taken in
// every order.
//
// A thread that waits for the condition variable leaves an *agent* behind: what its worker still does for it
// (push, then unlock) while it may already be awake elsewhere. A thread that waits with a deadline has a
// timer, which may fire at any moment from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "model/explorer.h"
#include "ult/layout.h"
#include "ult/sync/barrier_record.h"
#include "ult/sync/condition_variable_record.h"
#include "ult/sync/mutex_record.h"
#include "ult/timed_wait.h"
#include "unit/ult_sync/machine_step.h"

namespace kasane::ult::test {

inline constexpr std::uint32_t kThreads = 4;

struct Op {
  enum Kind : std::uint32_t {
    lock,
    unlock,
    add,
    wait_until,
    wait_timed,
    notify_one,
    notify_all,
    hand_on,
    barrier,
    arrive,
    arrive_twice,
    await,
    drop,
    end
  };
  Kind kind = end;
  /// wait_until: data >= value; wait_timed: or its deadline has passed. hand_on: notify_one, unless the
  /// deadline of the last wait has passed.
  std::uint32_t value = 0;
};
using Script = std::vector<Op>;

/// A rule taken away: the walk must find what it was for.
enum class Mutation {
  none,
  unlock_before_push,
  last_not_written,
  relock_dropped,
  timer_before_push,  ///< the deadline counts before the thread is in the list
  leave_not_noted,    ///< a timer that finds a server does not tell it
  goes_at_once,       ///< a settled thread is requeued although its timer is not done
  notice_forgotten,   ///< notified while the timer asks: taken for expired
  all_leave,          ///< the server also lets waiters go that have no expired timer
  lowered_too_late,   ///< a thread that drops out of the barrier arrives first
  phase_not_seen,     ///< a thread that waits for a phase of the barrier does not check whether it is over
};

/// What runs a notification: a thread, or a timer.
struct ModelNotifier {
  ConditionNotify notify;
  MutexLock relock;  ///< of the waiter that notify moves
  std::uint32_t relocking, relocked_slot;
  std::uint64_t result, relock_result;
};

struct ModelThread {
  enum Status : std::uint32_t { running, machine, suspended, check_last, lowering };
  std::uint32_t op, status, ready, arrivals, expired, pad;
  std::uint64_t result;
  MutexLock lock;
  MutexUnlock unlock;
  ModelNotifier notifier;
  BarrierCall call;
  std::uint32_t token, gone;  ///< of the barrier: the phase of the last arrival; has it dropped out?
};

struct ModelTimer {
  enum Doing : std::uint32_t { nothing, set, asking, asked, requeueing };
  std::uint32_t doing, pad;
  std::uint64_t round;  ///< what it runs is its thread's notifier, since that waits meanwhile
};

struct ModelAgent {
  enum Doing : std::uint32_t { nothing, pushing, unlocking };
  std::uint32_t doing, timed;
  std::uint64_t result;
  ConditionWait wait;
  MutexUnlock unlock;
};

struct SyncState {
  Word m_word, m_fifo, m_last, c_word, c_fifo, b_word, b_n, next[kThreads], timed[kThreads];
  Word last;  ///< what m_last is to be
  std::uint32_t inside, data;
  ModelThread threads[kThreads];
  ModelTimer timers[kThreads];
  ModelAgent agents[kThreads][2];
  std::uint64_t broken;  ///< 1 + index in kWrong
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
    for (auto& t : s.timers) t = ModelTimer{};
    for (auto& pair : s.agents)
      for (auto& a : pair) a = ModelAgent{};
    s.b_n = arrivals();
    // so that the phase wraps
    s.b_word = BarrierWord{static_cast<std::uint32_t>(s.b_n), 0xFF, kNoSlot}.pack();
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint32_t i = 0; i < count(); ++i) {
      State n = s;
      if (step_thread(n, i))
        emit(n, model::Step{0, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(op(s, i).kind)});
      if (s.timers[i].doing != ModelTimer::nothing) {
        State t = s;
        step_timer(t, i);
        emit(t, model::Step{2, static_cast<std::uint8_t>(i), 0});
      }
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
    static constexpr const char* kOps[] = {
        "lock",    "unlock",  "add",    "wait_until",   "wait_timed", "notify_one", "notify_all",
        "hand_on", "barrier", "arrive", "arrive_twice", "await",      "drop",       "end"};
    const std::string who = (step.kind == 2   ? "timer of thread "
                             : step.kind == 1 ? "agent of thread "
                                              : "thread ") +
                            std::to_string(step.actor);
    return step.kind != 0 ? who : who + " in " + kOps[step.detail];
  }
  std::string show(const State& s) const {
    std::string text = "mutex " + std::to_string(s.m_word >> 32) + "|" +
                       std::to_string(s.m_word & 0xFFFFFFFF) + " fifo " + std::to_string(s.m_fifo) +
                       " condition " + std::to_string(s.c_word) + " fifo " + std::to_string(s.c_fifo) +
                       " barrier " + std::to_string(s.b_word) + " data " + std::to_string(s.data);
    for (std::uint32_t i = 0; i < count(); ++i)
      text += " t" + std::to_string(i) + ":op" + std::to_string(s.threads[i].op) + "/" +
              std::to_string(s.threads[i].status);
    return text;
  }

 private:
  static constexpr const char* kWrong[] = {"a thread is woken that does not wait", "a thread is woken twice",
                                           "`last` is not the rank of the last holder", "a machine refused",
                                           "a thread passed the barrier before all had arrived"};
  enum Wrong : std::uint64_t { not_waiting = 1, twice, wrong_last, refused, early };

  std::uint32_t count() const { return static_cast<std::uint32_t>(scripts_.size()); }
  /// That the barrier is for.
  std::uint32_t arrivals() const {
    std::uint32_t n = 0;
    for (const Script& script : scripts_)
      n += std::any_of(script.begin(), script.end(), [](const Op& o) { return o.kind == Op::arrive_twice; })
               ? 2
               : 1;
    return n;
  }
  const Op& op(const State& s, std::uint32_t i) const { return scripts_[i][s.threads[i].op]; }

  // ---- one access ----

  enum class Record { mutex, condition, barrier };

  static Word& field(State& s, Record r, SyncField f) {
    switch (r) {
      case Record::mutex: return f == SyncField::word ? s.m_word : f == SyncField::fifo ? s.m_fifo : s.m_last;
      case Record::condition: return f == SyncField::word ? s.c_word : s.c_fifo;
      case Record::barrier: return f == SyncField::word ? s.b_word : s.b_n;
    }
    return s.m_word;
  }

  Word perform(State& s, Record r, const SyncStep& step) const {
    if (step.kind == SyncStep::Kind::wake) return wake(s, raw(step.slot));
    if (step.field == SyncField::next) {
      Word& link = s.next[raw(step.slot)];
      if (step.kind == SyncStep::Kind::load) return link;
      link = step.value;
      return 0;
    }
    if (step.field == SyncField::timed)
      return mutation_ == Mutation::all_leave ? TimedWord{1, TimedState::left}.pack()
                                              : s.timed[raw(step.slot)];
    Word& word = field(s, r, step.field);
    const Word old = word;
    if (step.kind == SyncStep::Kind::store &&
        !(mutation_ == Mutation::last_not_written && step.field == SyncField::last))
      word = step.value;
    if (step.kind == SyncStep::Kind::compare_swap && old == step.expected) {
      word = step.value;
      if (mutation_ == Mutation::leave_not_noted && r == Record::condition &&
          ConditionWord::unpack(old).serving) {
        ConditionWord w = ConditionWord::unpack(word);
        w.leaving = w.leaving && ConditionWord::unpack(old).leaving;
        word = w.pack();
      }
    }
    return old;
  }

  /// One event of i's wait with a deadline.
  TimedAction turn(State& s, std::uint32_t i, TimedEvent event, std::uint64_t round = 0) const {
    TimedWord w = TimedWord::unpack(s.timed[i]);
    const bool settles = event == TimedEvent::grant || event == TimedEvent::expire;
    if (mutation_ == Mutation::goes_at_once && settles && w.leaving()) w.state = TimedState::left;
    if (mutation_ == Mutation::notice_forgotten && w.state == TimedState::granted_asking)
      w.state = TimedState::expired_asking;
    const TimedStep step = ult::next(w, event, round);
    s.timed[i] = step.next.pack();
    if (step.action == TimedAction::refuse) s.broken = refused;
    return step.action;
  }

  // A timer whose thread has gone on, and waits again, may still fire: its round is over then.
  void step_timer(State& s, std::uint32_t i) const {
    ModelTimer& t = s.timers[i];
    ModelNotifier& notifier = s.threads[i].notifier;
    switch (t.doing) {
      case ModelTimer::set: {
        const bool ask = turn(s, i, TimedEvent::due, t.round) == TimedAction::ask;
        t = ModelTimer{};
        if (!ask) return;
        t.doing = ModelTimer::asking;
        notifier.notify = ConditionNotify::leave();
        return;
      }
      case ModelTimer::asking:
        if (run_notify(s, notifier)) t.doing = ModelTimer::asked;
        return;
      case ModelTimer::asked:
        t = ModelTimer{};
        if (turn(s, i, TimedEvent::asked) != TimedAction::go) return;
        t.doing = ModelTimer::requeueing;
        begin_relock(notifier, SlotId{i});
        return;
      case ModelTimer::requeueing:
        if (!run_relock(s, notifier)) return;
        notifier = ModelNotifier{};
        t = ModelTimer{};
        return;
      default: return;
    }
  }

  static Word wake(State& s, std::uint32_t i) {
    if (s.threads[i].status != ModelThread::suspended) s.broken = not_waiting;
    if (s.threads[i].ready != 0) s.broken = twice;
    s.threads[i].ready = 1;
    return 0;
  }

  template <class Machine>
  bool advance(State& s, Record r, Machine& m, std::uint64_t& result) const {
    return advance_machine(m, result, [&](const SyncStep& step) { return perform(s, r, step); });
  }

  // ---- threads ----

  bool step_thread(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    if (t.status == ModelThread::suspended) return t.ready != 0 && (resume(s, i), true);
    if (t.status == ModelThread::check_last) {
      if (s.m_last != s.last) s.broken = wrong_last;
      t.status = ModelThread::running;
      if (op(s, i).kind == Op::lock || t.expired == 2) ++t.op;
      t.expired = t.expired != 0 ? 1 : 0;
      return true;
    }
    if (t.status == ModelThread::machine) return run_machine(s, i), true;
    if (t.status == ModelThread::lowering) return --s.b_n, next_op(t), true;
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
        leave(s, i, mark_of_unlock(i));
        t.unlock = MutexUnlock(self, Rank{ranks_[i]}, mark_of_unlock(i));
        return run_machine(s, i);
      case Op::add:
        ++s.data;
        ++t.op;
        t.status = ModelThread::running;
        return;
      case Op::wait_until:
      case Op::wait_timed: return begin_wait(s, i);
      case Op::hand_on:
        if (t.expired != 0) return next_op(t);
        [[fallthrough]];
      case Op::notify_one:
      case Op::notify_all:
        t.notifier.notify = ConditionNotify(o.kind == Op::notify_all);
        return run_machine(s, i);
      case Op::barrier:
      case Op::arrive:
      case Op::arrive_twice:
      case Op::drop:
        ++t.arrivals;
        t.gone = o.kind == Op::drop ? 1 : 0;
        t.call = o.kind == Op::barrier ? BarrierCall::arrive_and_wait(self, true)
                 : o.kind == Op::drop && mutation_ != Mutation::lowered_too_late
                     ? BarrierCall::drop()
                     : BarrierCall::arrive(o.kind == Op::arrive_twice ? 2 : 1);
        return run_machine(s, i);
      case Op::await:
        t.call = BarrierCall::wait(
            self, true,
            mutation_ == Mutation::phase_not_seen ? BarrierWord::unpack(s.b_word).phase : t.token);
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
    leave(s, i, kNoMark);
    t.status = ModelThread::suspended;
    ModelAgent& a = s.agents[i][s.agents[i][0].doing == ModelAgent::nothing ? 0 : 1];
    a = ModelAgent{};
    a.doing = mutation_ == Mutation::unlock_before_push ? ModelAgent::unlocking : ModelAgent::pushing;
    a.timed = op(s, i).kind == Op::wait_timed ? 1 : 0;
    a.wait = ConditionWait(SlotId{i}, a.timed != 0);
    if (a.timed != 0) turn(s, i, TimedEvent::arm);
    if (a.timed != 0 && mutation_ == Mutation::timer_before_push) set_timer(s, i);
    a.unlock = MutexUnlock(SlotId{i}, Rank{ranks_[i]});
  }

  void run_machine(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    switch (op(s, i).kind) {
      case Op::lock:
        if (!advance(s, Record::mutex, t.lock, t.result)) return;
        if (t.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
        if (t.result == static_cast<Word>(MutexAction::acquired))
          enter(s, i);
        else
          t.status = ModelThread::suspended;
        break;
      case Op::unlock:
        if (!advance(s, Record::mutex, t.unlock, t.result)) return;
        if (t.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
        next_op(t);
        break;
      case Op::hand_on:
      case Op::notify_one:
      case Op::notify_all:
        if (run_notify(s, t.notifier)) next_op(t);
        return;
      case Op::barrier:
      case Op::arrive:
      case Op::arrive_twice:
      case Op::drop:
      case Op::await:
        if (!advance(s, Record::barrier, t.call, t.result)) return;
        end_call(s, i, BarrierCall::action_of(t.result), BarrierCall::phase_of(t.result));
        break;
      default: break;
    }
    t.result = 0;
  }

  // True: it has ended.
  bool run_notify(State& s, ModelNotifier& n) const {
    if (n.relocking != 0) {
      if (!run_relock(s, n)) return false;
      return end_of_notify(n);
    }
    const SyncStep step = n.notify.next(n.result);
    n.result = 0;
    const bool requeue = step.kind == SyncStep::Kind::requeue;
    if (requeue || step.kind == SyncStep::Kind::settle) {
      const bool granted = static_cast<TimedOutcome>(step.value) == TimedOutcome::granted;
      const bool goes = requeue || turn(s, raw(step.slot),
                                        granted ? TimedEvent::grant : TimedEvent::expire) == TimedAction::go;
      if (!goes || mutation_ == Mutation::relock_dropped) return end_of_notify(n);
      begin_relock(n, step.slot);
      return false;
    }
    n.result = perform(s, Record::condition, step);
    return end_of_notify(n);
  }
  static bool end_of_notify(ModelNotifier& n) {
    ConditionNotify peek = n.notify;
    if (peek.next(n.result).kind != SyncStep::Kind::done) return false;
    n = ModelNotifier{};
    return true;
  }
  static void begin_relock(ModelNotifier& n, SlotId slot) {
    n.relocking = 1;
    n.relocked_slot = raw(slot);
    n.relock = MutexLock(slot, true);
  }
  bool run_relock(State& s, ModelNotifier& n) const {
    if (!advance(s, Record::mutex, n.relock, n.relock_result)) return false;
    if (n.relock_result == static_cast<Word>(MutexAction::acquired)) wake(s, n.relocked_slot);
    n.relocking = n.relocked_slot = 0;
    n.relock_result = 0;
    return true;
  }

  void resume(State& s, std::uint32_t i) const {
    s.threads[i].ready = 0;
    if (op(s, i).kind == Op::barrier || op(s, i).kind == Op::await) return pass(s, i);
    if (op(s, i).kind == Op::wait_timed) {
      s.threads[i].expired = TimedWord::unpack(s.timed[i]).state == TimedState::expired ? 2 : 0;
      turn(s, i, TimedEvent::collect);
      s.timers[i] = rings_later(s, i) ? s.timers[i] : ModelTimer{};
    }
    enter(s, i);
  }
  /// Does i wait again with a deadline? Else a timer of a round that is over is as good as none.
  bool rings_later(const State& s, std::uint32_t i) const {
    for (std::size_t k = s.threads[i].op; k < scripts_[i].size(); ++k)
      if (scripts_[i][k].kind == Op::wait_timed) return true;
    return false;
  }
  static void set_timer(State& s, std::uint32_t i) {
    s.timers[i] = ModelTimer{};
    s.timers[i].doing = ModelTimer::set;
    s.timers[i].round = TimedWord::unpack(s.timed[i]).round;
  }
  void enter(State& s, std::uint32_t i) const {
    s.inside |= 1u << i;
    s.threads[i].status = ModelThread::check_last;
  }
  /// Of two threads one has a mark.
  static ReleaseMark mark_of_unlock(std::uint32_t i) { return i % 2 == 1 ? i : kNoMark; }
  void leave(State& s, std::uint32_t i, ReleaseMark mark) const {
    s.inside &= ~(1u << i);
    s.last = last_of(Rank{ranks_[i]}, mark);
  }
  void end_call(State& s, std::uint32_t i, BarrierAction outcome, std::uint32_t phase) const {
    ModelThread& t = s.threads[i];
    const Op::Kind kind = op(s, i).kind;
    if (outcome == BarrierAction::refuse || outcome == BarrierAction::declined) {
      s.broken = refused;
    } else if (outcome == BarrierAction::wait) {
      t.status = ModelThread::suspended;
    } else if (kind == Op::barrier || kind == Op::await) {
      pass(s, i);
    } else if (kind == Op::drop && mutation_ == Mutation::lowered_too_late) {
      t.status = ModelThread::lowering;
    } else {
      t.token = kind == Op::drop ? 0 : phase;
      next_op(t);
    }
  }
  void pass(State& s, std::uint32_t i) const {
    for (std::uint32_t j = 0; j < count(); ++j)
      if (s.threads[j].arrivals < s.threads[i].arrivals && s.threads[j].gone == 0) s.broken = early;
    s.threads[i].token = 0;
    next_op(s.threads[i]);
  }
  static void next_op(ModelThread& t) {
    ++t.op;
    t.status = ModelThread::running;
    t.result = 0;
  }

  void step_agent(State& s, std::uint32_t i, ModelAgent& a) const {
    if (a.doing == ModelAgent::pushing) {
      if (!advance(s, Record::condition, a.wait, a.result)) return;
      a.result = 0;
      if (mutation_ == Mutation::unlock_before_push)
        a = ModelAgent{};
      else
        a.doing = ModelAgent::unlocking;
      return;
    }
    if (!advance(s, Record::mutex, a.unlock, a.result)) return;
    if (a.result == static_cast<Word>(MutexAction::refuse)) s.broken = refused;
    a.result = 0;
    if (mutation_ == Mutation::unlock_before_push)
      a.doing = ModelAgent::pushing;
    else {
      // Its round, though the thread may have gone on: later ones have their own.
      const TimedWord w = TimedWord::unpack(s.timed[i]);
      if (a.timed != 0 && w.state != TimedState::idle && mutation_ != Mutation::timer_before_push &&
          s.timers[i].doing == ModelTimer::nothing)
        set_timer(s, i);
      a = ModelAgent{};
    }
  }

  std::vector<Script> scripts_;
  std::vector<std::uint32_t> ranks_;
  Mutation mutation_;
};

}  // namespace kasane::ult::test
