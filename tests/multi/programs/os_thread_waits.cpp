// SPDX-License-Identifier: Apache-2.0
// OS threads of the program, and main, wait for the standard library's and Pthreads' objects: they sleep
// until they are woken, by their like and by threads of any rank, and by no clock. That they do not nap is
// counted by the kernel: how often a thread has left its processor.
#include <pthread.h>
#include <semaphore.h>
#include <sys/resource.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>

#include "cases.h"

namespace {

using cases::elsewhere;
using namespace std::chrono_literals;

constexpr auto kLong = 300ms;       // some 1000 naps of 200 µs
constexpr long kFewSwitches = 150;  // over a network each access may be one

long switches() {
  rusage used;
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// wait() on a std::thread and on main, let_go() on a std::thread and on a thread of another rank.
template <class Wait, class LetGo>
void sleeps(const Wait& wait, const LetGo& let_go) {
  const auto waits = [&] {
    const long before = switches();
    wait();
    EXPECT(switches() - before < kFewSwitches);
  };
  std::thread late([&] {
    std::this_thread::sleep_for(kLong);
    let_go();
  });
  waits();
  late.join();
  std::thread waiter(waits);
  kasane::run([&] {
    elsewhere([&] {
      std::this_thread::sleep_for(kLong);
      let_go();
    });
  });
  waiter.join();
}

void conditions() {
  const auto mutex = std::make_unique<std::mutex>();
  const auto condition = std::make_unique<std::condition_variable>();
  bool there = false;
  sleeps(
      [&] {
        std::unique_lock lock(*mutex);
        condition->wait(lock, [&] { return there; });
        there = false;
      },
      [&] {
        const std::lock_guard lock(*mutex);
        there = true;
        condition->notify_one();
      });
}

void mutexes() {
  const auto mutex = std::make_unique<std::timed_mutex>();
  const auto shared = std::make_unique<std::shared_mutex>();
  mutex->lock();
  shared->lock();
  sleeps(
      [&] {
        mutex->lock();
        shared->lock();
      },
      [&] {
        mutex->unlock();
        shared->unlock();
      });
}

void semaphores() {
  const auto own = std::make_unique<std::counting_semaphore<>>(0);
  const auto of_c = std::make_unique<sem_t>();
  ::sem_init(of_c.get(), 0, 0);
  sleeps(
      [&] {
        own->acquire();
        EXPECT_EQ(::sem_wait(of_c.get()), 0);
      },
      [&] {
        own->release();
        ::sem_post(of_c.get());
      });
  ::sem_init(of_c.get(), 0, SEM_VALUE_MAX);
  EXPECT(::sem_post(of_c.get()) == -1 && errno == EOVERFLOW);
  int value = 0;
  ::sem_getvalue(of_c.get(), &value);
  EXPECT_EQ(value, SEM_VALUE_MAX);
}

void barriers() {
  const auto of_c = std::make_unique<pthread_barrier_t>();
  ::pthread_barrier_init(of_c.get(), nullptr, 2);
  const auto own = std::make_unique<std::barrier<>>(2);
  const auto meet = [&] {
    ::pthread_barrier_wait(of_c.get());
    own->arrive_and_wait();
  };
  sleeps(meet, meet);
  std::atomic<int> word{0};
  // The last call of the thread's function is made by a jump.
  sleeps([&] { word.wait(0), --word; },
         [&] {
           ++word;
           word.notify_all();
         });
}

/// Of a function, of which a thread is in the middle.
int slow(int value) {
  static const int first = [value] {
    std::this_thread::sleep_for(kLong);
    return value;
  }();
  return first;
}
void initialisers() {
  std::atomic<bool> begun{false};
  std::thread other([&] {
    begun = true;
    slow(1);
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(kLong / 4);
  const long before = switches();
  EXPECT_EQ(slow(2), 1);
  EXPECT(switches() - before < kFewSwitches);
  other.join();
}

// A turn each, among them threads of all ranks, so that all kinds wake all kinds.
void turns() {
  const auto mutex = std::make_unique<std::mutex>();
  const auto condition = std::make_unique<std::condition_variable>();
  constexpr int kPlayers = 4, kRounds = 50;
  int turn = 0;
  const auto play = [&](int me) {
    for (int round = 0; round < kRounds; ++round) {
      std::unique_lock lock(*mutex);
      condition->wait(lock, [&] { return turn % kPlayers == me; });
      ++turn;
      condition->notify_all();
    }
  };
  std::thread first([&] { play(0); }), second([&] { play(1); });
  kasane::run([&] { cases::on_ranks(2, [&](int i) { play(2 + i); }); });
  first.join();
  second.join();
  EXPECT_EQ(turn, kPlayers * kRounds);
}

// As many waiters as there are tokens, some of which give up at about the time when they would get one.
void tokens() {
  const auto mutex = std::make_unique<std::mutex>();
  const auto condition = std::make_unique<std::condition_variable>();
  int given = 0, left = 0;
  const auto take = [&](int n, std::chrono::microseconds time) {
    for (int i = 0; i < n;) {
      std::unique_lock lock(*mutex);
      const auto there = [&] { return left != 0; };
      if (time.count() == 0)
        condition->wait(lock, there);
      else if (!condition->wait_for(lock, time, there))
        continue;
      --left, ++i;
    }
  };
  std::thread patient([&] { take(40, 0us); }), hasty([&] { take(40, 300us); });
  kasane::run([&] {
    cases::on_ranks(4, [&](int i) {
      if (i < 2) return take(40, i == 0 ? 0us : 200us);
      for (int n = 0; n < 80; ++n) {
        const std::lock_guard lock(*mutex);
        ++left, ++given;
        condition->notify_one();
      }
    });
  });
  patient.join();
  hasty.join();
  EXPECT_EQ(given, 160);
  EXPECT_EQ(left, 0);
}

constexpr cases::Case kAll[] = {
    {"conditions", conditions},     {"mutexes", mutexes}, {"semaphores", semaphores}, {"barriers", barriers},
    {"initialisers", initialisers}, {"turns", turns},     {"tokens", tokens},
};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
