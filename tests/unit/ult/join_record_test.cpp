// SPDX-License-Identifier: Apache-2.0
// The join record under every interleaving: an exiter beside a joiner, a detacher, two joiners, or a joiner
// and a detacher, each of which reads the word, computes, and compare-swaps (the code's loop). Whatever the
// order, the slot is freed exactly once and a suspended joiner is woken.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ult/join_record.h"

namespace kasane::ult {
namespace {

using Event = JoinEvent::Kind;

struct Actor {
  JoinEvent event;
  int step = 0;  ///< 0 reads, 1 swaps, 2 has finished
  std::uint64_t seen = 0;
  JoinRecord old{};
  JoinAction action = JoinAction::none;
};

struct World {
  std::uint64_t word;
  std::vector<Actor> actors;
  bool woken = false;
};

/// What the exiter and the others may rely on at the end of every interleaving.
void check_end(const World& w, int& ends) {
  ++ends;
  int freed = 0, suspended = 0, refused = 0, woken = 0;
  for (const Actor& a : w.actors) {
    freed += a.action == JoinAction::free_slot;
    freed += a.action == JoinAction::collect;
    suspended += a.action == JoinAction::suspend;
    refused += a.action == JoinAction::refuse;
    if (a.action == JoinAction::wake) {
      ++woken;
      EXPECT_EQ(a.event.kind, Event::exit);
      EXPECT_EQ(a.old.kind, JoinKind::waited);
      // The waiter it must wake is the one that was suspended.
      for (const Actor& j : w.actors) {
        if (j.action == JoinAction::suspend) {
          EXPECT_EQ(a.old.slot, j.event.slot);
          EXPECT_EQ(a.old.rank, j.event.rank);
        }
      }
    }
    if (a.event.kind == Event::exit) {
      EXPECT_NE(a.action, JoinAction::refuse);
    }
  }
  EXPECT_EQ(woken, suspended) << "a suspended joiner is woken exactly if it was suspended";
  EXPECT_LE(suspended, 1);
  // The woken joiner comes back with its event, and it alone gets the action that frees the slot.
  if (woken == 1) {
    EXPECT_EQ(freed, 0);
    for (const Actor& a : w.actors) {
      const JoinStep again = next(JoinRecord::unpack(w.word), a.event);
      EXPECT_EQ(again.action, a.action == JoinAction::suspend ? JoinAction::collect : JoinAction::refuse);
    }
  }
  EXPECT_EQ(freed + woken, 1);
  EXPECT_EQ(refused, static_cast<int>(w.actors.size()) - 2)
      << "one of the claimants is served, the others are refused";
}

void walk(World w, int& ends) {
  bool moved = false;
  for (std::size_t i = 0; i < w.actors.size(); ++i) {
    if (w.actors[i].step == 2) continue;
    moved = true;
    World after = w;
    Actor& a = after.actors[i];
    if (a.step == 0) {
      a.seen = after.word;
      a.step = 1;
    } else {
      const JoinStep step = next(JoinRecord::unpack(a.seen), a.event);
      if (after.word == a.seen) {
        a.old = JoinRecord::unpack(a.seen);
        after.word = step.next.pack();
        a.action = step.action;
        a.step = 2;
      } else {
        a.step = 0;
      }
    }
    walk(after, ends);
  }
  if (!moved) check_end(w, ends);
}

World world(std::vector<JoinEvent> events) {
  World w{JoinRecord{JoinKind::running}.pack(), {}};
  for (const JoinEvent& e : events) w.actors.push_back(Actor{.event = e});
  return w;
}

constexpr JoinEvent kExit{Event::exit, Rank{3}};
constexpr JoinEvent kJoin{Event::join, Rank{1}, SlotId{77}};
constexpr JoinEvent kOtherJoin{Event::join, Rank{2}, SlotId{78}};
constexpr JoinEvent kDetach{Event::detach};

TEST(JoinRecord, EveryInterleavingFreesTheSlotOnce) {
  for (const auto& events : {std::vector{kExit, kJoin}, std::vector{kExit, kDetach},
                             std::vector{kExit, kJoin, kOtherJoin}, std::vector{kExit, kJoin, kDetach}}) {
    int ends = 0;
    walk(world(events), ends);
    EXPECT_GE(ends, 2);
  }
}

TEST(JoinRecord, TheTableOfTheDesign) {
  constexpr JoinRecord kFree{}, kRun{JoinKind::running}, kWait{JoinKind::waited, Rank{1}, SlotId{77}},
      kGone{JoinKind::exited, Rank{3}}, kKept{JoinKind::reserved, Rank{3}, SlotId{77}},
      kAlone{JoinKind::detached};
  constexpr JoinEvent kStart{Event::start};
  struct Row {
    JoinRecord state;
    JoinEvent event;
    JoinStep expected;
  };
  const std::array rows = {
      Row{kFree, kStart, {kRun, JoinAction::none}},
      Row{kFree, kExit, {kFree, JoinAction::refuse}},
      Row{kFree, kJoin, {kFree, JoinAction::refuse}},
      Row{kFree, kDetach, {kFree, JoinAction::refuse}},
      Row{kRun, kStart, {kRun, JoinAction::refuse}},
      Row{kRun, kExit, {kGone, JoinAction::none}},
      Row{kRun, kJoin, {kWait, JoinAction::suspend}},
      Row{kRun, kDetach, {kAlone, JoinAction::none}},
      Row{kWait, kStart, {kWait, JoinAction::refuse}},
      Row{kWait, kExit, {kKept, JoinAction::wake}},
      Row{kWait, kOtherJoin, {kWait, JoinAction::refuse}},
      Row{kWait, kDetach, {kWait, JoinAction::refuse}},
      Row{kGone, kStart, {kGone, JoinAction::refuse}},
      Row{kGone, kExit, {kGone, JoinAction::refuse}},
      Row{kGone, kJoin, {kFree, JoinAction::collect}},
      Row{kGone, kDetach, {kFree, JoinAction::free_slot}},
      Row{kKept, kStart, {kKept, JoinAction::refuse}},
      Row{kKept, kExit, {kKept, JoinAction::refuse}},
      Row{kKept, kJoin, {kFree, JoinAction::collect}},
      Row{kKept, kOtherJoin, {kKept, JoinAction::refuse}},
      Row{kKept, kDetach, {kKept, JoinAction::refuse}},
      Row{kAlone, kStart, {kAlone, JoinAction::refuse}},
      Row{kAlone, kExit, {kFree, JoinAction::free_slot}},
      Row{kAlone, kJoin, {kAlone, JoinAction::refuse}},
      Row{kAlone, kDetach, {kAlone, JoinAction::refuse}},
  };
  for (const Row& row : rows) EXPECT_EQ(next(row.state, row.event), row.expected);
}

TEST(JoinRecord, PacksAndUnpacks) {
  for (const JoinKind kind : {JoinKind::free, JoinKind::running, JoinKind::waited, JoinKind::exited,
                              JoinKind::reserved, JoinKind::detached})
    for (const std::uint32_t rank : {0u, 1u, 0xFFFFFFFu})
      for (const std::uint32_t slot : {0u, 5u, 0xFFFFFFFFu}) {
        const JoinRecord record{kind, Rank{rank}, SlotId{slot}};
        EXPECT_EQ(JoinRecord::unpack(record.pack()), record);
      }
  EXPECT_EQ(JoinRecord{}.pack(), 0u) << "a zeroed region has free slots";
}

}  // namespace
}  // namespace kasane::ult
