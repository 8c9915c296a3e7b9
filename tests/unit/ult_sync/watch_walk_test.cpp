// SPDX-License-Identifier: Apache-2.0
// The watch list: every order of every access of two to four threads that change words, notify, and wait for
// changes, on one list. No thread waits for ever that was notified after the change; a wake-up goes to a
// thread that waits.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "model/explorer.h"
#include "ult/sync/watch_record.h"
#include "unit/ult_sync/machine_step.h"

namespace kasane::ult::test {
namespace {

constexpr std::uint32_t kThreads = 4, kWords = 2;

struct Op {
  /// wait_while: until word `key` is not `value`; wait_late: the same, or once its deadline has passed, which
  /// it may at any time. ring: the timer of thread `key`
  enum Kind : std::uint32_t { add, wait_while, wait_late, notify_one, notify_all, ring, end };
  Kind kind = end;
  std::uint32_t key = 0, value = 0;
};
using Script = std::vector<Op>;

/// A rule taken away: the walk must find what it was for.
enum class Mutation {
  none,
  epoch_ignored,    ///< a thread about to wait does not see a notification
  not_prepared,     ///< a thread about to wait does not announce it
  key_ignored,      ///< notify_one wakes the oldest of the list, whatever it waits for
  all_not_drained,  ///< a notification that finds a server is dropped
  fifo_not_stored,
  wake_dropped,
  late_dropped,  ///< a notification for a late waiter finds it and leaves it there
};

struct ModelThread {
  enum Status : std::uint32_t { running, first_look, preparing, look, waiting, suspended, notifying };
  std::uint32_t op, status, ready, epoch;
  std::uint64_t result;
  WatchPrepare prepare;
  WatchWait wait;
  WatchNotify notify;
};
struct State {
  Word word, fifo, next[kThreads];
  std::uint32_t words[kWords];
  ModelThread threads[kThreads];
  std::uint64_t broken;  ///< 1 + index in kWrong
};
static_assert(std::has_unique_object_representations_v<State>);

class Model {
 public:
  using State = test::State;
  Model(std::vector<Script> scripts, Mutation mutation) : scripts_(std::move(scripts)), mutation_(mutation) {
    for (Script& s : scripts_) s.push_back({});
  }
  State initial() const {
    State s{};
    for (auto& t : s.threads) t = ModelThread{};
    return s;
  }
  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint32_t i = 0; i < scripts_.size(); ++i) {
      State n = s;
      if (step(n, i))
        emit(n, model::Step{0, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(op(s, i).kind)});
    }
  }
  const char* violation(const State& s) const { return s.broken != 0 ? kWrong[s.broken - 1] : nullptr; }
  bool finished(const State& s) const {
    for (std::uint32_t i = 0; i < scripts_.size(); ++i)
      if (op(s, i).kind != Op::end) return false;
    const WatchWord w = WatchWord::unpack(s.word);
    return w.newest == kNoSlot && !w.older && !w.serving;
  }
  std::string name(const model::Step& step) const {
    static constexpr const char* kOps[] = {"add",        "wait_while", "wait_late", "notify_one",
                                           "notify_all", "ring",       "end"};
    return "thread " + std::to_string(step.actor) + " in " + kOps[step.detail];
  }
  std::string show(const State& s) const {
    std::string text = "list " + std::to_string(s.word >> 32) + "|" + std::to_string(s.word & 0xFFFFFFFF) +
                       " fifo " + std::to_string(s.fifo);
    for (std::uint32_t i = 0; i < scripts_.size(); ++i)
      text += " t" + std::to_string(i) + ":op" + std::to_string(s.threads[i].op) + "/" +
              std::to_string(s.threads[i].status);
    return text;
  }

 private:
  static constexpr const char* kWrong[] = {"a thread is woken that does not wait", "a thread is woken twice"};
  enum Wrong : std::uint64_t { not_waiting = 1, twice };

  const Op& op(const State& s, std::uint32_t i) const { return scripts_[i][s.threads[i].op]; }

  Word perform(State& s, const SyncStep& step) const {
    if (step.kind == SyncStep::Kind::wake) {
      if (mutation_ == Mutation::wake_dropped) return 0;
      if (mutation_ == Mutation::late_dropped && s.threads[raw(step.slot)].op == 0 &&
          scripts_[raw(step.slot)][0].kind == Op::wait_late)
        return 0;
      ModelThread& t = s.threads[raw(step.slot)];
      if (t.status != ModelThread::suspended) s.broken = not_waiting;
      if (t.ready != 0) s.broken = twice;
      t.ready = 1;
      return 0;
    }
    Word& word = step.field == SyncField::next   ? s.next[raw(step.slot)]
                 : step.field == SyncField::word ? s.word
                                                 : s.fifo;
    const Word old = word;
    if (step.kind == SyncStep::Kind::store &&
        !(mutation_ == Mutation::fifo_not_stored && step.field == SyncField::fifo))
      word = step.value;
    if (step.kind == SyncStep::Kind::compare_swap && old == step.expected) {
      word = step.value;
      WatchWord w = WatchWord::unpack(word);
      if (mutation_ == Mutation::epoch_ignored) w.epoch = 0;
      if (mutation_ == Mutation::not_prepared) w.prepared = false;
      if (mutation_ == Mutation::all_not_drained) w.all = false;
      word = w.pack();
    }
    return old;
  }

  template <class Machine>
  bool advance(State& s, Machine& m, std::uint64_t& result) const {
    return advance_machine(m, result, [&](const SyncStep& step) { return perform(s, step); });
  }

  static void to(ModelThread& t, ModelThread::Status status) {
    t.status = status;
    t.result = 0;
  }
  static void next_op(ModelThread& t) {
    to(t, ModelThread::running);
    t.epoch = 0;
    ++t.op;
  }
  std::uint32_t key(const Op& o) const { return mutation_ == Mutation::key_ignored ? 0 : o.key; }

  bool step(State& s, std::uint32_t i) const {
    ModelThread& t = s.threads[i];
    const Op& o = op(s, i);
    const bool changed = s.words[o.key] != o.value;
    switch (t.status) {
      case ModelThread::running:
        if (o.kind == Op::end) return false;
        // the timer is started when the thread is about to join the list
        if (o.kind == Op::ring && s.threads[o.key].op == 0 && s.threads[o.key].status < ModelThread::waiting)
          return false;
        if (o.kind == Op::add) {
          ++s.words[o.key];
          next_op(t);
        } else if (o.kind == Op::wait_while || o.kind == Op::wait_late) {
          to(t, ModelThread::first_look);
        } else {
          to(t, ModelThread::notifying);
          t.notify = o.kind == Op::ring ? WatchNotify::late(SlotId{o.key})
                                        : WatchNotify(key(o), o.kind == Op::notify_all);
        }
        return true;
      case ModelThread::first_look:
        if (changed) return next_op(t), true;
        to(t, ModelThread::preparing);
        return true;
      case ModelThread::preparing:
        if (!advance(s, t.prepare, t.result)) return true;
        t.epoch = static_cast<std::uint32_t>(t.result);
        to(t, ModelThread::look);
        return true;
      case ModelThread::look:
        if (changed) return next_op(t), true;
        to(t, ModelThread::waiting);
        t.wait = WatchWait(SlotId{i}, key(o), t.epoch);
        t.epoch = 0;
        return true;
      case ModelThread::waiting:
        if (!advance(s, t.wait, t.result)) return true;
        if (o.kind == Op::wait_late && t.result != static_cast<Word>(WatchAction::wait))
          return next_op(t), true;
        to(t, t.result == static_cast<Word>(WatchAction::wait) ? ModelThread::suspended
                                                               : ModelThread::preparing);
        return true;
      case ModelThread::suspended:
        if (t.ready == 0) return false;
        t.ready = 0;
        if (o.kind == Op::wait_late) return next_op(t), true;
        to(t, ModelThread::preparing);
        return true;
      case ModelThread::notifying:
        if (advance(s, t.notify, t.result)) next_op(t);
        return true;
    }
    return false;
  }

  std::vector<Script> scripts_;
  Mutation mutation_;
};

model::Outcome walk(std::vector<Script> scripts, Mutation mutation = Mutation::none) {
  return model::explore(Model(std::move(scripts), mutation), {.states = 20'000'000, .bytes = 4ull << 30});
}
void expect_exhausted(const model::Outcome& o) {
  EXPECT_TRUE(o.ok()) << o.report();
  EXPECT_GT(o.endings, 0u) << o.report();
  std::cout << o.report() << "\n";
}

const Script kWait{{Op::wait_while, 0, 0}}, kWaitOther{{Op::wait_while, 1, 0}};
const Script kTellOne{{Op::add, 0}, {Op::notify_one, 0}}, kTellAll{{Op::add, 0}, {Op::notify_all, 0}},
    kTellOther{{Op::add, 1}, {Op::notify_one, 1}};

TEST(WatchWord, PacksEveryField) {
  for (const std::uint32_t bits : {0u, 1u, 2u, 5u, 8u, 15u}) {
    const WatchWord w{SlotId{0xFFFFFFFEu}, WatchWord::kEpochs - bits, (bits & 8) != 0,
                      (bits & 4) != 0,     (bits & 2) != 0,           (bits & 1) != 0};
    EXPECT_EQ(WatchWord::unpack(w.pack()), w);
  }
  EXPECT_EQ(WatchWord{}.pack(), 0u) << "a zeroed list has no waiters";
  EXPECT_EQ(next({.epoch = WatchWord::kEpochs, .prepared = true}, WatchEvent::notify).next.epoch, 0u);
}

TEST(WatchWalk, OneWaits) {
  expect_exhausted(walk({kWait, kTellOne}));
  expect_exhausted(walk({{{Op::wait_while, 0, 0}, {Op::wait_while, 0, 1}}, kTellOne, kTellOne}));
}
TEST(WatchWalk, SomeWaitForTheSame) {
  expect_exhausted(walk({kWait, kWait, kTellAll}));
  expect_exhausted(walk({kWait, kWait, {{Op::add, 0}, {Op::notify_one, 0}, {Op::notify_one, 0}}}));
  // handed on
  expect_exhausted(walk({{{Op::wait_while, 0, 0}, {Op::notify_one, 0}},
                         {{Op::wait_while, 0, 0}, {Op::notify_one, 0}},
                         kTellOne}));
}
// Two words that share a list: a notification for one is not lost to a thread that waits for the other.
TEST(WatchWalk, WordsThatShareAList) {
  expect_exhausted(walk({kWait, kWaitOther, kTellOne, kTellOther}));
  expect_exhausted(
      walk({kWaitOther, kWait, {{Op::add, 0}, {Op::notify_one, 0}, {Op::add, 1}, {Op::notify_all, 1}}}));
}
TEST(WatchWalk, PingPong) {
  const Script ping{{Op::wait_while, 0, 0}, {Op::add, 1}, {Op::notify_one, 1}},
      pong{{Op::add, 0}, {Op::notify_one, 0}, {Op::wait_while, 1, 0}};
  expect_exhausted(walk({ping, pong, kTellOther}));
}

// Its timer rings at any moment from before it is in the list until after it was woken. Whoever else waits is
// still told of a change.
TEST(WatchWalk, OneIsLate) {
  const Script late{{Op::wait_late, 0, 0}}, rings{{Op::ring, 0}};
  expect_exhausted(walk({late, rings}));
  expect_exhausted(walk({late, kWait, rings, kTellAll}));
  expect_exhausted(walk({late, kWaitOther, rings, kTellOther}));
  EXPECT_FALSE(walk({late, rings}, Mutation::late_dropped).ok());
}

TEST(WatchWalk, FindsMutants) {
  for (const auto& [mutation, name] :
       {std::pair{Mutation::epoch_ignored, "epoch_ignored"},
        std::pair{Mutation::not_prepared, "not_prepared"}, std::pair{Mutation::key_ignored, "key_ignored"},
        std::pair{Mutation::all_not_drained, "all_not_drained"},
        std::pair{Mutation::fifo_not_stored, "fifo_not_stored"},
        std::pair{Mutation::wake_dropped, "wake_dropped"}}) {
    const auto o = walk({kWait, kWaitOther, kTellOne, kTellOther}, mutation);
    EXPECT_FALSE(o.ok()) << name;
    std::cout << name << ": " << o.why << "\n";
  }
}

}  // namespace
}  // namespace kasane::ult::test
