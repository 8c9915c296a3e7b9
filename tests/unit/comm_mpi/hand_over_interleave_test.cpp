// SPDX-License-Identifier: Apache-2.0
// Every interleaving of small programs over what the mpi transport's threads share: the lock that is only
// tried, the ring of operations, the stack of answers.
#include <gtest/gtest.h>

#include "base/mpsc_ring.h"
#include "comm/mpi/answer_stack.h"
#include "comm/mpi/hand_over.h"
#include "comm/mpi/op_ring.h"
#include "support/interleave.h"

namespace kasane::comm::mpi {
namespace {

using test::explore;
using test::InterleavedAtomics;
using test::Reduction;
using test::Schedule;

struct Posting {
  TryLock<InterleavedAtomics> lock;
  HandOver<InterleavedAtomics> hand_over;
  MpscRing<int, InterleavedAtomics> queue{4};
  int drained = 0, inside = 0;

  void drain() {
    EXPECT_EQ(++inside, 1) << "two threads under the lock";
    for (int value; queue.try_pop(value);) ++drained;
    --inside;
  }
  void post() {
    EXPECT_NE(queue.try_push(1), Push::full);
    hand_over.announce();
    hand_over.look_back(lock, [this] { drain(); });
  }
  /// Uses the lock for something else, as a put through a window does.
  void other() {
    if (!lock.try_lock()) return;
    lock.unlock();
    hand_over.look_back(lock, [this] { drain(); });
  }
};

TEST(HandOver, WhatTwoPostersPushedIsDrainedWhenBothAreDone) {
  const auto runs = explore(Reduction::commuting, [](Schedule& s) {
    Posting p;
    s.thread([&] { p.post(); });
    s.thread([&] { p.post(); });
    s.run();
    EXPECT_EQ(p.drained, 2);
  });
  EXPECT_GT(runs, 100u);
}

TEST(HandOver, AHolderThatDrainsNothingItselfLeavesNothingLying) {
  explore(Reduction::commuting, [](Schedule& s) {
    Posting p;
    s.thread([&] { p.post(); });
    s.thread([&] { p.other(); });
    s.run();
    EXPECT_EQ(p.drained, 1);
  });
}

// The test can fail: a holder that does not look back loses what was pushed meanwhile.
TEST(HandOver, WithoutTheLookBackSomethingIsLost) {
  int lost = 0;
  explore(Reduction::commuting, [&](Schedule& s) {
    Posting p;
    s.thread([&] { p.post(); });
    s.thread([&] {
      if (p.lock.try_lock()) p.lock.unlock();
    });
    s.run();
    lost += p.drained == 0 ? 1 : 0;
  });
  EXPECT_GT(lost, 0);
}

// ---- notes: credits and rings -----------------------------------------------------------------------------

TEST(AnswerStack, NotesThatAreSetAreReadByWhoeverTakesTheNode) {
  explore(Reduction::commuting, [](Schedule& s) {
    AnswerStack<InterleavedAtomics> owed(1, 2);
    InterleavedAtomics::Atomic<int> credits{0};
    int read = 0;
    auto take = [&] {
      for (std::uint32_t id = owed.take_all(); id != owed.kEnd;) {
        const std::uint32_t next = owed.node(id).next;
        owed.take_flow_control(0);
        read += credits.exchange(0, std::memory_order_seq_cst);
        id = next;
      }
    };
    for (int i = 0; i < 2; ++i) {
      s.thread([&] {
        credits.fetch_add(1, std::memory_order_seq_cst);
        owed.flow_control(0);
      });
    }
    s.thread([&] { take(); });
    s.run();
    take();  // the last holder's look back
    EXPECT_EQ(read, 2);
  });
}

TEST(AnswerStack, AnswersOfTwoThreadsAreTakenOnceEachOldestFirst) {
  explore(Reduction::commuting, [](Schedule& s) {
    AnswerStack<InterleavedAtomics> owed(2, 4);
    std::vector<std::uint64_t> taken;
    auto take = [&] {
      for (std::uint32_t id = owed.take_all(); id != owed.kEnd; id = owed.node(id).next)
        taken.push_back(owed.node(id).value);
    };
    s.thread([&] {
      owed.operation(0, 1, 10);
      owed.operation(1, 1, 11);
    });
    s.thread([&] { owed.operation(0, 3, 20); });
    s.thread([&] { take(); });
    s.run();
    take();
    ASSERT_EQ(taken.size(), 3u);
    EXPECT_LT(std::find(taken.begin(), taken.end(), 10u), std::find(taken.begin(), taken.end(), 11u));
  });
}

TEST(AnswerStack, ANodeSaysWhomItAnswers) {
  AnswerStack<> owed(3, 8);
  owed.open(2, 5);
  owed.reply(2, 5, 77);
  owed.operation(1, 7, 78);
  owed.flow_control(0);
  std::vector<AnswerStack<>::Meaning> all;
  for (std::uint32_t id = owed.take_all(); id != owed.kEnd; id = owed.node(id).next)
    all.push_back(owed.meaning(id));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].peer == 2 && all[0].about == AnswerStack<>::About::reply && all[0].slot == 5);
  EXPECT_TRUE(all[1].peer == 1 && all[1].about == AnswerStack<>::About::operation && all[1].slot == 7);
  EXPECT_TRUE(all[2].peer == 0 && all[2].about == AnswerStack<>::About::flow_control);
}

TEST(AnswerStackDeathTest, ASecondAnswerToARequestIsABug) {
  AnswerStack<> owed(1, 2);
  owed.open(0, 1);
  owed.reply(0, 1, 1);
  EXPECT_DEATH(owed.reply(0, 1, 2), "answered twice");
}

// ---- operations and fences --------------------------------------------------------------------------------

using Ring = OpRing<InterleavedAtomics>;

std::optional<std::uint64_t> post(Ring& ring, bool fence) {
  const auto position = ring.claim();
  if (!position) return position;
  ring.at(*position) = {
      .completion = nullptr, .to = nullptr, .result = nullptr, .bytes = 0, .parts = 1, .fence = fence};
  ring.publish(*position);
  return position;
}

// A poster posts an operation and a fence while the gate's holder ends whatever it sees: the fence ends, and
// after the operation.
TEST(OpRing, AFenceEndsAfterWhatWasPostedBeforeIt) {
  explore(Reduction::commuting, [](Schedule& s) {
    Ring ring(4);
    int ended = 0, fenced_after = -1;
    auto gate = [&] {
      for (std::uint16_t i = 0; i < 4; ++i) {
        const RmaOperation* op = ring.under_way(i);
        if (op == nullptr || op->fence) continue;
        ring.end(i);
        ++ended;
      }
      while (const auto fence = ring.take_fence()) {
        fenced_after = ended;
        ring.end(*fence);
      }
    };
    s.thread([&] {
      EXPECT_TRUE(post(ring, false));
      EXPECT_TRUE(post(ring, true));
    });
    s.thread(gate);
    s.run();
    for (int i = 0; i < 2; ++i) gate();
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(fenced_after, 1);
    EXPECT_TRUE(ring.idle());
  });
}

// In a full ring a slot is claimed for its next position the moment it is free, before low has passed it.
TEST(OpRing, AFullRingRefusesAndGoesOnWhenAnOperationHasEnded) {
  explore(Reduction::commuting, [](Schedule& s) {
    Ring ring(2);
    EXPECT_TRUE(post(ring, false));
    EXPECT_TRUE(post(ring, false));
    EXPECT_FALSE(post(ring, false));
    bool third = false;
    s.thread([&] { third = post(ring, false).has_value(); });
    s.thread([&] {
      ring.end(1);  // out of order: low stays
      EXPECT_FALSE(ring.idle());
      ring.end(0);
    });
    s.run();
    EXPECT_EQ(ring.idle(), !third);
    if (third) ring.end(0);
    EXPECT_TRUE(ring.idle());
  });
}

}  // namespace
}  // namespace kasane::comm::mpi
