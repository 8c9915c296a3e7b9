// SPDX-License-Identifier: Apache-2.0
// Continuations that move between ranks, as a System for the explorer: workers run fork-join scripts
// work-first; parents' continuations lie in Chase–Lev deques from which workers of the same rank and of other
// ranks steal; joins meet exits in the join record. Decisions come from the shipping sched::Theft and
// ult::next(JoinRecord, JoinEvent); the deque's accesses are those of base/deque.h, one step each.
//
// Memory is the specification that the coherence model proves: each rank has a copy (none, clean, dirty) of
// each variable; a release of a rank writes its dirty copies to the owner, an acquire drops its copies. A
// stack variable's owner changes with adopt.
//
// Checked: a continuation is run by one worker at a time and only with its registers saved; every load
// returns the ghost's value; every thread ends (an idle worker has a step only where it sees work, so a lost
// wake-up is a deadlock).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/explorer.h"
#include "sched/steal.h"
#include "ult/join_record.h"

namespace kasane::model {

enum class StealMutation : std::uint8_t {
  none,
  /// the victim releases before the thief looks at the deque instead of after the claim
  release_before_claim,
  no_release,            ///< a thief does not ask the victim's rank to release
  no_acquire,            ///< a thief does not acquire
  adopt_before_release,  ///< the stack arrives before others' and the victim's writes do
  bottom_before_top,     ///< the bottom that counts is the one read before top
  pop_without_swap,      ///< the owner takes the last entry without a compare-swap
  push_before_save,      ///< the continuation is published before its registers are saved
  publish_before_save,   ///< a joiner publishes itself before its registers are saved
  join_without_release,  ///< a join does not ask the exit rank to release
  join_without_acquire,
  resumed_without_cross,  ///< a joiner that blocked goes on without a fence
  no_wake,                ///< the exiter forgets the waiter
  arrive_for_nothing,     ///< a thread that moved here without a theft is run as if it had last run here
  end_without_swap,       ///< a thread that returns to its parent reads the record and stores to it
  end_without_fence,      ///< …, and looks at top before its store to bottom is seen
};

enum class Ult : std::uint8_t { load, store, fork, join, move, end };
struct UltInstr {
  Ult what = Ult::end;
  std::uint8_t arg = 0;  ///< variable, or thread
  std::uint8_t value = 0;
};
inline UltInstr ld(int v) { return {Ult::load, static_cast<std::uint8_t>(v), 0}; }
inline UltInstr st(int v, int x) {
  return {Ult::store, static_cast<std::uint8_t>(v), static_cast<std::uint8_t>(x)};
}
inline UltInstr fk(int t) { return {Ult::fork, static_cast<std::uint8_t>(t), 0}; }
inline UltInstr jn(int t) { return {Ult::join, static_cast<std::uint8_t>(t), 0}; }

inline UltInstr mv(int r) { return {Ult::move, static_cast<std::uint8_t>(r), 0}; }

inline constexpr std::uint8_t kNobody = 0xFF;
inline constexpr std::uint8_t kHeapOfRank0 = 0xFF, kHeapOfRank1 = 0xFE;

struct ForkJoin {
  std::vector<std::vector<UltInstr>> threads;  ///< thread 0 is the root, on worker 0
  /// of each variable: the thread on whose stack it lies, or whose heap
  std::vector<std::uint8_t> stack_of;
  std::vector<std::uint8_t> rank_of_worker;
  StealMutation without = StealMutation::none;
};

/// W workers, T threads, V variables; two ranks.
template <std::uint8_t W, std::uint8_t T, std::uint8_t V>
class Stealing {
  static constexpr std::uint8_t R = 2, kRing = 4;
  enum Mode : std::uint8_t {
    kIdle,
    kRun,
    kPush,
    kExit,
    kEnd,
    kPop,
    kLocalSteal,
    kTheft,
    kJoin,
    kCross,
    kMove
  };

  struct Worker {
    sched::Theft theft;
    std::uint64_t result, result2;  // of the theft's last step
    std::uint8_t mode, sub, thread, victim, top, bottom, entry, source;
    std::uint8_t kind, stale_bottom, pad[6];
  };
  struct Thread {
    std::uint64_t join;  // the record
    std::uint8_t pc, saved, runner, alive, rank, resumed, pad[2];
  };
  struct Queue {
    std::uint8_t top, bottom, ring[kRing], pad[2];
  };

 public:
  struct State {
    Worker worker[W];
    Thread thread[T];
    Queue queue[W];
    std::uint8_t copy[R][V], valid[R][V];  // valid: 0 none, 1 clean, 2 dirty; the owner's copy is the master
    std::uint8_t owner[V], ghost[V];
    std::uint8_t ready[R];  // threads of the rank's ready list, a bit each
    std::uint8_t pad[(8 - (2 * R * V + 2 * V + R) % 8) % 8 + 8];
  };

  explicit Stealing(ForkJoin p) : p_(std::move(p)) {}

  State initial() const {
    State s;
    std::memset(static_cast<void*>(&s), 0, sizeof s);
    for (Worker& w : s.worker) {
      w.theft = sched::Theft{};
      w.thread = kNobody;
    }
    for (Thread& t : s.thread) t.runner = kNobody;
    for (std::uint8_t v = 0; v < V; ++v) s.owner[v] = p_.stack_of[v] == kHeapOfRank1 ? 1 : 0;
    begin(s, 0, 0);
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t w = 0; w < W; ++w) step(s, w, emit);
  }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State& s) const {
    for (std::uint8_t t = 0; t < T; ++t)
      if (s.thread[t].alive || s.thread[t].pc != p_.threads[t].size() + 1) return false;
    return true;
  }
  std::string name(const Step& x) const {
    static constexpr const char* kWords[] = {"idle: takes from the ready list",
                                             "idle: looks at its rank's deque",
                                             "loads",
                                             "stores",
                                             "forks: saves and writes the ring",
                                             "forks: bottom",
                                             "exits: record",
                                             "ends: bottom",
                                             "ends: record",
                                             "wakes",
                                             "pop: bottom",
                                             "pop: top",
                                             "pop: compare-swap",
                                             "pop: bottom back",
                                             "local steal",
                                             "theft",
                                             "join: saves",
                                             "join: record",
                                             "cross: source releases",
                                             "cross: acquires",
                                             "goes on",
                                             "moves: saves",
                                             "moves: ready list",
                                             "idle: brings from another rank's ready list"};
    static constexpr const char* kTheftWords[] = {"look",     "bottom",      "entry",  "claim",
                                                  "sp",       "ask_release", "adopt",  "acquire",
                                                  "set_rank", "done",        "arrived"};
    std::string t = "worker " + std::to_string(x.actor) + " (rank " +
                    std::to_string(p_.rank_of_worker[x.actor]) + ") " + kWords[x.kind];
    if (x.kind == sTheft) return t + " " + kTheftWords[x.detail];
    return t + " " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string t;
    for (std::uint8_t i = 0; i < T; ++i)
      t += "thread " + std::to_string(i) + " at " + std::to_string(s.thread[i].pc) +
           (s.thread[i].saved ? " saved" : "") + "; ";
    for (std::uint8_t v = 0; v < V; ++v)
      t += "v" + std::to_string(v) + " ghost " + std::to_string(s.ghost[v]) + " owner " +
           std::to_string(s.owner[v]) + " copies " + std::to_string(s.copy[0][v]) + "/" +
           std::to_string(s.copy[1][v]) + "; ";
    return t;
  }

 private:
  enum Said : std::uint16_t {
    sReady,
    sLocalLook,
    sLoad,
    sStore,
    sFork,
    sForkBottom,
    sExit,
    sEndBottom,
    sEndRecord,
    sWake,
    sPopBottom,
    sPopTop,
    sPopSwap,
    sPopBack,
    sLocal,
    sTheft,
    sJoinSave,
    sJoin,
    sRelease,
    sAcquire,
    sGoOn,
    sMoveSave,
    sMove,
    sBring
  };

  [[nodiscard]] bool without(StealMutation m) const noexcept { return p_.without == m; }
  [[nodiscard]] std::uint8_t rank(std::uint8_t w) const noexcept { return p_.rank_of_worker[w]; }
  static std::uint64_t wide(std::uint8_t x) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(x)));
  }
  static std::uint8_t narrow(std::uint64_t x) noexcept { return static_cast<std::uint8_t>(x); }

  // ---- memory ----
  void release(State& s, std::uint8_t r) const {
    for (std::uint8_t v = 0; v < V; ++v)
      if (s.owner[v] != r && s.valid[r][v] == 2) {
        s.copy[s.owner[v]][v] = s.copy[r][v];
        s.valid[r][v] = 1;
      }
  }
  void acquire(State& s, std::uint8_t r) const {
    release(s, r);
    for (std::uint8_t v = 0; v < V; ++v)
      if (s.owner[v] != r) drop(s, r, v);
  }
  static void drop(State& s, std::uint8_t r, std::uint8_t v) {
    s.valid[r][v] = 0;
    s.copy[r][v] = 0;
  }
  void adopt(State& s, std::uint8_t r, std::uint8_t thread) const {
    for (std::uint8_t v = 0; v < V; ++v) {
      if (p_.stack_of[v] != thread || s.owner[v] == r) continue;
      const std::uint8_t old = s.owner[v];
      if (s.valid[r][v] != 2) s.copy[r][v] = s.copy[old][v];
      s.valid[r][v] = 0;
      s.owner[v] = r;
      drop(s, old, v);
    }
  }

  // ---- threads ----
  /// Thread t starts on worker w: its stack is the rank's.
  void begin(State& s, std::uint8_t w, std::uint8_t t) const {
    Thread& x = s.thread[t];
    x.join = ult::next(ult::JoinRecord{}, {ult::JoinEvent::Kind::start}).next.pack();
    x.alive = 1;
    x.runner = w;
    x.rank = rank(w);
    for (std::uint8_t v = 0; v < V; ++v)
      if (p_.stack_of[v] == t) {
        s.owner[v] = rank(w);
        for (std::uint8_t r = 0; r < R; ++r) drop(s, r, v);
      }
    s.worker[w].mode = kRun;
    s.worker[w].thread = t;
  }
  /// Worker w takes thread t, which was put aside. Null, or what is wrong.
  const char* resume(State& s, std::uint8_t w, std::uint8_t t) const {
    Thread& x = s.thread[t];
    if (!x.alive) return "a continuation is taken after its thread has ended";
    if (x.runner != kNobody) return "a continuation is run twice";
    if (!x.saved) return "a continuation is run before its registers were saved";
    x.saved = 0;
    x.runner = w;
    x.rank = rank(w);
    become(s.worker[w], kRun);
    s.worker[w].thread = t;
    return nullptr;
  }
  static void become(Worker& w, Mode mode) {
    w.theft = sched::Theft{};
    w.result = w.result2 = 0;
    w.mode = mode;
    w.sub = w.victim = w.top = w.bottom = w.entry = w.source = w.kind = w.stale_bottom = 0;
  }

  template <class Emit>
  void step(const State& s, std::uint8_t w, Emit&& emit) const {
    switch (s.worker[w].mode) {
      case kIdle: return idle(s, w, emit);
      case kRun: return run(s, w, emit);
      case kPush: return push(s, w, emit);
      case kExit: return exit(s, w, emit);
      case kEnd: return end(s, w, emit);
      case kPop: return pop(s, w, emit);
      case kLocalSteal: return local_steal(s, w, emit);
      case kTheft: return theft(s, w, emit);
      case kJoin: return join(s, w, emit);
      case kMove: return move(s, w, emit);
      default: return cross(s, w, emit);
    }
  }

  template <class Emit>
  void run(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    const std::uint8_t t = me.thread, r = rank(w);
    const auto& code = p_.threads[t];
    if (s.thread[t].pc >= code.size()) {
      become(me, kExit);
      exit_from(n, w, emit);
      // or in the middle of its pop, if it was never switched out; for any thread it is harmless
      become(n.worker[w] = s.worker[w], kEnd);
      n.thread[t] = s.thread[t];
      return end(n, w, emit);
    }
    const UltInstr i = code[s.thread[t].pc];
    switch (i.what) {
      case Ult::load: {
        if (s.owner[i.arg] != r && s.valid[r][i.arg] == 0) {
          n.copy[r][i.arg] = s.copy[s.owner[i.arg]][i.arg];
          n.valid[r][i.arg] = 1;
        }
        ++n.thread[t].pc;
        const char* wrong =
            n.copy[r][i.arg] != s.ghost[i.arg] ? "a load returned a stale or lost value" : nullptr;
        if (wrong != nullptr) return emit(n, Step{sLoad, w, i.arg}, wrong);
        return emit(n, Step{sLoad, w, i.arg});
      }
      case Ult::store:
        n.copy[r][i.arg] = n.ghost[i.arg] = i.value;
        if (s.owner[i.arg] != r) n.valid[r][i.arg] = 2;
        ++n.thread[t].pc;
        return emit(n, Step{sStore, w, i.arg});
      case Ult::fork:
        become(me, kPush);
        me.entry = i.arg;
        if (!without(StealMutation::push_before_save)) put_aside(n, t);
        ++n.thread[t].pc;
        n.queue[w].ring[n.queue[w].bottom % kRing] = t;
        return emit(n, Step{sFork, w, i.arg});
      case Ult::move:
        ++n.thread[t].pc;
        if (i.arg == r) return emit(n, Step{sGoOn, w, t});
        become(me, kMove);
        me.entry = i.arg;
        n.thread[t].saved = 1;
        return emit(n, Step{sMoveSave, w, i.arg});
      default:
        become(me, kJoin);
        me.entry = i.arg;
        if (without(StealMutation::publish_before_save)) return join(n, w, emit);
        n.thread[t].saved = 1;
        return emit(n, Step{sJoinSave, w, i.arg});
    }
  }
  static void put_aside(State& n, std::uint8_t t) {
    n.thread[t].saved = 1;
    n.thread[t].runner = kNobody;
  }

  template <class Emit>
  void push(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    const std::uint8_t parent = s.worker[w].thread, child = s.worker[w].entry;
    if (s.worker[w].sub == 0) {
      ++n.queue[w].bottom;
      n.worker[w].sub = 1;
      if (!without(StealMutation::push_before_save)) {
        become(n.worker[w], kRun);
        begin(n, w, child);
      } else {
        n.thread[parent].runner = kNobody;
      }
      return emit(n, Step{sForkBottom, w, child});
    }
    n.thread[parent].saved = 1;
    become(n.worker[w], kRun);
    begin(n, w, child);
    emit(n, Step{sForkBottom, w, child});
  }

  template <class Emit>
  void exit(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    exit_from(n, w, emit);
  }
  template <class Emit>
  void exit_from(State& n, std::uint8_t w, Emit&& emit) const {
    Worker& me = n.worker[w];
    const std::uint8_t t = me.thread;
    Thread& x = n.thread[t];
    if (me.sub == 0) {
      const auto old = ult::JoinRecord::unpack(x.join);
      const ult::JoinStep step = ult::next(old, {ult::JoinEvent::Kind::exit, Rank{rank(w)}});
      x.join = step.next.pack();
      x.alive = 0;
      x.runner = kNobody;
      ++x.pc;
      me.thread = kNobody;
      if (step.action == ult::JoinAction::wake && !without(StealMutation::no_wake)) {
        me.sub = 1;
        me.entry = static_cast<std::uint8_t>(raw(old.slot));
        me.source = static_cast<std::uint8_t>(raw(old.rank));
      } else {
        become(me, kPop);
      }
      return emit(n, Step{sExit, w, t});
    }
    n.ready[me.source] = static_cast<std::uint8_t>(n.ready[me.source] | 1 << me.entry);
    const std::uint8_t woken = me.entry;
    become(me, kPop);
    emit(n, Step{sWake, w, woken});
  }

  /// The normal return (docs/design/ult.md): first half of the pop, the record's compare-swap, second half.
  /// If a joiner waits for the thread, the pop goes on first and the end is made known after it, on the
  /// parent's stack or the worker's. No thread can see which of the two comes first, so here it ends as by
  /// exit_from.
  template <class Emit>
  void end(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    Queue& q = n.queue[w];
    const std::uint8_t t = me.thread;
    Thread& x = n.thread[t];
    if (me.sub == 0) {
      me.bottom = narrow(wide(q.bottom) - 1);
      if (without(StealMutation::end_without_fence))
        me.top = q.top;  // the store waits in the processor until pop()
      else
        q.bottom = me.bottom;
      me.sub = 1;
      return emit(n, Step{sEndBottom, w, t});
    }
    const bool running = ult::JoinRecord::unpack(x.join).kind == ult::JoinKind::running;
    if (me.sub == 1 && !running) {
      q.bottom = narrow(wide(me.bottom) + 1);  // begun anew after the exit: as far as others see, the same
      become(me, kExit);
      return emit(n, Step{sEndRecord, w, t});
    }
    if (me.sub == 1 && without(StealMutation::end_without_swap)) {
      me.sub = 2;
      return emit(n, Step{sEndRecord, w, t});
    }
    x.join = ult::JoinRecord{ult::JoinKind::exited, Rank{rank(w)}}.pack();
    x.alive = 0;
    x.runner = kNobody;
    ++x.pc;
    me.thread = kNobody;
    me.mode = kPop;
    me.sub = 1;
    emit(n, Step{sEndRecord, w, t});
  }

  template <class Emit>
  void pop(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    Queue& q = n.queue[w];
    const auto got = [&](std::uint16_t kind) {
      const std::uint8_t t = q.ring[(me.bottom) % kRing];
      const char* wrong = resume(n, w, t);
      if (wrong != nullptr) return emit(n, Step{kind, w, t}, wrong);
      emit(n, Step{kind, w, t});
    };
    switch (me.sub) {
      case 0:
        if (without(StealMutation::end_without_fence)) me.top = q.top;
        q.bottom = narrow(wide(q.bottom) - 1);
        me.bottom = q.bottom;
        me.sub = 1;
        return emit(n, Step{sPopBottom, w, 0});
      case 1: {
        if (without(StealMutation::end_without_fence))
          q.bottom = me.bottom;
        else
          me.top = q.top;
        const auto left = static_cast<std::int64_t>(wide(me.bottom) - wide(me.top));
        if (left > 0 || (left == 0 && without(StealMutation::pop_without_swap))) {
          return got(sPopTop);
        }
        me.sub = left == 0 ? 2 : 3;
        return emit(n, Step{sPopTop, w, 0});
      }
      case 2:
        me.sub = q.top == me.top ? 4 : 3;
        if (q.top == me.top) ++q.top;
        return emit(n, Step{sPopSwap, w, 0});
      case 3:
        q.bottom = narrow(wide(me.bottom) + 1);
        become(me, kIdle);
        return emit(n, Step{sPopBack, w, 0});
      default: q.bottom = narrow(wide(me.bottom) + 1); return got(sPopBack);
    }
  }

  template <class Emit>
  void idle(const State& s, std::uint8_t w, Emit&& emit) const {
    for (std::uint8_t t = 0; t < T; ++t) {
      if (!(s.ready[rank(w)] & (1 << t))) continue;
      State n = s;
      n.ready[rank(w)] = static_cast<std::uint8_t>(n.ready[rank(w)] & ~(1 << t));
      if (s.thread[t].rank != rank(w) && !without(StealMutation::arrive_for_nothing)) {
        become(n.worker[w], kTheft);
        n.worker[w].theft = sched::Theft::arrival(SlotId{t});
        n.worker[w].kind = static_cast<std::uint8_t>(n.worker[w].theft.next().kind);
        // any of that rank: its deque is not looked at
        while (rank(n.worker[w].victim) != s.thread[t].rank) ++n.worker[w].victim;
        n.thread[t].runner = w;
        emit(n, Step{sReady, w, t});
        continue;
      }
      const char* wrong = resume(n, w, t);
      if (wrong != nullptr) return emit(n, Step{sReady, w, t}, wrong);
      n.thread[t].resumed = 1;
      emit(n, Step{sReady, w, t});
    }
    // Those that ran last where they are ready. (Whether that rank's workers are busy is a matter of speed.)
    for (std::uint8_t t = 0; t < T; ++t) {
      const std::uint8_t from = s.thread[t].rank;
      if (from == rank(w) || !(s.ready[from] & (1 << t))) continue;
      State n = s;
      n.ready[from] = static_cast<std::uint8_t>(n.ready[from] & ~(1 << t));
      n.ready[rank(w)] = static_cast<std::uint8_t>(n.ready[rank(w)] | 1 << t);
      emit(n, Step{sBring, w, t});
    }
    for (std::uint8_t v = 0; v < W; ++v) {  // looks that find nothing change nothing: no step
      if (v == w || !sched::has_work(wide(s.queue[v].top), wide(s.queue[v].bottom))) continue;
      State n = s;
      become(n.worker[w], rank(v) == rank(w) ? kLocalSteal : kTheft);
      n.worker[w].victim = v;
      if (rank(v) == rank(w)) {
        n.worker[w].top = s.queue[v].top;
        emit(n, Step{sLocal, w, v});
        continue;
      }
      if (without(StealMutation::release_before_claim)) release(n, rank(v));
      const sched::TheftStep look =
          n.worker[w].theft.next();  // the machine's first step: read top and bottom in any order
      n.worker[w].kind = static_cast<std::uint8_t>(look.kind);
      emit(n, Step{sTheft, w, static_cast<std::uint8_t>(look.kind)});
    }
  }

  /// Deque::steal: top, bottom, entry, compare-swap.
  template <class Emit>
  void local_steal(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    Queue& q = n.queue[me.victim];
    switch (me.sub) {
      case 0:
        if (!sched::has_work(wide(me.top), wide(q.bottom)))
          become(me, kIdle);
        else
          me.sub = 1;
        break;
      case 1:
        me.entry = q.ring[me.top % kRing];
        me.sub = 2;
        break;
      default: {
        if (q.top != me.top) {
          become(me, kIdle);
          break;
        }
        ++q.top;
        const char* wrong = resume(n, w, me.entry);
        if (wrong != nullptr) return emit(n, Step{sLocal, w, s.worker[w].entry}, wrong);
      }
    }
    emit(n, Step{sLocal, w, s.worker[w].entry});
  }

  /// Carries out the step that the machine asked for last, then asks for the next.
  template <class Emit>
  void theft(const State& s, std::uint8_t w, Emit&& emit) const {
    using Kind = sched::TheftStep::Kind;
    State n = s;
    Worker& me = n.worker[w];
    Queue& q = n.queue[me.victim];
    const auto kind = static_cast<Kind>(me.kind);
    const std::uint8_t r = rank(w), from = rank(me.victim);
    const Step label{sTheft, w, me.kind};
    std::uint64_t result = 0, result2 = 0;
    switch (kind) {
      case Kind::look:  // two reads, in any order; top may be the older one
        if (me.sub < 2) {
          for (std::uint8_t which : {0, 1}) {
            if (me.sub == 1 && me.entry == which) continue;
            State m = n;
            Worker& x = m.worker[w];
            (which == 0 ? x.top : x.bottom) = which == 0 ? q.top : q.bottom;
            x.entry = which;
            ++x.sub;
            emit(m, label);
          }
          return;
        }
        result = wide(me.top);
        result2 = wide(me.bottom);
        me.stale_bottom = me.bottom;
        break;
      case Kind::bottom:
        result = without(StealMutation::bottom_before_top) ? wide(me.stale_bottom) : wide(q.bottom);
        break;
      case Kind::entry: result = q.ring[me.top % kRing]; break;
      case Kind::claim:
        result = wide(q.top);
        if (q.top == me.top) {
          ++q.top;
          Thread& t = n.thread[raw(me.theft.slot())];
          if (t.runner != kNobody || !t.alive)
            return emit(n, label, "a thief claimed a continuation that somebody runs");
          if (!t.saved)
            return emit(n, label, "a thief claimed a continuation before its registers were saved");
          t.runner = w;  // between the claim and taken it is in no list
        }
        break;
      case Kind::ask_release:
        if (without(StealMutation::adopt_before_release))
          adopt(n, r, static_cast<std::uint8_t>(raw(me.theft.slot())));
        else if (!without(StealMutation::no_release) && !without(StealMutation::release_before_claim))
          release(n, from);
        break;
      case Kind::adopt:
        if (without(StealMutation::adopt_before_release))
          release(n, from);
        else
          adopt(n, r, static_cast<std::uint8_t>(raw(me.theft.slot())));
        break;
      case Kind::acquire:
        if (!without(StealMutation::no_acquire)) acquire(n, r);
        break;
      default: break;
    }
    me.sub = me.entry = 0;
    const sched::TheftStep next = me.theft.next(result, result2);
    me.kind = static_cast<std::uint8_t>(next.kind);
    if (next.kind != Kind::done) return emit(n, label);
    if (next.outcome != Steal::taken) {
      become(me, kIdle);
      return emit(n, label);
    }
    const auto t = static_cast<std::uint8_t>(raw(next.slot));
    n.thread[t].runner = kNobody;
    const char* wrong = resume(n, w, t);
    if (wrong != nullptr) return emit(n, label, wrong);
    emit(n, label);
  }

  template <class Emit>
  void join(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    const std::uint8_t t = me.thread, child = me.entry;
    Thread& x = n.thread[t];
    if (me.sub == 1) {  // only where the mutant publishes first
      x.saved = 1;
      me.thread = kNobody;
      become(me, kPop);
      return emit(n, Step{sJoinSave, w, child});
    }
    const ult::JoinStep step = ult::next(ult::JoinRecord::unpack(n.thread[child].join),
                                         {ult::JoinEvent::Kind::join, Rank{rank(w)}, SlotId{t}});
    if (step.action == ult::JoinAction::suspend) {
      n.thread[child].join = step.next.pack();
      x.runner = kNobody;
      if (without(StealMutation::publish_before_save)) {
        me.sub = 1;
      } else {
        me.thread = kNobody;
        become(me, kPop);
      }
      return emit(n, Step{sJoin, w, child});
    }
    if (step.action != ult::JoinAction::collect) return emit(n, Step{sJoin, w, child}, "a join was refused");
    const auto source = static_cast<std::uint8_t>(raw(ult::JoinRecord::unpack(n.thread[child].join).rank));
    n.thread[child].join = step.next.pack();
    x.saved = 0;
    become(me, kCross);
    me.source = source;
    emit(n, Step{sJoin, w, child});
  }

  /// Its registers are saved: into the ready list of another rank.
  template <class Emit>
  void move(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    const std::uint8_t t = me.thread, to = me.entry;
    n.thread[t].runner = kNobody;
    n.ready[to] = static_cast<std::uint8_t>(n.ready[to] | 1 << t);
    me.thread = kNobody;
    become(me, kPop);
    emit(n, Step{sMove, w, to});
  }

  /// Fences after the exit was seen; then the joiner goes on.
  template <class Emit>
  void cross(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    Thread& x = n.thread[me.thread];
    const bool none = me.source == rank(w) || (without(StealMutation::resumed_without_cross) && x.resumed);
    if (none || me.sub == 2) {
      become(me, kRun);
      ++x.pc;
      x.resumed = 0;
      return emit(n, Step{sGoOn, w, me.thread});
    }
    if (me.sub == 0 && !without(StealMutation::join_without_release)) release(n, me.source);
    if (me.sub == 1 && !without(StealMutation::join_without_acquire)) acquire(n, rank(w));
    ++me.sub;
    emit(n, Step{static_cast<std::uint16_t>(s.worker[w].sub == 0 ? sRelease : sAcquire), w, me.source});
  }

  ForkJoin p_;
};

}  // namespace kasane::model
