// SPDX-License-Identifier: Apache-2.0
// Every order of every access of two to four threads: no thread waits for ever, two never hold the mutex, a
// wake-up goes to a thread that waits, and `last` names the rank that must release. A deadlock in the walk is
// a lost waiter.
#include <gtest/gtest.h>

#include "unit/ult_sync/sync_model.h"

namespace kasane::ult::test {
namespace {

model::Outcome walk(std::vector<Script> scripts, Mutation mutation = Mutation::none) {
  const SyncModel system(std::move(scripts), {0, 1, 0, 2}, mutation);
  return model::explore(system, {.states = 20'000'000, .bytes = 4ull << 30});
}

Script times(int n, const Script& body) {
  Script s;
  for (int i = 0; i < n; ++i) s.insert(s.end(), body.begin(), body.end());
  return s;
}

const Script kCritical{{Op::lock}, {Op::add}, {Op::unlock}};
const Script kConsume1{{Op::lock}, {Op::wait_until, 1}, {Op::unlock}};

void expect_exhausted(const model::Outcome& o) {
  EXPECT_TRUE(o.ok()) << o.report();
  EXPECT_GT(o.endings, 0u) << o.report();
  std::cout << o.report() << "\n";
}

TEST(MutexWord, PacksEverySlot) {
  for (SlotId a : {kNoSlot, SlotId{0}, SlotId{1}, SlotId{0xFFFFFFFEu}})
    for (SlotId b : {kNoSlot, SlotId{0}, SlotId{7}, SlotId{0xFFFFFFFEu}})
      EXPECT_EQ(MutexWord::unpack(MutexWord{a, b}.pack()), (MutexWord{a, b}));
  EXPECT_EQ(MutexWord{}.pack(), 0u) << "a zeroed record is a free mutex";
}

TEST(MutexWord, RefusesMisuse) {
  const MutexWord held{SlotId{3}, kNoSlot};
  using Kind = MutexEvent::Kind;
  EXPECT_EQ(next(held, {Kind::lock, SlotId{3}}).action, MutexAction::refuse) << "locked twice";
  EXPECT_EQ(next(held, {Kind::unlock, SlotId{4}}).action, MutexAction::refuse) << "not the holder";
  EXPECT_EQ(next(MutexWord{}, {Kind::unlock, SlotId{4}}).action, MutexAction::refuse) << "nobody holds it";
  EXPECT_EQ(next(held, {Kind::unlock, SlotId{4}}).next, held) << "a refused event changes nothing";
}

TEST(ConditionWord, PacksEveryField) {
  const ConditionWord w{
      .newest = SlotId{0xFFFFFFFEu}, .pending = ConditionWord::kMaxPending, .all = true, .serving = true};
  EXPECT_EQ(ConditionWord::unpack(w.pack()), w);
  EXPECT_EQ(ConditionWord{}.pack(), 0u) << "a zeroed record is a condition variable without waiters";
}

TEST(MutexWalk, TwoThreadsThreeTimes) { expect_exhausted(walk({times(3, kCritical), times(3, kCritical)})); }

TEST(MutexWalk, ThreeThreadsTwice) {
  expect_exhausted(walk({times(2, kCritical), times(2, kCritical), times(2, kCritical)}));
}

TEST(MutexWalk, FourThreadsOnce) {
  expect_exhausted(walk({kCritical, kCritical, kCritical, times(2, kCritical)}));
}

TEST(MutexWalk, FindsAForgottenLast) {
  const auto o = walk({times(2, kCritical), kCritical}, Mutation::last_not_written);
  EXPECT_EQ(o.verdict, model::Verdict::counterexample) << o.report();
}

TEST(ConditionWalk, OneWaiterOneProducer) {
  expect_exhausted(walk({kConsume1, {{Op::lock}, {Op::add}, {Op::notify_one}, {Op::unlock}}}));
  expect_exhausted(walk({kConsume1, {{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}}}));
}

TEST(ConditionWalk, TwoWaitersNotifyAll) {
  expect_exhausted(walk({kConsume1, kConsume1, {{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_all}}}));
}

TEST(ConditionWalk, TwoWaitersNotifyOneEach) {
  expect_exhausted(walk(
      {kConsume1, kConsume1, {{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}, {Op::notify_one}}}));
}

// Each waiter hands on: notifiers meet, one serves for the other, and waiters come back while it does.
TEST(ConditionWalk, NotifiersMeet) {
  const Script second{{Op::lock}, {Op::wait_until, 1}, {Op::add}, {Op::unlock}, {Op::notify_one}};
  const Script third{{Op::lock}, {Op::wait_until, 2}, {Op::unlock}};
  expect_exhausted(walk({{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_all}}, second, third}));
}

TEST(ConditionWalk, TwoNotifiersOneWaiterTwice) {
  const Script twice{{Op::lock}, {Op::wait_until, 1}, {Op::unlock},
                     {Op::lock}, {Op::wait_until, 2}, {Op::unlock}};
  const Script produce{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}};
  const Script produce_all{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_all}};
  expect_exhausted(walk({twice, produce, produce_all}));
}

// Batches of three, partly served, with a rest that the next server finds in fifo.
TEST(ConditionWalk, ThreeWaiters) {
  const Script one_by_one{{Op::lock},       {Op::add},        {Op::unlock},
                          {Op::notify_one}, {Op::notify_one}, {Op::notify_one}};
  expect_exhausted(walk({kConsume1, kConsume1, kConsume1, one_by_one}));
  const Script all_at_last{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}, {Op::notify_all}};
  expect_exhausted(walk({kConsume1, kConsume1, kConsume1, all_at_last}));
}

TEST(ConditionWalk, TwoWaitersTwoNotifiers) {
  const Script produce{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}};
  const Script consume2{{Op::lock}, {Op::wait_until, 2}, {Op::unlock}, {Op::notify_one}};
  expect_exhausted(walk({consume2, consume2, produce, produce}));
}

TEST(ConditionWalk, FindsUnlockBeforePush) {
  const auto o = walk({kConsume1, {{Op::lock}, {Op::add}, {Op::notify_one}, {Op::unlock}}},
                      Mutation::unlock_before_push);
  EXPECT_EQ(o.verdict, model::Verdict::deadlock) << o.report();
}

TEST(ConditionWalk, FindsADroppedWaiter) {
  const auto o =
      walk({kConsume1, {{Op::lock}, {Op::add}, {Op::notify_one}, {Op::unlock}}}, Mutation::relock_dropped);
  EXPECT_EQ(o.verdict, model::Verdict::deadlock) << o.report();
}

// With deadlines: a thread that is let go takes no notification along.
const Script kTimed1{{Op::lock}, {Op::wait_timed, 1}, {Op::unlock}, {Op::hand_on}};
const Script kProduce{{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_one}};

TEST(ConditionWalk, OneWaiterWithADeadline) {
  expect_exhausted(walk({{{Op::lock}, {Op::wait_timed, 1}, {Op::unlock}}}));  // no thread notifies
  expect_exhausted(walk({{{Op::lock}, {Op::wait_timed, 1}, {Op::wait_timed, 1}, {Op::unlock}}, kProduce}));
}
TEST(ConditionWalk, WhoGivesUpTakesNoNotificationAlong) {
  expect_exhausted(walk({kTimed1, kConsume1, kProduce}));
  expect_exhausted(walk({kTimed1, kTimed1, kProduce}));
}
TEST(ConditionWalk, DeadlinesAndNotifyAll) {
  expect_exhausted(walk({kTimed1, kConsume1, {{Op::lock}, {Op::add}, {Op::unlock}, {Op::notify_all}}}));
}
TEST(ConditionWalk, FindsMutantsOfDeadlines) {
  const Script alone{{Op::lock}, {Op::wait_timed, 1}, {Op::unlock}};
  for (const auto& [mutation, name] : {std::pair{Mutation::timer_before_push, "timer_before_push"},
                                       std::pair{Mutation::leave_not_noted, "leave_not_noted"},
                                       std::pair{Mutation::goes_at_once, "goes_at_once"},
                                       std::pair{Mutation::notice_forgotten, "notice_forgotten"},
                                       std::pair{Mutation::all_leave, "all_leave"}}) {
    // A lost time-out, and one too many, is noticed where no thread notifies; a lost notification where a
    // thread waits for it.
    const bool time_out = mutation == Mutation::timer_before_push || mutation == Mutation::leave_not_noted ||
                          mutation == Mutation::all_leave;
    const auto o = time_out ? walk({alone, alone}, mutation) : walk({kTimed1, kConsume1, kProduce}, mutation);
    EXPECT_FALSE(o.ok()) << name;
    std::cout << name << ": " << o.why << "\n";
  }
}

TEST(BarrierWalk, FourThreadsTwoPhases) {
  const Script phases = times(2, {{Op::barrier}});
  expect_exhausted(walk({phases, phases, phases, phases}));
}

TEST(BarrierWalk, ThreeThreadsThreePhases) {
  const Script phases = times(3, {{Op::barrier}});
  expect_exhausted(walk({phases, phases, phases}));
}

// Tokens: some arrive and wait later, when the phase may be over, beside some that do both at once, and one
// that counts for two.
const Script kApart{{Op::arrive}, {Op::await}};

TEST(BarrierWalk, ArriveAndWaitApart) {
  expect_exhausted(walk({times(3, kApart), times(3, {{Op::barrier}})}));
  expect_exhausted(walk({times(2, kApart), times(2, kApart), times(2, {{Op::barrier}})}));
  expect_exhausted(
      walk({times(2, kApart), times(2, {{Op::arrive_twice}, {Op::await}}), times(2, {{Op::barrier}})}));
}

TEST(BarrierWalk, SomeDropOut) {
  const Script leaves{{Op::barrier}, {Op::drop}};
  expect_exhausted(walk({{{Op::drop}}, times(3, {{Op::barrier}}), times(3, {{Op::barrier}})}));
  expect_exhausted(walk({{{Op::drop}}, {{Op::drop}}, times(2, kApart)}));
  expect_exhausted(walk({{{Op::drop}}, leaves, times(3, kApart)}));
  expect_exhausted(walk({leaves, leaves, leaves}));
}

TEST(BarrierWalk, FindsMutants) {
  const auto late =
      walk({{{Op::drop}}, times(2, {{Op::barrier}}), times(2, {{Op::barrier}})}, Mutation::lowered_too_late);
  EXPECT_EQ(late.verdict, model::Verdict::deadlock) << late.report();
  const auto unseen = walk({kApart, {{Op::barrier}}}, Mutation::phase_not_seen);
  EXPECT_EQ(unseen.verdict, model::Verdict::deadlock) << unseen.report();
}

TEST(BarrierWord, PacksAndRefuses) {
  const BarrierWord w{kMostAtBarrier, 0xFF, SlotId{0xFFFFFFFEu}};
  EXPECT_EQ(BarrierWord::unpack(w.pack()), w);
  const BarrierWord two{2, 7, kNoSlot};
  for (const std::uint32_t k : {0u, 3u})
    EXPECT_EQ(next(two, BarrierEvent::arrive, kNoSlot, k, 0, 2).action, BarrierAction::refuse) << k;
  EXPECT_EQ(next({0, 7, kNoSlot}, BarrierEvent::arrive_and_wait, SlotId{1}, 1, 0, 0).action,
            BarrierAction::refuse)
      << "all have dropped out";
  EXPECT_EQ(next(two, BarrierEvent::wait, SlotId{1}, 0, 6, 2).action, BarrierAction::passed);
}

}  // namespace
}  // namespace kasane::ult::test
