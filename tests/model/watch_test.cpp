// SPDX-License-Identifier: Apache-2.0
// Two workers of a rank fall asleep and are woken from another host (docs/design/sched.md, "Idling"), in
// every order of every access. They announce themselves, look, sleep in naps and watch, by the shipping
// sched::NapWait. A pusher there stores two items, which may stay in its store buffer as long as it likes,
// reads its idle-ranks word without a fence, and rings by message. Only these workers take the items, and the
// first that takes one may keep it for ever. A nap may be over at any time.
//
// Checked: from every state there is a way on which both items are taken; a rule taken away leaves states
// that have none.
#include "sched/nap_wait.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using sched::NapWait;

enum class Without : std::uint8_t {
  none,
  looks,         ///< after a nap no worker looks: a push that no ring covers is never found
  giving_back,   ///< a worker that leaves keeps the role
  asking_again,  ///< a worker that did not get the role when it fell asleep does not ask again
};

struct Idle {
  Without without = Without::none;

  struct Worker {
    NapWait watch;
    std::uint8_t at, seen, refused, unused[5];  // seen: of the bell; refused: it did not get the role
  };
  struct State {
    std::array<Worker, 2> worker;
    std::uint8_t pusher, pushed;            // its place; items it has stored
    std::uint8_t buffered, visible, taken;  // where the items are
    // the bit at the pusher; of the rank: announced workers, a watcher
    std::uint8_t idle_bit, announced, role;
    std::uint8_t bell, rings, kept, unused;  // events; messages under way; an item is kept for ever
    std::uint8_t more[4];
  };

  // Places of a worker …
  enum : std::uint8_t {
    kSearch,
    kSeen,
    kAnnounce,
    kBits,
    kLook,
    kWatch,
    kForget,
    kClear,
    kCheck,
    kBitsAgain,
    kKeeps
  };
  // … and of the pusher.
  enum : std::uint8_t { kStore, kRead, kTake, kRing };
  static constexpr sched::Naps kNaps{1, 4};

  State initial() const { return {}; }
  const char* violation(const State& s) const {
    return s.announced > 2 ? "more workers announced than there are" : nullptr;
  }
  bool finished(const State& s) const { return s.taken == 2; }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    static constexpr const char* kWho[] = {"worker 0", "worker 1", "pusher", "store buffer", "network"};
    return std::string(kWho[x.actor]) + " at " + std::to_string(x.detail) +
           (x.kind != 0 ? ", watch at " + std::to_string(x.kind - 1) : "");
  }
  std::string show(const State& s) const {
    return "buffered " + std::to_string(s.buffered) + " visible " + std::to_string(s.visible) + " taken " +
           std::to_string(s.taken) + " idle_bit " + std::to_string(s.idle_bit) + " role " +
           std::to_string(s.role);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t w = 0; w < 2; ++w) step_worker(s, w, emit);
    step_pusher(s, emit);
    if (s.buffered != 0) {  // oldest first; they are alike
      State n = s;
      --n.buffered;
      ++n.visible;
      emit(n, Step{0, 3, 0});
    }
    if (s.rings != 0) {
      State n = s;
      --n.rings;
      ++n.bell;
      emit(n, Step{0, 4, 0});
    }
  }

  template <class Emit>
  void step_pusher(const State& s, Emit&& emit) const {
    State n = s;
    const Step step{0, 2, s.pusher};
    switch (s.pusher) {
      case kStore:
        if (s.pushed == 2) return;
        ++n.pushed;
        ++n.buffered;
        n.pusher = kRead;
        return emit(n, step);
      case kRead: n.pusher = s.idle_bit ? kTake : kStore; return emit(n, step);
      case kTake:  // a locked instruction: it drains the store buffer
        n.visible += n.buffered;
        n.buffered = 0;
        n.idle_bit = 0;
        n.pusher = s.idle_bit ? kRing : kStore;
        return emit(n, step);
      default:
        ++n.rings;
        n.pusher = kStore;
        return emit(n, step);
    }
  }

  template <class Emit>
  void step_worker(const State& s, std::uint8_t w, Emit&& emit) const {
    State n = s;
    Worker& me = n.worker[w];
    const Step step{
        static_cast<std::uint16_t>(me.at == kWatch ? static_cast<unsigned>(me.watch.at()) + 1 : 0), w, me.at};
    const auto go = [&](std::uint8_t at) {
      me.at = at;
      emit(n, step);
    };
    switch (me.at) {
      case kSearch:
        if (s.visible == 0) return go(kSeen);
        --n.visible;
        ++n.taken;
        go(kSearch);  // it was short
        if (s.kept) return;
        n.kept = 1;
        return go(kKeeps);
      case kSeen: me.seen = s.bell; return go(kAnnounce);
      case kAnnounce: ++n.announced; return go(kBits);
      case kBits: n.idle_bit = 1; return go(kLook);
      case kLook:
        if (s.visible != 0) return go(kForget);
        me.watch = NapWait();
        me.refused = 0;
        (void)me.watch.begin();
        return go(kWatch);
      case kWatch: return step_watch(s, w, step, emit);
      case kForget: --n.announced; return go(s.announced == 1 ? kClear : kSearch);
      case kClear: n.idle_bit = 0; return go(kCheck);
      case kCheck: return go(s.announced != 0 ? kBitsAgain : kSearch);
      case kBitsAgain: n.idle_bit = 1; return go(kSearch);
      default: return;
    }
  }

  template <class Emit>
  void step_watch(const State& s, std::uint8_t w, const Step& step, Emit&& emit) const {
    const auto result = [&](bool yes) {
      State n = s;
      Worker& me = n.worker[w];
      if (me.watch.at() == NapWait::Kind::take_role) {
        n.role = 1;
        me.refused = !yes;
      }
      if (me.watch.at() == NapWait::Kind::give_role && without != Without::giving_back) n.role = 0;
      if (me.watch.next(yes, kNaps).kind == NapWait::Kind::done) me.at = kForget;
      emit(n, step);
    };
    switch (s.worker[w].watch.at()) {
      case NapWait::Kind::take_role:
        if (without == Without::asking_again && s.worker[w].refused) return result(false);
        return result(s.role == 0);
      case NapWait::Kind::sleep: return result(s.bell != s.worker[w].seen);  // rung, or the nap is over
      case NapWait::Kind::look: return result(without != Without::looks && s.visible != 0);
      default: return result(false);
    }
  }
};

TEST(NapWait, WhatIsPushedIsTakenWhoeverSleeps) { expect_sound(Idle{}); }

TEST(NapWait, WithoutARuleAPushIsSleptThrough) {
  expect_needed<Idle>({Without::looks, Without::giving_back, Without::asking_again}, Verdict::trapped);
}

// Naps double, from the first only for a worker that falls asleep as the watcher; what is found or rung ends
// them.
TEST(NapWait, NapsDoubleUpToTheLongest) {
  const sched::Naps naps{1, 4};
  NapWait watch;
  EXPECT_EQ(watch.begin().kind, NapWait::Kind::take_role);
  std::int64_t expected = 1;
  NapWait::Step s = watch.next(true, naps);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(s.kind, NapWait::Kind::sleep);
    EXPECT_EQ(s.nap_ns, expected);
    EXPECT_EQ(watch.next(false, naps).kind, NapWait::Kind::look);
    s = watch.next(false, naps);
    expected = std::min<std::int64_t>(2 * expected, 4);
  }
  EXPECT_EQ(watch.next(true, naps).kind, NapWait::Kind::give_role);
  EXPECT_EQ(watch.next(false, naps).kind, NapWait::Kind::done);
}

TEST(NapWait, WhoDoesNotWatchSleepsLongAndLooksAtNothing) {
  const sched::Naps naps{1, 4};
  NapWait watch;
  (void)watch.begin();
  const NapWait::Step s = watch.next(false, naps);
  EXPECT_EQ(s.kind, NapWait::Kind::sleep);
  EXPECT_EQ(s.nap_ns, 4);
  EXPECT_EQ(watch.next(false, naps).kind, NapWait::Kind::take_role);
  EXPECT_EQ(watch.next(false, naps).kind, NapWait::Kind::sleep);
  EXPECT_EQ(watch.next(true, naps).kind, NapWait::Kind::done);
}

}  // namespace
}  // namespace kasane::model
