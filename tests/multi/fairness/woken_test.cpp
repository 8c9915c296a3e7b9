// SPDX-License-Identifier: Apache-2.0
// A thread that is woken while the workers of its rank compute is run by a worker that has nothing to do: of
// its rank, or of another one of the host.
#include <gtest/gtest.h>
#include <kasane/kasane.hpp>
#include <kasane/sync.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace {

using namespace std::chrono_literals;

void* place(std::uint32_t rank) {
  static std::vector<void*> places;
  while (places.size() < kasane::ranks())
    places.push_back(kasane_allocate_at(8, 8, static_cast<std::uint32_t>(places.size())));
  return places[rank];
}

/// Lets no other thread have the worker until `over`, or for some seconds: one load in a while does so.
class Computation {
 public:
  void run() {
    begun_.release();
    int steps = 0;
    while (over_.load() == 0) {
      if (++steps == kLong) long_.store(1);
      const auto end = std::chrono::steady_clock::now() + 200ms;
      while (std::chrono::steady_clock::now() < end) {
      }
    }
  }
  /// Until run() was called once more.
  void wait_for_begin() { begun_.acquire(); }
  void end() { over_.store(1); }
  [[nodiscard]] bool was_long() { return long_.load() != 0; }

 private:
  static constexpr int kLong = 8;  ///< steps; a woken thread ends the computation in one
  kasane::counting_semaphore begun_{0};
  kasane::atomic<std::uint32_t> over_{0}, long_{0};
};

/// A thread that waits at a rank until wake(), then ends the computation.
class Waiter {
 public:
  Waiter(std::uint32_t rank, Computation& computation)
      : thread_(kasane::near{place(rank)}, [this, &computation] {
          std::unique_lock lock(mutex_);
          waits_.release();
          while (!woken_) woken_or_not_.wait(lock);
          lock.unlock();
          computation.end();
        }) {
    waits_.acquire();
  }
  void wake() {
    {
      const std::lock_guard lock(mutex_);  // given up by wait()
      woken_ = true;
    }
    woken_or_not_.notify_one();
  }
  void join() { thread_.join(); }

 private:
  std::mutex mutex_;
  std::condition_variable woken_or_not_;
  bool woken_ = false;
  kasane::counting_semaphore waits_{0};
  kasane::thread thread_;
};

constexpr int kTimes = 10;

bool somebody_else() { return kasane::ranks() * kasane::workers() > 1; }

TEST(Woken, ByAThreadOfItsRankThatComputes) {
  if (!somebody_else()) GTEST_SKIP() << "nobody else";
  kasane::run([] {
    for (int n = 0; n < kTimes; ++n) {
      Computation computation;
      Waiter waiter(kasane::ranks() - 1, computation);
      kasane::thread waker(kasane::near{place(kasane::ranks() - 1)}, [&] {
        waiter.wake();
        computation.run();
      });
      waker.join();
      waiter.join();
      EXPECT_FALSE(computation.was_long());
    }
  });
}

TEST(Woken, ByAnotherRankWhereAThirdThreadComputes) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "no other rank";
  kasane::run([] {
    for (int n = 0; n < kTimes; ++n) {
      Computation computation;
      Waiter waiter(kasane::ranks() - 1, computation);
      std::vector<kasane::thread> computing;
      for (std::uint32_t w = 0; w < kasane::workers(); ++w)
        computing.emplace_back(kasane::near{place(kasane::ranks() - 1)}, [&] { computation.run(); });
      for (std::uint32_t w = 0; w < kasane::workers(); ++w) computation.wait_for_begin();
      waiter.wake();
      waiter.join();
      for (kasane::thread& t : computing) t.join();
      EXPECT_FALSE(computation.was_long());
    }
  });
}

// The waker forks meanwhile: who is idle finds nothing in its deque.
TEST(Woken, ByAThreadThatForksLittleThings) {
  if (!somebody_else()) GTEST_SKIP() << "nobody else";
  kasane::run([] {
    Computation computation;
    Waiter waiter(0, computation);
    waiter.wake();
    kasane::parallel_invoke([&] { computation.run(); }, [] {});
    waiter.join();
    EXPECT_FALSE(computation.was_long());
  });
}

}  // namespace
