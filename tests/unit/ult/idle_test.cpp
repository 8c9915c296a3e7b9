// SPDX-License-Identifier: Apache-2.0
// No wake-up is lost: one item is made available while all workers are falling asleep, again and again, and
// the maker then waits for it without helping. A lost wake-up hangs, which the deadline turns into a failure.
#include <atomic>

#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

/// Busy-waits on the OS thread, so that only another worker can bring the condition about.
template <class Condition>
bool spin_until(Condition condition) {
  const std::uint64_t deadline = now_ns() + 60'000'000'000u;
  while (!condition()) {
    if (now_ns() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class IdleTest : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, IdleTest, ::testing::Values(2u, 3u, 4u));

TEST_P(IdleTest, ASinglePushWakesSomebody) {
  TestPool pool(GetParam());
  bool all = true;
  pool.run([&] {
    for (unsigned i = 0; i < 3000 && all; ++i) {
      // The pause sweeps over the 20 µs after which idle workers fall asleep, announce themselves, look
      // again.
      const std::uint64_t until = now_ns() + (i * 37) % 60'000;
      while (now_ns() < until) relax();
      std::atomic<bool> taken{false};
      // The child blocks the worker; the parent's continuation is the single item: another worker must come
      // for it.
      const ThreadId child = fork([&] { all = spin_until([&] { return taken.load(); }) && all; });
      taken = true;
      Pool::join(child);
    }
  });
  EXPECT_TRUE(all) << "a push was not noticed";
}

TEST_P(IdleTest, AReadyThreadWakesSomebody) {
  TestPool pool(GetParam());
  bool all = true;
  pool.run([&] {
    for (unsigned i = 0; i < 3000 && all; ++i) {
      std::atomic<std::uint32_t> waiter{raw(kNoSlot)};
      std::atomic<bool> resumed{false};
      const ThreadId child = fork([&] {
        Pool::suspend(
            [](void* p, SlotId self) { static_cast<std::atomic<std::uint32_t>*>(p)->store(raw(self)); },
            &waiter);
        resumed = true;
      });
      all = yield_until([&] { return waiter.load() != raw(kNoSlot); }) && all;
      const std::uint64_t until = now_ns() + (i * 37) % 60'000;
      while (now_ns() < until) relax();
      pool->make_ready(SlotId{waiter.load()}, Rank{0});
      all = spin_until([&] { return resumed.load(); }) && all;  // without letting go of this worker
      Pool::join(child);
    }
  });
  EXPECT_TRUE(all) << "make_ready was not noticed";
}

TEST_P(IdleTest, TheRootsEndWakesItsWorker) {
  TestPool pool(GetParam());
  for (unsigned i = 0; i < 500; ++i) {
    // The root moves to another worker and ends there while worker 0 may be asleep.
    pool.run([&] {
      const ThreadId child = fork([&] {
        const std::uint64_t until = now_ns() + (i * 53) % 80'000;
        while (now_ns() < until) relax();
      });
      Pool::detach(child);
    });
  }
}

TEST_P(IdleTest, IdleWorkersSleep) {
  TestPool pool(GetParam());
  pool.run([&] { EXPECT_TRUE(spin_until([&] { return pool.total(&Counters::sleeps) >= 1; })); });
}

TEST(IdleTest, StopWakesSleepersAtOnceAndAgain) {
  for (int i = 0; i < 200; ++i) {
    TestPool pool(3);
    if (i % 2) std::this_thread::sleep_for(std::chrono::microseconds(i));
  }
}

}  // namespace
}  // namespace kasane::ult
