// SPDX-License-Identifier: Apache-2.0
// The first, the last and far times of all clocks, in every call that waits, on threads of all ranks, main
// and other OS threads: a time that has passed ends the wait at once, and one that never comes does not.
#include <pthread.h>
#include <semaphore.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>

#include "cases.h"

namespace {

using cases::elsewhere;
using namespace std::chrono_literals;

template <class Clock>
using Hours = std::chrono::time_point<Clock, std::chrono::hours>;

/// Counts the quarters of a second since the last turn of the year, without a sign.
struct Quarters {
  using duration = std::chrono::duration<std::uint32_t, std::ratio<1, 4>>;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Quarters>;
  static constexpr bool is_steady = true;
  static time_point now() {
    const auto t = std::chrono::steady_clock::now().time_since_epoch();
    return time_point(duration(1000 + static_cast<rep>(std::chrono::duration_cast<duration>(t).count())));
  }
};

/// f(time) for times that have come.
template <class F>
void passed(const F& f) {
  const auto of = [&]<class Clock>(Clock*) {
    f(Clock::time_point::min());
    f(Hours<Clock>::min());
    f(Clock::now());
  };
  of(static_cast<std::chrono::steady_clock*>(nullptr));
  of(static_cast<std::chrono::system_clock*>(nullptr));
  of(static_cast<kasane::clock*>(nullptr));
  f(Quarters::time_point::min());
  f(Quarters::now() - Quarters::duration(8));
}
/// … that are far.
template <class F>
void far(const F& f) {
  const auto of = [&]<class Clock>(Clock*) {
    f(Clock::time_point::max());
    f(Hours<Clock>::max());
    f(std::chrono::time_point_cast<std::chrono::seconds>(Clock::now()) + std::chrono::hours(24 * 365 * 80));
  };
  of(static_cast<std::chrono::steady_clock*>(nullptr));
  of(static_cast<std::chrono::system_clock*>(nullptr));
  of(static_cast<kasane::clock*>(nullptr));
  f(Quarters::time_point::max());
}
/// Durations that are over.
template <class F>
void none(const F& f) {
  f(std::chrono::nanoseconds::min());
  f(std::chrono::hours::min());
  f(-1ns);
  f(std::chrono::duration<double>(-std::numeric_limits<double>::infinity()));
  f(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()));
  f(std::chrono::duration<unsigned>(0));
}
template <class F>
void ages(const F& f) {
  f(std::chrono::nanoseconds::max());
  f(std::chrono::hours::max());
  f(std::chrono::duration<double>(std::numeric_limits<double>::infinity()));
  f(std::chrono::duration<long, std::atto>::max());
}

/// An object on which each call of `wait` waits until let_go(), which is called when it does.
template <class Wait, class LetGo>
void is_woken(const Wait& wait, const LetGo& let_go) {
  kasane::latch begun(1);
  kasane::thread waiter([&] {
    begun.count_down();
    EXPECT(wait());
  });
  begun.wait();
  kasane::this_thread::yield();
  let_go();
  waiter.join();
}

void own_objects() {
  kasane::run([] {
    elsewhere([] {
      kasane::counting_semaphore semaphore(0);
      kasane::timed_mutex mutex;
      kasane::shared_timed_mutex shared;
      kasane::condition_variable condition;
      kasane::mutex guard;
      const std::unique_lock held(mutex);
      const std::unique_lock also(shared);
      kasane::promise<int> promise;
      const auto future = promise.get_future();
      std::unique_lock lock(guard);
      const auto nothing = [] { return false; };
      passed([&](auto time) {
        EXPECT(!semaphore.try_acquire_until(time));
        EXPECT(!mutex.try_lock_until(time));
        EXPECT(!shared.try_lock_until(time) && !shared.try_lock_shared_until(time));
        EXPECT(future.wait_until(time) == std::future_status::timeout);
        EXPECT(condition.wait_until(lock, time) == std::cv_status::timeout);
        EXPECT(!condition.wait_until(lock, time, nothing));
      });
      none([&](auto time) {
        EXPECT(!semaphore.try_acquire_for(time));
        EXPECT(!mutex.try_lock_for(time));
        EXPECT(!shared.try_lock_for(time) && !shared.try_lock_shared_for(time));
        EXPECT(future.wait_for(time) == std::future_status::timeout);
        EXPECT(condition.wait_for(lock, time) == std::cv_status::timeout);
        EXPECT(!condition.wait_for(lock, time, nothing));
      });
      lock.unlock();
      far([&](auto time) {
        is_woken([&] { return semaphore.try_acquire_until(time); }, [&] { semaphore.release(); });
        bool there = false;
        is_woken(
            [&] {
              std::unique_lock own(guard);
              return condition.wait_until(own, time, [&] { return there; });
            },
            [&] {
              const std::lock_guard own(guard);
              there = true;
              condition.notify_one();
            });
      });
      ages([&](auto time) {
        is_woken([&] { return semaphore.try_acquire_for(time); }, [&] { semaphore.release(); });
      });
      // A wait that never ends keeps no other of its worker from its time.
      kasane::thread forever([&] { EXPECT(semaphore.try_acquire_for(std::chrono::hours::max())); });
      kasane_sem_t c;
      kasane_sem_init(&c, 0);
      for (const std::uint64_t past : {std::uint64_t{0}, std::uint64_t{1}, kasane_clock_ns()})
        EXPECT_EQ(kasane_sem_timedwait(&c, past), ETIMEDOUT);
      EXPECT(!semaphore.try_acquire_for(2ms));
      for (const std::uint64_t far : {KASANE_NO_DEADLINE, KASANE_NO_DEADLINE - 1})
        is_woken([&] { return kasane_sem_timedwait(&c, far) == 0; }, [&] { kasane_sem_post(&c, 1); });
      kasane_sem_destroy(&c);
      semaphore.release();
      forever.join();
      promise.set_value(1);
    });
  });
}

/// Of the standard library and Pthreads, which lie in global memory.
struct Objects {
  std::timed_mutex mutex;
  std::recursive_timed_mutex recursive;
  std::shared_timed_mutex shared;
  std::mutex guard;
  std::condition_variable condition;
  std::condition_variable_any any;
  std::counting_semaphore<> semaphore{0};
  std::promise<int> promise;
};

void objects_here(Objects& o) {
  std::future<int> future = o.promise.get_future();
  std::unique_lock lock(o.guard);
  const auto nothing = [] { return false; };
  const auto now = [&](auto time) {
    EXPECT(!o.mutex.try_lock_until(time));
    EXPECT(!o.recursive.try_lock_until(time));
    EXPECT(!o.shared.try_lock_until(time) && !o.shared.try_lock_shared_until(time));
    EXPECT(!o.semaphore.try_acquire_until(time));
    EXPECT(o.condition.wait_until(lock, time) == std::cv_status::timeout);
    EXPECT(!o.condition.wait_until(lock, time, nothing));
    EXPECT(o.any.wait_until(lock, time) == std::cv_status::timeout);
    EXPECT(future.wait_until(time) == std::future_status::timeout);
    std::this_thread::sleep_until(time);
  };
  // The standard library computes with these without a look at its types' ends.
  now(std::chrono::steady_clock::time_point::min() + 1h);
  now(std::chrono::system_clock::time_point());
  now(std::chrono::steady_clock::time_point());
  for (const auto time : {std::chrono::nanoseconds(-1h), 0ns, 1000ns}) {
    EXPECT(!o.mutex.try_lock_for(time) && !o.semaphore.try_acquire_for(time));
    EXPECT(o.condition.wait_for(lock, time) == std::cv_status::timeout);
    std::this_thread::sleep_for(time);
  }
  pthread_mutex_t* const m = o.mutex.native_handle();
  const auto give_up = [&](timespec time, int error) {
    EXPECT_EQ(::pthread_mutex_timedlock(m, &time), error);
    EXPECT_EQ(::pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &time), error);
    EXPECT_EQ(::pthread_cond_timedwait(o.condition.native_handle(), o.guard.native_handle(), &time), error);
  };
  for (const time_t passed : {std::numeric_limits<time_t>::min(), time_t{-1}, time_t{0}, time_t{1}})
    give_up({passed, 0}, ETIMEDOUT);
  give_up({std::numeric_limits<time_t>::max(), 1'000'000'000}, EINVAL);
  give_up({0, -1}, EINVAL);
}

void standard_objects() {
  const auto here = [] {
    const auto o = std::make_unique<Objects>();
    std::thread holds([&] {
      o->mutex.lock();
      o->recursive.lock();
      o->shared.lock();
    });
    holds.join();
    objects_here(*o);
    o->shared.unlock();
    o->recursive.unlock();
    o->mutex.unlock();
  };
  here();
  std::thread(here).join();
  kasane::run([&] {
    elsewhere([] {
      const auto o = std::make_unique<Objects>();
      o->mutex.lock();
      o->shared.lock();
      kasane::latch holds(1), done(1);
      kasane::thread other([&] {
        o->recursive.lock();
        holds.count_down();
        done.wait();
        o->recursive.unlock();
      });
      holds.wait();
      kasane::thread([&] { objects_here(*o); }).join();
      done.count_down();
      other.join();
      o->shared.unlock();
      o->mutex.unlock();
    });
  });
}

/// A wait that is to last, and is ended, on an OS thread and on threads of all ranks.
void far_times() {
  const auto o = std::make_unique<Objects>();
  const auto both = [&](const auto& wait, const auto& let_go) {
    std::thread waiter([&] { EXPECT(wait()); });
    let_go();
    waiter.join();
    kasane::run([&] {
      elsewhere([&] {
        kasane::thread w([&] { EXPECT(wait()); });
        kasane::this_thread::yield();
        let_go();
        w.join();
      });
    });
  };
  bool there = false;
  const auto tell = [&] {
    const std::lock_guard own(o->guard);
    there = true;
    o->condition.notify_one();
  };
  const auto until = [&](auto time) {
    both([&] { return o->semaphore.try_acquire_until(time); }, [&] { o->semaphore.release(); });
    both(
        [&] {
          std::unique_lock own(o->guard);
          const bool woken = o->condition.wait_until(own, time, [&] { return there; });
          there = false;
          return woken;
        },
        tell);
  };
  until(std::chrono::steady_clock::time_point::max());
  until(std::chrono::system_clock::time_point::max());
  const auto c = std::make_unique<sem_t>();
  ::sem_init(c.get(), 0, 0);
  for (const time_t seconds : {std::numeric_limits<time_t>::max(), time_t{1} << 40}) {
    const timespec time{seconds, 999'999'999};
    both([&] { return ::sem_timedwait(c.get(), &time) == 0; }, [&] { ::sem_post(c.get()); });
  }
}

// A thread that sleeps for ever does not keep its worker.
void sleepers() {
  kasane::run([] {
    elsewhere([] {
      kasane::thread sleeper([] {
        const timespec ages{std::numeric_limits<time_t>::max(), 0};
        ::nanosleep(&ages, nullptr);
      });
      sleeper.detach();
      bool ran = false;
      kasane::thread([&] { ran = true; }).join();
      for (const long seconds : {0L, -1L}) {
        const timespec time{seconds, 0};
        EXPECT_EQ(::nanosleep(&time, nullptr), seconds == 0 ? 0 : -1);
      }
      const timespec first{0, 0};
      EXPECT_EQ(::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &first, nullptr), 0);
      EXPECT(ran);
    });
  });
}

constexpr cases::Case kAll[] = {
    {"own", own_objects}, {"standard", standard_objects}, {"far", far_times}, {"sleepers", sleepers}};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
