// SPDX-License-Identifier: Apache-2.0
// Stacks of free groups as a System for the explorer: actors of several ranks take groups and give objects
// back, on one stack of one size class. Every operation comes from the shipping machines gas::Taking,
// gas::TakingAll and gas::Giving, and each operation on a shared word is a step of its own. What an actor
// last saw of the head it keeps from one call to the next, as a bin does.
//
// Oracle: which actor holds which object. An object that is handed to two actors, or that was given back and
// is not found in the end, is an error.
//
// Abstractions: a group has two objects. Tags are kept whole, so they do not wrap within a walk.
#pragma once

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "gas/heap_protocol.h"
#include "model/explorer.h"

namespace kasane::model::heap {

/// Which rule the walk leaves out. The shipping code knows nothing of this.
enum class Mutation : std::uint8_t {
  none,
  no_tag,            ///< a change of the head leaves its tag as it was (ABA)
  push_always,       ///< an actor that gives puts the group on the stack though other bits were set
  push_never,        ///< … never does
  bits_by_store,     ///< the bits are read and then overwritten with zero, not swapped
  bits_before_pop,   ///< the bits are taken while the group is still on the stack
  link_once,         ///< after a push that failed, next is not written anew
  push_before_link,  ///< the head is changed before next is written
  collect_any,       ///< a collector keeps groups of which some objects are in use
  collect_bits,      ///< … does not clear the bits of those that it keeps
  collect_chain,     ///< … puts the others back linked as they were
  untied,     ///< an actor that gives several groups at once pushes the last without linking those before it
  tied_late,  ///< … pushes before the others are linked
  tied_any,   ///< … links those of which others' bits were there, too
};

/// give: all that the actor holds of its oldest group at once; give_one: one object. give_all: all that it
/// holds, of all groups together, as Heap::give_back_together does: each round's operations are outstanding
/// at once, so they may take effect in any order. collect: takes all groups, keeps those that are wholly
/// free, and puts the others back, as gas/heap_slabs.cpp does (here a slab is one group). renew: makes slabs
/// of what it kept, as a new slab is made.
enum class Do : std::uint8_t { take, give, give_one, give_all, collect, renew };

struct Program {
  std::vector<std::vector<Do>> actors;
  std::uint8_t groups = 2;  ///< on the stack at first, all of their objects free
  Mutation without = Mutation::none;
};

/// A actors, G groups at most.
template <std::uint8_t A, std::uint8_t G>
class Stacks {
  using Op = gas::HeapOperation;

 public:
  struct Actor {
    std::uint8_t pc, stage;          // stage: 0 between calls, else the machine's state + 1
    std::uint8_t tag, top;           // the head as known
    std::uint8_t item, below, bits;  // of the machine
    std::uint8_t held[G];            // objects of each group
    // of a collector: the next group to look at, and the chain that goes back, + 1
    std::uint8_t walk, first, last;
    std::uint8_t kept;              // groups that are slabs no more, a bit each
    std::uint8_t many[G];           // of groups given together: the machine's state + 1, 0: not of them
    std::uint8_t tie[G], given[G];  // … what it is linked to; its objects
    std::uint8_t done;              // … whose operation of this round has taken effect, a bit each
    std::uint8_t extra;             // of a mutant
  };
  struct State {
    std::uint8_t tag, top;
    std::uint8_t bits[G], next[G];
    Actor actor[A];
  };

  explicit Stacks(Program program) : program_(std::move(program)) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      s.bits[g] = kAll;
      s.next[g] = g;  // group g - 1, + 1
      s.top = g + 1;
    }
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < A; ++a) {
      if (s.actor[a].pc >= program_.actors[a].size()) continue;
      switch (program_.actors[a][s.actor[a].pc]) {
        case Do::take: take(s, a, emit); break;
        case Do::give:
        case Do::give_one: give(s, a, emit); break;
        case Do::give_all: give_all(s, a, emit); break;
        case Do::collect: collect(s, a, emit); break;
        case Do::renew: renew(s, a, emit); break;
      }
    }
  }

  const char* violation(const State& s) const {
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      std::uint8_t seen = s.bits[g];
      for (std::uint8_t a = 0; a < A; ++a) {
        if ((seen & s.actor[a].held[g]) != 0) return "an object is free and held, or held twice";
        seen |= s.actor[a].held[g];
        if ((s.actor[a].kept >> g & 1) != 0 && s.actor[a].stage == 0 && s.bits[g] != 0)
          return "pages that are a slab no more have free objects";
      }
    }
    if (!finished(s)) return nullptr;
    std::uint8_t listed = 0;
    for (std::uint8_t top = s.top; top != 0; top = s.next[top - 1]) {
      const auto bit = static_cast<std::uint8_t>(1u << (top - 1));
      if ((listed & bit) != 0) return "a group is on the stack twice";
      listed |= bit;
    }
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      std::uint8_t seen = s.bits[g];
      for (std::uint8_t a = 0; a < A; ++a) seen |= s.actor[a].held[g];
      if (seen != kAll) return "an object is lost";
      if ((s.bits[g] != 0) != ((listed >> g & 1) != 0))
        return s.bits[g] != 0 ? "a group with free objects is not on the stack"
                              : "an empty group is on the stack";
    }
    return nullptr;
  }
  bool finished(const State& s) const {
    for (std::uint8_t a = 0; a < A; ++a)
      if (s.actor[a].pc < program_.actors[a].size()) return false;
    return true;
  }
  std::string name(const Step& step) const {
    static constexpr const char* kWhere[] = {"the head", "next", "the bits"};
    static constexpr const char* kWhat[] = {"loads", "stores", "swaps", "sets in", "compare-swaps"};
    return "actor " + std::to_string(step.actor) + " " + kWhat[step.kind & 15] + " " +
           kWhere[step.kind >> 4] + " of group " + std::to_string(step.detail);
  }
  std::string show(const State& s) const {
    std::string t = "head " + std::to_string(s.top) + " tag " + std::to_string(s.tag);
    for (std::uint8_t g = 0; g < program_.groups; ++g)
      t += " | group " + std::to_string(g + 1) + " bits " + std::to_string(s.bits[g]) + " next " +
           std::to_string(s.next[g]);
    for (std::uint8_t a = 0; a < A; ++a) {
      t += " | actor " + std::to_string(a) + " at " + std::to_string(s.actor[a].pc) + "." +
           std::to_string(s.actor[a].stage) + " holds";
      for (std::uint8_t g = 0; g < program_.groups; ++g) t += " " + std::to_string(s.actor[a].held[g]);
    }
    return t;
  }

 private:
  static constexpr std::uint8_t kAll = 3;
  [[nodiscard]] bool without(Mutation m) const noexcept { return program_.without == m; }

  /// The machines' heads have tags of 30 bits; here the low ones suffice.
  static gas::StackHead known(const Actor& x) noexcept { return {x.tag, x.top}; }

  /// Carries an operation out, as HeapAccess::perform does.
  std::uint64_t perform(State& n, const Op& op) const {
    if (op.where == Op::Where::head) {
      const std::uint64_t old = gas::StackHead{n.tag, n.top}.word();
      if (op.what == Op::What::compare_swap && old == op.compare) {
        const gas::StackHead fresh = gas::StackHead::of(op.operand);
        if (!without(Mutation::no_tag)) n.tag = static_cast<std::uint8_t>(fresh.tag);
        n.top = static_cast<std::uint8_t>(fresh.top);
      }
      return old;
    }
    std::uint8_t& word = op.where == Op::Where::next ? n.next[op.item] : n.bits[op.item];
    const std::uint8_t old = word;
    if (op.what == Op::What::store || op.what == Op::What::swap) word = static_cast<std::uint8_t>(op.operand);
    if (op.what == Op::What::fetch_or) word = static_cast<std::uint8_t>(word | op.operand);
    return old;
  }
  static Step step_of(std::uint8_t a, const Op& op) noexcept {
    return {static_cast<std::uint16_t>(static_cast<unsigned>(op.what) | static_cast<unsigned>(op.where) << 4),
            a, static_cast<std::uint8_t>(op.item + 1)};
  }
  void remember(Actor& y, gas::StackHead head, bool mine) const {
    y.tag = static_cast<std::uint8_t>(head.tag - (mine && without(Mutation::no_tag) ? 1 : 0));
    y.top = static_cast<std::uint8_t>(head.top);
  }
  static void end_call(Actor& y) noexcept {
    ++y.pc;
    y.stage = y.item = y.below = y.bits = y.extra = y.walk = y.first = y.last = 0;
  }

  template <class Emit>
  void take(const State& s, std::uint8_t a, Emit&& emit) const {
    using T = gas::Taking;
    const Actor& x = s.actor[a];
    T t = T::begin(known(x), true);
    if (x.stage != 0) {
      t.state = static_cast<T::State>(x.stage - 1);
      t.item = x.item;
      t.below = x.below;
      t.bits = x.bits;
    }
    State n = s;
    Actor& y = n.actor[a];
    // Mutants that change the order or the kind of operations.
    if (without(Mutation::bits_before_pop) && t.state == T::State::pop && x.extra == 0) {
      y.extra = 1;
      y.bits = s.bits[x.item];
      n.bits[x.item] = 0;
      return emit(n, Step{static_cast<std::uint16_t>(2 | 2 << 4), a, static_cast<std::uint8_t>(x.item + 1)});
    }
    if (without(Mutation::bits_by_store) && t.state == T::State::bits && x.extra == 0) {
      y.extra = 1;
      y.bits = s.bits[x.item];
      return emit(n, Step{static_cast<std::uint16_t>(0 | 2 << 4), a, static_cast<std::uint8_t>(x.item + 1)});
    }
    const Op op = t.operation();
    const T::State before = t.state;
    const std::uint64_t old = perform(n, op);
    t.answer(old);
    if (before == T::State::bits &&
        (without(Mutation::bits_by_store) || without(Mutation::bits_before_pop))) {
      t.bits = without(Mutation::bits_before_pop) ? (x.bits | old) : x.bits;
    }
    // the mutant puts back what it took too early
    if (before == T::State::pop && t.state != T::State::bits && x.extra != 0) {
      n.bits[x.item] = static_cast<std::uint8_t>(n.bits[x.item] | x.bits);
      y.extra = 0;
    }
    remember(y, t.head, t.state == T::State::bits || t.state == T::State::taken);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(t.state) + 1);
    y.item = static_cast<std::uint8_t>(t.item);
    y.below = static_cast<std::uint8_t>(t.below);
    if (y.extra == 0 || t.over()) y.bits = static_cast<std::uint8_t>(t.bits);
    if (before == T::State::bits) remember(y, known(x), false);
    const char* wrong = nullptr;
    if (t.over()) {
      if (t.state == T::State::taken) {
        if (t.bits == 0 && without(Mutation::none)) wrong = "a group was taken that has nothing free";
        if ((y.held[t.item] & t.bits) != 0) wrong = "an object was handed out twice";
        y.held[t.item] = static_cast<std::uint8_t>(y.held[t.item] | t.bits);
      }
      end_call(y);
    }
    wrong != nullptr ? emit(n, step_of(a, op), wrong) : emit(n, step_of(a, op));
  }

  // stages of a collector and of renew: pushing + the state of Giving
  static constexpr std::uint8_t kWalking = 10, kPushing = 20;
  static Step look_at(std::uint8_t a, std::uint8_t group_1) noexcept {
    return {static_cast<std::uint16_t>(2 << 4), a, group_1};
  }

  template <class Emit>
  void collect(const State& s, std::uint8_t a, Emit&& emit) const {
    using T = gas::TakingAll;
    const Actor& x = s.actor[a];
    if (x.stage >= kPushing) return push_chain(s, a, emit);
    State n = s;
    Actor& y = n.actor[a];
    if (x.stage == kWalking) {
      const auto g = static_cast<std::uint8_t>(x.walk - 1);
      y.walk = s.next[g];
      if (s.bits[g] == kAll || without(Mutation::collect_any)) {
        y.held[g] = kAll;
        y.kept = static_cast<std::uint8_t>(y.kept | 1u << g);
        if (!without(Mutation::collect_bits)) n.bits[g] = 0;
      } else {
        if (x.first == 0)
          y.first = x.walk;
        else if (!without(Mutation::collect_chain))
          n.next[x.last - 1] = x.walk;
        y.last = x.walk;
      }
      if (y.walk == 0) y.first == 0 ? end_call(y) : begin_push(y);
      return emit(n, look_at(a, x.walk));
    }
    T t;
    if (x.stage != 0) {
      t.state = static_cast<T::State>(x.stage - 1);
      t.head = known(x);
    }
    const Op op = t.operation();
    t.answer(perform(n, op));
    const bool took = t.over() && t.top != 0;
    remember(y, took ? t.head.changed(0) : t.head, took);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(t.state) + 1);
    if (t.over()) {
      y.stage = kWalking;
      y.walk = static_cast<std::uint8_t>(t.top);
      if (t.top == 0) end_call(y);
    }
    emit(n, step_of(a, op));
  }

  /// All groups that were kept become objects again: no other actor looks at them, so one step writes them
  /// all; then the chain is pushed.
  template <class Emit>
  void renew(const State& s, std::uint8_t a, Emit&& emit) const {
    if (s.actor[a].stage >= kPushing) return push_chain(s, a, emit);
    State n = s;
    Actor& y = n.actor[a];
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      if ((y.kept >> g & 1) == 0) continue;
      y.kept = static_cast<std::uint8_t>(y.kept & ~(1u << g));
      y.held[g] = 0;
      n.bits[g] = kAll;
      if (y.first == 0)
        y.first = static_cast<std::uint8_t>(g + 1);
      else
        n.next[y.last - 1] = static_cast<std::uint8_t>(g + 1);
      y.last = static_cast<std::uint8_t>(g + 1);
    }
    y.first == 0 ? end_call(y) : begin_push(y);
    emit(n, look_at(a, 0));
  }
  static void begin_push(Actor& y) noexcept {
    y.stage = static_cast<std::uint8_t>(kPushing + static_cast<unsigned>(gas::Giving::State::link));
  }
  template <class Emit>
  void push_chain(const State& s, std::uint8_t a, Emit&& emit) const {
    using V = gas::Giving;
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    V v = V::chain(x.first - 1u, x.last - 1u, known(x));
    v.state = static_cast<V::State>(x.stage - kPushing);
    const Op op = v.operation();
    v.answer(perform(n, op));
    remember(y, v.head, v.state == V::State::given);
    y.stage = static_cast<std::uint8_t>(kPushing + static_cast<unsigned>(v.state));
    if (v.over()) end_call(y);
    emit(n, step_of(a, op));
  }

  template <class Emit>
  void give(const State& s, std::uint8_t a, Emit&& emit) const {
    using V = gas::Giving;
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    V v;
    if (x.stage == 0) {
      std::uint8_t g = 0;
      while (g < G && x.held[g] == 0) ++g;
      if (g == G) {  // nothing to give: the take before found nothing
        end_call(y);
        return emit(n, Step{0, a, 0});
      }
      const bool one = program_.actors[a][x.pc] == Do::give_one;
      const auto bits = static_cast<std::uint8_t>(one ? x.held[g] & -x.held[g] : x.held[g]);
      v = V::objects(g, bits, known(x));
      y.held[g] = static_cast<std::uint8_t>(y.held[g] & ~bits);
    } else {
      v = V::objects(x.item, x.bits, known(x));
      v.state = static_cast<V::State>(x.stage - 1);
    }
    const V::State before = v.state;
    const bool late_link = without(Mutation::push_before_link);
    if (late_link && before == V::State::link && x.extra == 0) {  // the mutant pushes first …
      v.state = V::State::push;
      y.extra = 1;
    }
    const Op op = v.operation();
    const gas::StackHead seen = v.head;
    v.answer(perform(n, op));
    // … and links afterwards
    if (late_link && y.extra == 1 && v.state == V::State::given && op.where == Op::Where::head) {
      v.state = V::State::link;
      v.head = seen;
      y.extra = 2;
    } else if (late_link && y.extra == 1 && op.where == Op::Where::head) {
      y.extra = 0;
    } else if (late_link && y.extra == 2) {
      v.state = V::State::given;
    }
    if (before == V::State::bits && without(Mutation::push_always) && v.state == V::State::given)
      v.state = V::State::link;
    if (before == V::State::bits && without(Mutation::push_never) && v.state == V::State::link)
      v.state = V::State::given;
    if (before == V::State::push && without(Mutation::link_once) && v.state == V::State::link)
      v.state = V::State::push;
    remember(y, v.head, v.state == V::State::given && op.where == Op::Where::head);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(v.state) + 1);
    y.item = static_cast<std::uint8_t>(v.first);
    y.bits = static_cast<std::uint8_t>(v.bits);
    const bool twice = v.state == V::State::twice;
    if (v.over()) end_call(y);
    twice ? emit(n, step_of(a, op), "an object was given back that was free") : emit(n, step_of(a, op));
  }

  /// Rounds of one operation each of all machines that are not over. first: of the chain; last: the one that
  /// pushes it; both + 1. stage: 1 while any is to come.
  template <class Emit>
  void give_all(const State& s, std::uint8_t a, Emit&& emit) const {
    using V = gas::Giving;
    State begun = s;
    Actor& x = begun.actor[a];
    if (x.stage == 0) {
      for (std::uint8_t g = 0; g < program_.groups; ++g) {
        if (x.held[g] == 0) continue;
        x.many[g] = static_cast<std::uint8_t>(static_cast<unsigned>(V::State::bits) + 1);
        x.given[g] = x.held[g];
        x.held[g] = 0;
        x.stage = 1;
      }
      if (x.stage == 0) {  // the takes before found nothing
        end_call(x);
        return emit(begun, Step{0, a, 0});
      }
    }
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      if (x.many[g] == 0 || (x.done >> g & 1) != 0 || machine(x, g).over()) continue;
      State n = begun;
      Actor& y = n.actor[a];
      V v = machine(x, g);
      const V::State before = v.state;
      const Op op = v.operation();
      v.answer(perform(n, op));
      y.many[g] = static_cast<std::uint8_t>(static_cast<unsigned>(v.state) + 1);
      y.done = static_cast<std::uint8_t>(y.done | 1u << g);
      // its push may overtake the ties
      if (before == V::State::link && without(Mutation::tied_late))
        y.done = static_cast<std::uint8_t>(y.done & ~(1u << g));
      if (before == V::State::push) remember(y, v.head, v.state == V::State::given);
      end_round(y, before == V::State::bits);
      v.state == V::State::twice ? emit(n, step_of(a, op), "an object was given back that was free")
                                 : emit(n, step_of(a, op));
    }
  }
  gas::Giving machine(const Actor& x, std::uint8_t g) const noexcept {
    gas::Giving v = gas::Giving::objects(g, x.given[g], known(x));
    v.state = static_cast<gas::Giving::State>(x.many[g] - 1);
    if (v.state == gas::Giving::State::tie) v.head.top = x.tie[g];
    if (x.last == g + 1) v.first = x.first - 1u;
    return v;
  }
  void end_round(Actor& y, bool of_bits) const {
    using V = gas::Giving;
    std::array<V, G> all;
    std::array<std::uint8_t, G> group{};
    std::uint8_t n = 0;
    bool over = true;
    for (std::uint8_t g = 0; g < program_.groups; ++g) {
      if (y.many[g] == 0) continue;
      group[n] = g;
      all[n++] = machine(y, g);
      if (!all[n - 1].over() || of_bits) {
        over = false;
        if ((y.done >> g & 1) == 0) return;
      }
    }
    y.done = 0;
    if (of_bits) {
      if (without(Mutation::tied_any)) {
        for (std::uint8_t i = 0; i < n; ++i) all[i].state = V::State::link;
      }
      const V* const pushes = gas::join(std::span(all.data(), n));
      for (std::uint8_t i = 0; i < n; ++i) {
        if (all[i].state == V::State::tie && without(Mutation::untied)) all[i].state = V::State::given;
        y.many[group[i]] = static_cast<std::uint8_t>(static_cast<unsigned>(all[i].state) + 1);
        y.tie[group[i]] = all[i].state == V::State::tie ? static_cast<std::uint8_t>(all[i].head.top) : 0;
        if (&all[i] != pushes) continue;
        y.first = static_cast<std::uint8_t>(all[i].first + 1);
        y.last = static_cast<std::uint8_t>(group[i] + 1);
      }
      over = pushes == nullptr;
    }
    if (!over) return;
    for (std::uint8_t g = 0; g < program_.groups; ++g) y.many[g] = y.tie[g] = y.given[g] = 0;
    end_call(y);
  }

  Program program_;
};

// ---- runs of pages ---------------------------------------------------------------------------------------

enum class RunMutation : std::uint8_t {
  none,
  no_tag,        ///< a change of the head leaves its tag as it was (ABA)
  all_by_store,  ///< an actor that takes all stores zero over the head, tag and all
  link_once,     ///< after a push that failed, next is not written anew
};

enum class RunDo : std::uint8_t { take, give, all };  ///< give: the first that the actor holds

/// One stack of runs: actors take the top, give, and take all to join neighbours, as gas/heap_runs.cpp does.
struct RunProgram {
  std::vector<std::vector<RunDo>> actors;
  std::uint8_t runs = 3;
  RunMutation without = RunMutation::none;
};

template <std::uint8_t A, std::uint8_t G>
class RunStack {
  using Op = gas::HeapOperation;

 public:
  struct Actor {
    std::uint8_t pc, stage;
    std::uint8_t tag, top;  // the head as read in this call; runs' heads are not remembered longer
    std::uint8_t item, below;
    std::uint8_t walk;  // of all: the next run to look at, + 1
    std::uint8_t held;  // a bit a run
  };
  struct State {
    std::uint8_t tag, top;
    std::uint8_t next[G];
    Actor actor[A];
  };

  explicit RunStack(RunProgram program) : program_(std::move(program)) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    for (std::uint8_t g = 0; g < program_.runs; ++g) {
      s.next[g] = g;
      s.top = static_cast<std::uint8_t>(g + 1);
    }
    return s;
  }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < A; ++a) {
      if (finished(s, a)) continue;
      switch (program_.actors[a][s.actor[a].pc]) {
        case RunDo::take: take(s, a, emit); break;
        case RunDo::give: give(s, a, emit); break;
        case RunDo::all: all(s, a, emit); break;
      }
    }
  }
  const char* violation(const State& s) const {
    std::uint8_t held = 0;
    for (std::uint8_t a = 0; a < A; ++a) {
      if ((held & s.actor[a].held) != 0) return "a run is held twice";
      held |= s.actor[a].held;
    }
    if (!finished(s)) return nullptr;
    for (std::uint8_t top = s.top; top != 0; top = s.next[top - 1]) {
      const auto bit = static_cast<std::uint8_t>(1u << (top - 1));
      if ((held & bit) != 0) return "a run is held and on the stack, or there twice";
      held |= bit;
    }
    return held == (1u << program_.runs) - 1 ? nullptr : "a run is lost";
  }
  bool finished(const State& s) const {
    for (std::uint8_t a = 0; a < A; ++a)
      if (!finished(s, a)) return false;
    return true;
  }
  std::string name(const Step& step) const {
    static constexpr const char* kWhere[] = {"the head", "next", "the bits"};
    static constexpr const char* kWhat[] = {"loads", "stores", "swaps", "sets in", "compare-swaps"};
    return "actor " + std::to_string(step.actor) + " " + kWhat[step.kind & 15] + " " +
           kWhere[step.kind >> 4] + " of run " + std::to_string(step.detail);
  }
  std::string show(const State& s) const {
    std::string t = "head " + std::to_string(s.top) + " tag " + std::to_string(s.tag);
    for (std::uint8_t g = 0; g < program_.runs; ++g)
      t += " | run " + std::to_string(g + 1) + " next " + std::to_string(s.next[g]);
    for (std::uint8_t a = 0; a < A; ++a)
      t += " | actor " + std::to_string(a) + " at " + std::to_string(s.actor[a].pc) + " holds " +
           std::to_string(s.actor[a].held);
    return t;
  }

 private:
  [[nodiscard]] bool finished(const State& s, std::uint8_t a) const {
    return s.actor[a].pc >= program_.actors[a].size();
  }
  [[nodiscard]] bool without(RunMutation m) const noexcept { return program_.without == m; }

  std::uint64_t perform(State& n, const Op& op) const {
    if (op.where == Op::Where::head) {
      const std::uint64_t old = gas::StackHead{n.tag, n.top}.word();
      if (op.what == Op::What::compare_swap && old == op.compare) {
        const gas::StackHead fresh = gas::StackHead::of(op.operand);
        if (!without(RunMutation::no_tag)) n.tag = static_cast<std::uint8_t>(fresh.tag);
        n.top = static_cast<std::uint8_t>(fresh.top);
      }
      return old;
    }
    const std::uint8_t old = n.next[op.item];
    if (op.what == Op::What::store) n.next[op.item] = static_cast<std::uint8_t>(op.operand);
    return old;
  }
  static Step step_of(std::uint8_t a, const Op& op) noexcept {
    return {static_cast<std::uint16_t>(static_cast<unsigned>(op.what) | static_cast<unsigned>(op.where) << 4),
            a, static_cast<std::uint8_t>(op.item + 1)};
  }
  static void end_call(Actor& y) noexcept {
    const auto pc = static_cast<std::uint8_t>(y.pc + 1), held = y.held;
    y = Actor{};
    y.pc = pc;
    y.held = held;
  }
  static void put_head(Actor& y, gas::StackHead head) noexcept {
    y.tag = static_cast<std::uint8_t>(head.tag);
    y.top = static_cast<std::uint8_t>(head.top);
  }

  template <class Emit>
  void take(const State& s, std::uint8_t a, Emit&& emit) const {
    using T = gas::Taking;
    const Actor& x = s.actor[a];
    T t = T::begin({x.tag, x.top}, false);
    if (x.stage != 0) {
      t.state = static_cast<T::State>(x.stage - 1);
      t.item = x.item;
      t.below = x.below;
    }
    State n = s;
    Actor& y = n.actor[a];
    const Op op = t.operation();
    t.answer(perform(n, op));
    put_head(y, t.head);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(t.state) + 1);
    y.item = static_cast<std::uint8_t>(t.item);
    y.below = static_cast<std::uint8_t>(t.below);
    if (t.state == T::State::taken) y.held = static_cast<std::uint8_t>(y.held | 1u << t.item);
    if (t.over()) end_call(y);
    emit(n, step_of(a, op));
  }

  template <class Emit>
  void give(const State& s, std::uint8_t a, Emit&& emit) const {
    using V = gas::Giving;
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    if (x.stage == 0) {  // looks at the head; which run it gives is decided here
      if (x.held == 0) {
        end_call(y);
        return emit(n, Step{0, a, 0});
      }
      y.item = static_cast<std::uint8_t>(std::countr_zero(x.held));
      put_head(y, {s.tag, s.top});
      y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(V::State::link) + 1);
      return emit(n, Step{0, a, 0});
    }
    V v = V::chain(x.item, x.item, {x.tag, x.top});
    v.state = static_cast<V::State>(x.stage - 1);
    const Op op = v.operation();
    // It is on the stack from the compare-swap on and belongs to no actor.
    const auto mine = static_cast<std::uint8_t>(1u << x.item);
    v.answer(perform(n, op));
    if (op.where == Op::Where::head && without(RunMutation::link_once) && v.state == V::State::link)
      v.state = V::State::push;
    put_head(y, v.head);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(v.state) + 1);
    if (v.over()) {
      y.held = static_cast<std::uint8_t>(y.held & ~mine);
      end_call(y);
    }
    emit(n, step_of(a, op));
  }

  template <class Emit>
  void all(const State& s, std::uint8_t a, Emit&& emit) const {
    using T = gas::TakingAll;
    constexpr std::uint8_t kWalking = 10;
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    if (x.stage == kWalking) {
      y.held = static_cast<std::uint8_t>(y.held | 1u << (x.walk - 1));
      y.walk = s.next[x.walk - 1];
      if (y.walk == 0) end_call(y);
      return emit(n, Step{static_cast<std::uint16_t>(1 << 4), a, x.walk});
    }
    T t;
    if (x.stage != 0) {
      t.state = static_cast<T::State>(x.stage - 1);
      t.head = {x.tag, x.top};
    }
    const Op op = t.operation();
    if (t.state == T::State::clear && without(RunMutation::all_by_store)) {
      n.tag = n.top = 0;
      t.head = {s.tag, s.top};
      t.answer(t.head.word());
    } else {
      t.answer(perform(n, op));
    }
    put_head(y, t.head);
    y.stage = static_cast<std::uint8_t>(static_cast<unsigned>(t.state) + 1);
    if (t.over()) {
      y.stage = kWalking;
      y.walk = static_cast<std::uint8_t>(t.top);
      if (t.top == 0) end_call(y);
    }
    emit(n, step_of(a, op));
  }

  RunProgram program_;
};

}  // namespace kasane::model::heap
