// SPDX-License-Identifier: Apache-2.0
// Every interleaving of a sleeper, a poller, the network and the watcher around one lane: the sleeper never
// stays asleep with an arrival unseen. Words stand for UCX: what has arrived, whether the worker is armed,
// whether its descriptor is readable and enabled.
#include "comm/ucx/lane_lock.h"

#include <gtest/gtest.h>

#include "support/interleave.h"

namespace kasane::comm::ucx {
namespace {

using kasane::test::InterleavedAtomics;
using kasane::test::Reduction;
using kasane::test::Schedule;
template <class T>
using Word = InterleavedAtomics::Atomic<T>;

constexpr auto kOrder = std::memory_order_seq_cst;

struct Rank {
  LaneLock<InterleavedAtomics> lock;
  Word<std::uint32_t> bell{0};
  Word<std::uint32_t> arrived{0};  ///< messages in the network
  Word<std::uint32_t> armed{0};    ///< the next arrival makes the descriptor readable
  Word<std::uint32_t> readable{0};
  Word<std::uint32_t> enabled{0};  ///< the watcher's epoll listens
  std::uint32_t taken = 0;         ///< under the lock
  bool swallowed = false;          ///< the watcher has taken a message and rung nobody
  bool for_threads = true;         ///< what arrives is messages; else it is peers' uses of this rank's memory
  bool rings_when_unlocked = true, rings_when_event_taken = true, rings_when_busy = true, wants = true,
       rings_for_messages = true, arms_again = true;

  void ring() { bell.fetch_add(1, kOrder); }
  void unlock() {
    if (lock.unlock() && rings_when_unlocked) ring();
  }
  /// Under the lock. What is consumed while the worker is armed leaves its descriptor readable, as UCX's
  /// shared memory does.
  void progress() { taken = arrived.load(kOrder); }

  void network() {
    arrived.fetch_add(1, kOrder);
    if (armed.exchange(0, kOrder) != 0) readable.store(1, kOrder);
  }
  /// One look of the watcher: epoll_wait reports a descriptor that is readable and enabled, and disables it.
  void watcher() {
    if (readable.load(kOrder) == 0 || enabled.exchange(0, kOrder) == 0) return;
    if (!rings_when_event_taken) return;
    lock.event_taken();
    if (!serve()) ring();
  }
  /// In the watcher: true if no thread need look.
  bool serve() {
    if (!lock.try_lock()) return false;
    const std::uint32_t before = taken;
    progress();
    swallowed = swallowed || (taken != before && !rings_for_messages);
    bool served = taken == before || !for_threads || !rings_for_messages;
    if (served && arms_again) {
      served = arm();
      if (served && lock.listen()) enabled.store(1, kOrder);
    }
    unlock();
    return served;
  }
  /// Under the lock: clears the old event, and fails if something came in between.
  bool arm() {
    readable.store(0, kOrder);
    armed.store(1, kOrder);
    return arrived.load(kOrder) == taken;
  }
  void poller() {
    if (!lock.try_lock()) return;
    progress();
    unlock();
  }
  /// As sleep(): returns the activity to sleep on, or nothing if it must look again.
  bool goes_to_sleep(std::uint32_t& seen) {
    seen = bell.load(kOrder);
    poller();
    if (wants ? lock.lock_or_request_ring() : lock.try_lock()) {
      const std::uint32_t before = taken;
      progress();
      bool ready = taken == before;
      if (ready) ready = arm();
      if (ready && lock.listen()) enabled.store(1, kOrder);
      unlock();
      if (!ready && rings_when_busy) ring();
      return ready;
    }
    return true;
  }
};

/// Runs one message against a sleeper, a poller and a watcher that looks twice; true if the sleeper may stay
/// asleep for ever with it unseen.
bool lost(Schedule& s, Rank& rank) {
  std::uint32_t seen = 0;
  bool asleep = false;
  s.thread([&] { asleep = rank.goes_to_sleep(seen); });
  s.thread([&] { rank.network(); });
  s.thread([&] { rank.poller(); });
  s.thread([&] { rank.watcher(); });
  s.run();
  rank.watcher();  // the watcher never rests: after everything it looks again
  if (!asleep || rank.bell.load(kOrder) != seen) return false;
  return rank.taken != rank.arrived.load(kOrder) || (rank.for_threads && rank.swallowed);
}

/// Two uses of this rank's memory by peers, while a thread sleeps. True if one may stay unserved.
bool unserved(Schedule& s, Rank& rank, bool& woke_none) {
  std::uint32_t seen = 0;
  const bool asleep = rank.goes_to_sleep(seen);
  s.thread([&] { rank.network(), rank.network(); });
  s.thread([&] { rank.watcher(); });
  s.run();
  rank.watcher();
  rank.watcher();
  const bool rung = rank.bell.load(kOrder) != seen;
  woke_none = woke_none || !rung;
  return asleep && !rung && rank.taken != rank.arrived.load(kOrder);
}

TEST(LaneLock, NobodySleepsThroughAnArrival) {
  kasane::test::explore(Reduction::commuting, [](Schedule& s) {
    Rank rank;
    EXPECT_FALSE(lost(s, rank));
  });
}

// A lane that is armed and listened to already, so that the watcher's event meets the next sleeper.
TEST(LaneLock, NobodySleepsThroughAnArrivalOnALaneThatWasArmedBefore) {
  kasane::test::explore(Reduction::commuting, [](Schedule& s) {
    Rank rank;
    std::uint32_t seen = 0;
    ASSERT_TRUE(rank.goes_to_sleep(seen));
    EXPECT_FALSE(lost(s, rank));
  });
}

// Peers use this rank's memory: the watcher serves them, time and again, and wakes nobody for it.
TEST(LaneLock, PeersAreServedWhileAllSleep) {
  bool woke_none = false;
  kasane::test::explore(Reduction::commuting, [&](Schedule& s) {
    Rank rank;
    rank.for_threads = false;
    EXPECT_FALSE(unserved(s, rank, woke_none));
  });
  EXPECT_TRUE(woke_none);
}

/// One thread sleeps. Another one, which must look again, has what it waits for and looks no more. True if
/// the first may sleep for ever with a message unseen.
bool lost_by_another(Schedule& s, Rank& rank) {
  std::uint32_t seen = 0, unused = 0;
  const bool asleep = rank.goes_to_sleep(seen);
  s.thread([&] { (void)rank.goes_to_sleep(unused); });
  s.thread([&] { rank.network(); });
  s.thread([&] { rank.watcher(); });
  s.run();
  rank.watcher();
  return asleep && rank.bell.load(kOrder) == seen && rank.taken != rank.arrived.load(kOrder);
}

TEST(LaneLock, NobodySleepsThroughAnArrivalThatAnothersArmingTookTheEventOf) {
  kasane::test::explore(Reduction::commuting, [](Schedule& s) {
    Rank rank;
    EXPECT_FALSE(lost_by_another(s, rank));
  });
}

/// Does some schedule lose an arrival once a part of the protocol is missing?
bool some_schedule_loses(void (*spoil)(Rank&)) {
  bool any = false;
  kasane::test::explore(Reduction::commuting, [&](Schedule& s) {
    Rank rank;
    std::uint32_t seen = 0;
    (void)rank.goes_to_sleep(seen);
    spoil(rank);
    any = lost(s, rank) || any;
  });
  kasane::test::explore(Reduction::commuting, [&](Schedule& s) {
    Rank rank;
    spoil(rank);
    any = lost_by_another(s, rank) || any;
  });
  kasane::test::explore(Reduction::commuting, [&](Schedule& s) {
    Rank rank;
    rank.for_threads = false;
    spoil(rank);
    bool unused = false;
    any = unserved(s, rank, unused) || any;
  });
  return any;
}

TEST(LaneLock, WithoutAnyOfItsPartsAnArrivalIsLost) {
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.rings_when_unlocked = false; }));
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.rings_when_event_taken = false; }));
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.wants = false; }));
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.rings_when_busy = false; }));
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.rings_for_messages = false; }));
  EXPECT_TRUE(some_schedule_loses([](Rank& r) { r.arms_again = false; }));
}

TEST(LaneLock, IsTriedAndTellsWhoeverLetsGo) {
  LaneLock<> lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  EXPECT_FALSE(lock.lock_or_request_ring());
  EXPECT_TRUE(lock.unlock());
  EXPECT_TRUE(lock.lock_or_request_ring());
  EXPECT_FALSE(lock.unlock());
  EXPECT_TRUE(lock.listen());
  EXPECT_FALSE(lock.listen());
  lock.event_taken();
  EXPECT_TRUE(lock.listen());
}

}  // namespace
}  // namespace kasane::comm::ucx
