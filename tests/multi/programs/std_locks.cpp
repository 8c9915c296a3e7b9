// SPDX-License-Identifier: Apache-2.0
// std::mutex and its like, and Pthreads' objects, as variables and in global memory, used by threads of all
// ranks.
#include <pthread.h>
#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "cases.h"

namespace {

using cases::elsewhere;
using cases::on_ranks;
using namespace std::chrono_literals;

std::mutex lock;
std::map<std::string, int> words;
long counter = 0;

void mutexes() {
  kasane::run([] {
    on_ranks(8, [](int i) {
      for (int k = 0; k < 100; ++k) {
        const std::lock_guard guard(lock);
        ++counter;
        ++words["word " + std::to_string((i + k) % 20)];
      }
    });
    EXPECT_EQ(counter, 800);
    EXPECT_EQ(words["word 7"], 40);
    // held over a move: unlocked on another rank
    auto other = std::make_unique<std::mutex>();
    on_ranks(4, [&](int i) {
      for (int k = 0; k < 10; ++k) {
        const std::scoped_lock both(lock, *other);
        cases::go(static_cast<std::uint32_t>(i + k));
        ++counter;
      }
    });
    EXPECT_EQ(counter, 840);
    elsewhere([] {
      EXPECT(lock.try_lock());
      kasane::thread(kasane::near{cases::place(0)}, [] { EXPECT(!lock.try_lock()); }).join();
      lock.unlock();
    });
  });
}

std::recursive_mutex recursive;
int recursion(int n) {
  const std::lock_guard guard(recursive);
  if (n == 3) cases::go(cases::last());
  return n == 0 ? 0 : 1 + recursion(n - 1);
}
std::timed_mutex timed;
void kinds_of_mutexes() {
  kasane::run([] {
    on_ranks(4, [](int) {
      for (int k = 0; k < 20; ++k) EXPECT_EQ(recursion(6), 6);
    });
    timed.lock();
    elsewhere([] {
      const auto start = std::chrono::steady_clock::now();
      EXPECT(!timed.try_lock_for(20ms) && std::chrono::steady_clock::now() - start >= 20ms);
      EXPECT(!timed.try_lock_until(std::chrono::system_clock::now() + 5ms));
    });
    timed.unlock();
    elsewhere([] { EXPECT(timed.try_lock_for(10s)); });
    timed.unlock();
    pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    elsewhere([&] {
      EXPECT_EQ(::pthread_mutex_lock(&checked), 0);
      EXPECT_EQ(::pthread_mutex_lock(&checked), EDEADLK);
    });
    EXPECT_EQ(::pthread_mutex_unlock(&checked), EPERM);
    EXPECT_EQ(::pthread_mutex_trylock(&checked), EBUSY);
  });
}

// The queue of a producer on each rank and a consumer on each.
std::condition_variable not_empty, not_full;
std::deque<int> queue;
void conditions() {
  kasane::run([] {
    std::atomic<long> sum{0};
    on_ranks(8, [&](int i) {
      for (int k = 0; k < 50; ++k) {
        std::unique_lock guard(lock);
        if (i % 2 == i / 2 % 2) {  // a producer and a consumer on each of two and of four ranks
          not_full.wait(guard, [] { return queue.size() < 4; });
          queue.push_back(k);
          not_empty.notify_one();
        } else {
          not_empty.wait(guard, [] { return !queue.empty(); });
          sum += queue.front();
          queue.pop_front();
          not_full.notify_one();
        }
      }
    });
    EXPECT_EQ(sum.load(), 4 * 49 * 25);
    bool done = false;
    std::condition_variable_any any;
    on_ranks(4, [&](int i) {
      std::unique_lock guard(lock);
      if (i == 3) {
        done = true;
        any.notify_all();
      } else {
        any.wait(guard, [&] { return done; });
      }
    });
    elsewhere([] {
      std::unique_lock guard(lock);
      EXPECT(not_full.wait_for(guard, 5ms, [] { return false; }) == false);
      EXPECT(not_full.wait_until(guard, std::chrono::system_clock::now() + 5ms) == std::cv_status::timeout);
      EXPECT(guard.owns_lock());
    });
  });
}

std::shared_mutex shared;
std::map<int, int> squares;
void shared_mutexes() {
  kasane::run([] {
    on_ranks(8, [](int i) {
      for (int k = 0; k < 50; ++k) {
        if (k % 5 == 0) {
          const std::lock_guard guard(shared);
          squares[i * 50 + k] = k * k;
        } else {
          const std::shared_lock guard(shared);
          for (const auto& [n, square] : squares) EXPECT_EQ(square, n % 50 * (n % 50));
        }
      }
    });
    EXPECT_EQ(squares.size(), 80u);
    std::shared_timed_mutex with_time;
    with_time.lock_shared();
    elsewhere([&] {
      EXPECT(!with_time.try_lock_for(5ms) && with_time.try_lock_shared_for(5ms));
      with_time.unlock_shared();
    });
    with_time.unlock_shared();
  });
}

std::once_flag flag;
std::atomic<int> calls, failures;
int initialised = 0;
void once() {
  kasane::run([] {
    on_ranks(16, [](int) {
      try {
        std::call_once(flag, [] {
          const int call = ++calls;
          kasane::parallel_for(0, 8, [](int) { kasane::this_thread::yield(); }, 1);
          if (call < 3) throw std::runtime_error("again");
          initialised = 42;
        });
        EXPECT_EQ(initialised, 42);
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
    EXPECT_EQ(calls.load(), 3);
    EXPECT_EQ(failures.load(), 2);
  });
}

// OS threads of the program share them, too, and main.
void os_threads() {
  std::mutex of_main;
  long n = 0;
  std::vector<std::thread> native;
  for (int i = 0; i < 2; ++i)
    native.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const std::lock_guard guard(of_main);
        ++n;
      }
    });
  kasane::run([&] {
    on_ranks(4, [&](int) {
      for (int k = 0; k < 50; ++k) {
        const std::lock_guard guard(of_main);
        ++n;
      }
    });
  });
  for (std::thread& t : native) t.join();
  const std::lock_guard guard(of_main);
  EXPECT_EQ(n, 300);
}

pthread_rwlock_t readers_and_writers = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
pthread_once_t initialise = PTHREAD_ONCE_INIT;
pthread_barrier_t barrier;
pthread_spinlock_t spin;
sem_t permits;
int phases[4], stages = 0, written = 0;

void objects_of_pthreads() {
  ::pthread_barrier_init(&barrier, nullptr, 4);
  ::pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
  ::sem_init(&permits, 0, 2);
  std::atomic<int> serial{0}, inside{0};
  kasane::run([&] {
    on_ranks(4, [&](int i) {
      ::pthread_once(&initialise, [] { counter = 1000; });
      for (int k = 0; k < 20; ++k) {
        phases[i] = k;
        serial += ::pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        for (const int phase : phases) EXPECT_EQ(phase, k);
        ::pthread_barrier_wait(&barrier);
        ::sem_wait(&permits);
        EXPECT(++inside <= 2);
        --inside;
        ::sem_post(&permits);
        ::pthread_spin_lock(&spin);
        ++counter;
        ::pthread_spin_unlock(&spin);
        ::pthread_rwlock_wrlock(&readers_and_writers);
        ++written;
        ::pthread_rwlock_unlock(&readers_and_writers);
        ::pthread_mutex_lock(&plain);
        while (stages % 4 != i) ::pthread_cond_wait(&signalled, &plain);
        ++stages;
        ::pthread_cond_broadcast(&signalled);
        ::pthread_mutex_unlock(&plain);
      }
    });
  });
  EXPECT_EQ(serial.load(), 20);
  EXPECT_EQ(counter, 1080);
  EXPECT_EQ(written, 80);
  EXPECT_EQ(stages, 80);
  ::pthread_barrier_destroy(&barrier);
  ::pthread_cond_destroy(&signalled);
}

// Two threads that lock crosswise: the job ends with status 67.
void deadlock() {
  kasane::run([] {
    std::mutex a, b;
    kasane::latch both(2);
    on_ranks(2, [&](int i) {
      const std::lock_guard first(i ? a : b);
      both.arrive_and_wait();
      const std::lock_guard second(i ? b : a);
    });
  });
}

constexpr cases::Case kAll[] = {
    {"mutexes", mutexes},
    {"kinds", kinds_of_mutexes},
    {"conditions", conditions},
    {"shared", shared_mutexes},
    {"once", once},
    {"os-threads", os_threads},
    {"pthreads", objects_of_pthreads},
};
constexpr cases::Case kBlocked[] = {{"deadlock", deadlock}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "deadlock") == 0) return cases::main_of(argc, argv, kBlocked);
  return cases::main_of(argc, argv, kAll);
}
