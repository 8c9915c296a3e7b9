// SPDX-License-Identifier: Apache-2.0
// std::thread and Pthreads with --threads spread: the threads of an ordinary program run on all ranks, and
// what it does means what it means in one process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <threads.h>
#include <unistd.h>
#include <kasane/kasane.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr int kThreads = 8;

template <class Body>
void on_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& t : threads) t.join();
}

std::mutex g_mutex;
std::condition_variable g_condition;
std::atomic<long> g_sum;

TEST(Spread, EachRankRunsItsShareOfThreads) {
  std::array<pid_t, kThreads> process{};
  on_threads(kThreads, [&](int i) {
    process[static_cast<std::size_t>(i)] = ::getpid();
    static std::barrier all(kThreads);  // so that all run at a time
    all.arrive_and_wait();
  });
  EXPECT_EQ(std::set<pid_t>(process.begin(), process.end()).size(), kasane::ranks());
}

TEST(Spread, VariablesLocksAndAllocationsAreShared) {
  long plain = 0;
  std::map<int, std::string> words;
  on_threads(kThreads, [&](int i) {
    for (int k = 0; k < 200; ++k) {
      const std::scoped_lock lock(g_mutex);
      plain += i;
    }
    const std::scoped_lock lock(g_mutex);
    words[i] = "a text that is too long for the string's own room: " + std::to_string(i);
  });
  EXPECT_EQ(plain, 200L * kThreads * (kThreads - 1) / 2);
  ASSERT_EQ(words.size(), std::size_t{kThreads});
  EXPECT_EQ(words[7].back(), '7');
}

TEST(Spread, ThreadsTakeTurns) {
  int turn = 0;
  on_threads(2, [&](int me) {
    for (int k = 0; k < 50; ++k) {
      std::unique_lock lock(g_mutex);
      g_condition.wait(lock, [&] { return turn % 2 == me; });
      ++turn;
      g_condition.notify_all();
    }
  });
  EXPECT_EQ(turn, 100);
}

struct Adds {
  long value = 0;
  ~Adds() { g_sum += value; }
};
thread_local Adds t_adds;

TEST(Spread, AJoinSeesWhatDestructorsOfThreadLocalsDid) {
  g_sum = 0;
  for (int round = 0; round < 3; ++round) on_threads(4, [](int i) { t_adds.value = i; });
  EXPECT_EQ(g_sum, 3 * 6);
}

TEST(Spread, KeysHaveDestructorsAndThereAreManyOfThem) {
  g_sum = 0;
  std::vector<pthread_key_t> keys(1200);
  for (pthread_key_t& key : keys)
    ASSERT_EQ(::pthread_key_create(
                  &key, [](void* p) { g_sum += *static_cast<int*>(p), delete static_cast<int*>(p); }),
              0);
  on_threads(4, [&](int i) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{7}, keys.size() - 1}) {
      EXPECT_EQ(::pthread_getspecific(keys[k]), nullptr);
      EXPECT_EQ(::pthread_setspecific(keys[k], new int(i)), 0);
      EXPECT_EQ(*static_cast<int*>(::pthread_getspecific(keys[k])), i);
    }
  });
  EXPECT_EQ(g_sum, 3 * 6);
}

TEST(Spread, ExceptionsAndResultsComeBack) {
  auto right = std::async(std::launch::async, [] { return std::string(100, 'x'); });
  auto wrong =
      std::async(std::launch::async, []() -> int { throw std::runtime_error("from a thread elsewhere"); });
  EXPECT_EQ(right.get(), std::string(100, 'x'));
  try {
    wrong.get();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "from a thread elsewhere");
  }
}

TEST(Spread, ABarrierIsDestroyedDirectlyAfterTheWait) {
  for (int round = 0; round < 30; ++round) {
    auto* const barrier = new pthread_barrier_t;
    ASSERT_EQ(::pthread_barrier_init(barrier, nullptr, 4), 0);
    on_threads(4, [barrier](int) {
      for (int i = 0; i < 3; ++i) {
        const bool destroys = ::pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD && i == 2;
        if (!destroys) continue;
        EXPECT_EQ(::pthread_barrier_destroy(barrier), 0);
        std::memset(static_cast<void*>(barrier), 0, sizeof *barrier);  // whoever still looks waits for ever
        delete barrier;
      }
    });
  }
}

TEST(Spread, ThreadsMakeThreads) {
  on_threads(3, [](int) { on_threads(3, [](int i) { g_sum += i; }); });
  std::jthread stops([](const std::stop_token& token) {
    while (!token.stop_requested()) std::this_thread::yield();
  });
  stops.request_stop();
}

void* exits(void* value) {
  struct Notes {
    ~Notes() { ++g_sum; }
  } const notes;
  ::pthread_exit(value);
}

TEST(Spread, ExitGivesTheValueAfterDestructors) {
  g_sum = 0;
  std::array<pthread_t, 4> threads{};
  for (auto& t : threads) ASSERT_EQ(::pthread_create(&t, nullptr, exits, &threads), 0);
  for (auto& t : threads) {
    void* value = nullptr;
    ASSERT_EQ(::pthread_join(t, &value), 0);
    EXPECT_EQ(value, &threads);
  }
  EXPECT_EQ(g_sum, 4);
}

TEST(Spread, JoinsWithADeadlineAndWithoutWaiting) {
  std::atomic<bool> goes_on{false};
  std::array<pthread_t, 2> threads{};
  const auto waits = [](void* p) -> void* {
    static_cast<std::atomic<bool>*>(p)->wait(false);
    return p;
  };
  for (auto& t : threads) ASSERT_EQ(::pthread_create(&t, nullptr, waits, &goes_on), 0);
  for (auto& t : threads) {
    EXPECT_EQ(::pthread_tryjoin_np(t, nullptr), EBUSY);
    timespec soon{};
    ::clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += soon.tv_nsec < 900'000'000 ? 20'000'000 : 0;
    EXPECT_EQ(::pthread_clockjoin_np(t, nullptr, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
  }
  goes_on = true;
  goes_on.notify_all();
  for (auto& t : threads) {
    void* value = nullptr;
    EXPECT_EQ(::pthread_join(t, &value), 0);
    EXPECT_EQ(value, &goes_on);
  }
}

TEST(Spread, ADetachedThreadEndsByItself) {
  std::atomic<int> left{4};
  pthread_attr_t detached;
  ::pthread_attr_init(&detached);
  ::pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < 2; ++i) {
    std::thread([&] { --left, left.notify_all(); }).detach();
    pthread_t thread;
    const auto ends = [](void* p) -> void* {
      auto& n = *static_cast<std::atomic<int>*>(p);
      --n, n.notify_all();
      return nullptr;
    };
    ASSERT_EQ(::pthread_create(&thread, &detached, ends, &left), 0);
  }
  for (int now = left; now != 0; now = left) left.wait(now);
}

TEST(Spread, ThreadsOfC11) {
  thrd_t thread;
  ASSERT_EQ(
      ::thrd_create(&thread, [](void* p) { return *static_cast<int*>(p) + 1; }, new int(41)), thrd_success);
  int result = 0;
  ASSERT_EQ(::thrd_join(thread, &result), thrd_success);
  EXPECT_EQ(result, 42);
}

std::atomic<int> g_signals;

TEST(Spread, ASignalReachesItsThread) {
  ::signal(SIGUSR1, [](int) { ++g_signals; });
  std::array<pthread_t, 2> threads{};
  static std::atomic<bool> ends;
  for (auto& t : threads)
    ASSERT_EQ(::pthread_create(
                  &t, nullptr,
                  [](void*) -> void* {
                    while (!ends) ::usleep(1000);
                    return nullptr;
                  },
                  nullptr),
              0);
  for (auto& t : threads) EXPECT_EQ(::pthread_kill(t, SIGUSR1), 0);
  while (g_signals != 2) std::this_thread::sleep_for(1ms);
  ends = true;
  for (auto& t : threads) ::pthread_join(t, nullptr);
}

TEST(Spread, FilesOfOtherRanks) {
  char path[] = "/tmp/kasane-spread.XXXXXX";
  const int file = ::mkostemp(path, O_APPEND);
  ASSERT_GE(file, 0);
  std::FILE* const stream = ::fopen(path, "a");
  ASSERT_NE(stream, nullptr);
  on_threads(4, [&](int i) {
    std::fprintf(stream, "line %d\n", i);
    std::fflush(stream);
    const std::string line = "word " + std::to_string(i) + "\n";
    EXPECT_EQ(::write(file, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    ::flockfile(stream);
    ::fputs_unlocked("locked\n", stream);
    ::funlockfile(stream);
  });
  std::array<std::FILE*, 2> opened{};
  on_threads(2, [&](int i) {
    opened[static_cast<std::size_t>(i)] = ::fopen(path, "a");
    std::fputs("opened by a thread\n", opened[static_cast<std::size_t>(i)]);
  });
  for (std::FILE* f : opened) {
    EXPECT_GE(std::fputs("closed by main\n", f), 0);
    EXPECT_EQ(std::fclose(f), 0);
  }
  std::fclose(stream);
  EXPECT_EQ(::lseek(file, 0, SEEK_END), 4 * (7 + 7 + 7) + 2 * (19 + 15));
  ::close(file);
  ::unlink(path);
}

TEST(Spread, AThreadKnowsItsStack) {
  on_threads(2, [](int) {
    pthread_attr_t attributes;
    void* low = nullptr;
    std::size_t bytes = 0;
    ASSERT_EQ(::pthread_getattr_np(::pthread_self(), &attributes), 0);
    ASSERT_EQ(::pthread_attr_getstack(&attributes, &low, &bytes), 0);
    char here = 0;
    EXPECT_LT(static_cast<std::size_t>(&here - static_cast<char*>(low)), bytes);
    ::pthread_attr_destroy(&attributes);
  });
}

TEST(Spread, CallsOfKasane) {
  kasane::mutex mutex;
  on_threads(3, [&](int i) {
    auto* const word = static_cast<int*>(kasane::allocate(sizeof(int)));
    *word = i;
    kasane::release_all();
    kasane::deallocate(word);
    std::atomic<int> sum = 0;
    kasane::run([&] { kasane::parallel_invoke([&] { sum += 1; }, [&] { sum += 2; }); });
    EXPECT_EQ(sum, 3);
    try {
      mutex.lock();
      ADD_FAILURE() << "a lock for user-level threads";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find("user-level thread"), std::string::npos) << e.what();
    }
  });
}

TEST(Spread, RootsTakeTurns) {
  std::atomic<int> at_once = 0;
  on_threads(3, [&](int i) {
    for (int k = 0; k < 100; ++k) {
      kasane::run([&] {
        EXPECT_EQ(at_once += 1, 1);
        try {
          throw i;
        } catch (int thrown) {
          kasane::parallel_invoke([&] { EXPECT_EQ(thrown, i); }, [&] { EXPECT_EQ(thrown, i); });
        }
        EXPECT_EQ(std::current_exception(), nullptr);
        at_once -= 1;
      });
    }
  });
}

TEST(Spread, WhatCannotBeSharedIsRefused) {
  const int refused = kasane::ranks() == 1 ? 0 : ENOTSUP;
  pthread_mutexattr_t kind;
  pthread_mutex_t mutex;
  ::pthread_mutexattr_init(&kind);
  EXPECT_EQ(::pthread_mutex_init(&mutex, &kind), 0);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  EXPECT_EQ(::pthread_mutex_init(&mutex, &kind), refused);
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
  EXPECT_EQ(::pthread_mutex_init(&mutex, &kind), refused);

  alignas(64) static char stack[256 * 1024];
  pthread_attr_t attributes;
  pthread_t thread;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstack(&attributes, stack, sizeof stack);
  const int error = ::pthread_create(&thread, &attributes, [](void* p) { return p; }, nullptr);
  EXPECT_EQ(error, kasane::ranks() == 1 ? 0 : EINVAL);
  if (error == 0) ::pthread_join(thread, nullptr);
}

TEST(Spread, ManyThreadsOneAfterTheOther) {
  g_sum = 0;
  for (int round = 0; round < 3; ++round) on_threads(100, [](int) { ++g_sum; });
  EXPECT_EQ(g_sum, 300);
}

TEST(Spread, SharedMutexesLatchesAndSemaphores) {
  std::shared_mutex shared;
  std::latch all(4);
  sem_t permits;  // libstdc++ 12's semaphore can sleep for ever with two that wait (its bug 104928)
  ASSERT_EQ(::sem_init(&permits, 0, 2), 0);
  int value = 0;
  on_threads(4, [&](int i) {
    all.arrive_and_wait();
    ::sem_wait(&permits);
    if (i % 2 == 0) {
      const std::unique_lock lock(shared);
      ++value;
    } else {
      const std::shared_lock lock(shared);
      EXPECT_LE(value, 2);
    }
    ::sem_post(&permits);
  });
  EXPECT_EQ(value, 2);
}

}  // namespace
