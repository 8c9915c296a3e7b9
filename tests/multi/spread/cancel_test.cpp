// SPDX-License-Identifier: Apache-2.0
// pthread_cancel() with --threads spread, and on one rank: a thread ends in its next cancellation point, in
// whatever it waits there, and its cleanup handlers run.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>
#include <kasane/kasane.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

namespace {

constexpr std::size_t kThreads = 3;

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_condition = PTHREAD_COND_INITIALIZER;
sem_t g_semaphore;
int g_pipe[2];
std::atomic<int> g_cleaned, g_waits;
std::atomic<bool> g_goes_on;
pthread_t g_main;

struct Notes {
  ~Notes() { ++g_cleaned; }
};

/// Cancels threads that run the function, once all have begun; late: when they wait, probably.
void cancel_all(void* (*function)(void*), bool late, void* expected = PTHREAD_CANCELED) {
  g_cleaned = g_waits = 0;
  std::array<pthread_t, kThreads> threads{};
  for (auto& t : threads) ASSERT_EQ(::pthread_create(&t, nullptr, function, nullptr), 0);
  while (late && g_waits != kThreads) std::this_thread::yield();
  if (late) ::usleep(20'000);
  for (const auto t : threads) EXPECT_EQ(::pthread_cancel(t), 0);
  g_goes_on = true;
  for (const auto t : threads) {
    void* value = nullptr;
    EXPECT_EQ(::pthread_join(t, &value), 0);
    EXPECT_EQ(value, expected);
  }
  g_goes_on = false;
  EXPECT_EQ(g_cleaned, expected == PTHREAD_CANCELED ? static_cast<int>(kThreads) : 0);
}
void cancel_early_and_late(void* (*function)(void*)) {
  for (const bool late : {true, false, true, false}) cancel_all(function, late);
}

template <class Wait>
void waits(const Wait& wait) {
  const Notes notes;
  ++g_waits;
  for (;;) wait();
}

TEST(Cancel, InAConditionWithTheMutexHeldInCleanup) {
  const auto wait = [](void*) -> void* {
    ++g_waits;
    ::pthread_mutex_lock(&g_mutex);
    pthread_cleanup_push(
        [](void*) {
          ++g_cleaned;
          ::pthread_mutex_unlock(&g_mutex);
        },
        nullptr);
    for (;;) ::pthread_cond_wait(&g_condition, &g_mutex);
    pthread_cleanup_pop(1);
    return nullptr;
  };
  cancel_early_and_late(wait);
  EXPECT_EQ(::pthread_mutex_trylock(&g_mutex), 0);
  ::pthread_mutex_unlock(&g_mutex);
}

TEST(Cancel, InATimedCondition) {
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      const std::unique_ptr<int> held(new int);
      std::unique_lock lock(*reinterpret_cast<std::mutex*>(&g_mutex));
      timespec far{};
      ::clock_gettime(CLOCK_REALTIME, &far);
      far.tv_sec += 600;
      ::pthread_cond_timedwait(&g_condition, &g_mutex, &far);
    });
    return nullptr;
  });
}

TEST(Cancel, InASemaphore) {
  ::sem_init(&g_semaphore, 0, 0);
  cancel_early_and_late([](void*) -> void* {
    waits([] { ::sem_wait(&g_semaphore); });
    return nullptr;
  });
}

TEST(Cancel, InAJoin) {
  g_goes_on = false;
  pthread_t inner[kThreads];
  for (auto& t : inner)
    ASSERT_EQ(::pthread_create(
                  &t, nullptr,
                  [](void*) -> void* {
                    ::sem_wait(&g_semaphore);
                    return nullptr;
                  },
                  nullptr),
              0);
  for (auto& t : inner) {
    g_waits = 0;
    pthread_t joins;
    ASSERT_EQ(::pthread_create(
                  &joins, nullptr,
                  [](void* p) -> void* {
                    ++g_waits;
                    ::pthread_join(*static_cast<pthread_t*>(p), nullptr);
                    return nullptr;
                  },
                  &t),
              0);
    while (g_waits == 0) std::this_thread::yield();
    EXPECT_EQ(::pthread_cancel(joins), 0);
    void* value = nullptr;
    EXPECT_EQ(::pthread_join(joins, &value), 0);
    EXPECT_EQ(value, PTHREAD_CANCELED);
  }
  for (auto& t : inner) {
    ::sem_post(&g_semaphore);
    (void)t;
  }
  for (auto& t : inner) EXPECT_EQ(::pthread_join(t, nullptr), 0);  // nobody has joined them
}

TEST(Cancel, InWaitsForTheKernel) {
  ASSERT_EQ(::pipe(g_pipe), 0);
  cancel_early_and_late([](void*) -> void* {
    waits([] { ::sleep(600); });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] { std::this_thread::sleep_for(std::chrono::hours(1)); });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      pollfd file{g_pipe[0], POLLIN, 0};
      ::poll(&file, 1, -1);
    });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      char c = 0;
      (void)!::read(g_pipe[0], &c, 1);
    });
    return nullptr;
  });
}

TEST(Cancel, InWaitsForTheKernelWithAMask) {
  ASSERT_EQ(::pipe(g_pipe), 0);
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      pollfd file{g_pipe[0], POLLIN, 0};
      ::ppoll(&file, 1, nullptr, nullptr);
    });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      fd_set files;
      FD_ZERO(&files);
      ::pselect(0, &files, nullptr, nullptr, nullptr, nullptr);
    });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      sigset_t set;
      ::sigemptyset(&set);
      ::sigaddset(&set, SIGUSR2);
      int signal = 0;
      ::sigwait(&set, &signal);
    });
    return nullptr;
  });
  cancel_early_and_late([](void*) -> void* {
    waits([] {
      sigset_t set;
      ::sigemptyset(&set);
      ::sigsuspend(&set);
    });
    return nullptr;
  });
}

TEST(Cancel, NotInALockButAfterIt) {
  ::pthread_mutex_lock(&g_mutex);
  g_cleaned = g_waits = 0;
  std::array<pthread_t, kThreads> threads{};
  for (auto& t : threads)
    ASSERT_EQ(::pthread_create(
                  &t, nullptr,
                  [](void*) -> void* {
                    const Notes notes;
                    ++g_waits;
                    ::pthread_mutex_lock(&g_mutex);
                    ::pthread_mutex_unlock(&g_mutex);
                    for (;;) ::pthread_testcancel();
                  },
                  nullptr),
              0);
  while (g_waits != kThreads) std::this_thread::yield();
  ::usleep(20'000);
  for (const auto t : threads) EXPECT_EQ(::pthread_cancel(t), 0);
  ::usleep(20'000);
  EXPECT_EQ(g_cleaned, 0);
  ::pthread_mutex_unlock(&g_mutex);
  for (const auto t : threads) EXPECT_EQ(::pthread_join(t, nullptr), 0);
  EXPECT_EQ(g_cleaned, static_cast<int>(kThreads));
}

TEST(Cancel, InAFunctionThatTests) {
  cancel_early_and_late([](void*) -> void* {
    waits([] { ::pthread_testcancel(); });
    return nullptr;
  });
}

TEST(Cancel, NotWhereItIsDisabled) {
  cancel_all(
      [](void*) -> void* {
        int before = -1;
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
        ++g_waits;
        while (!g_goes_on) ::usleep(1000);
        ::pthread_testcancel();
        return &g_waits;
      },
      true, &g_waits);
  cancel_all(
      [](void*) -> void* {
        const Notes notes;
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
        ++g_waits;
        while (!g_goes_on) ::usleep(1000);
        ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
        ::pthread_testcancel();
        return nullptr;
      },
      true);
}

TEST(Cancel, ANotificationIsNotLost) {
  for (int round = 0; round < 20; ++round) {
    ::sem_init(&g_semaphore, 0, 0);
    std::array<pthread_t, 2> threads{};
    for (auto& t : threads)
      ASSERT_EQ(::pthread_create(
                    &t, nullptr,
                    [](void*) -> void* {
                      ::sem_wait(&g_semaphore);
                      return nullptr;
                    },
                    nullptr),
                0);
    if (round % 2 == 0) ::usleep(2000);
    ::sem_post(&g_semaphore);
    ::pthread_cancel(threads[0]);
    void* value = nullptr;
    ::pthread_join(threads[0], &value);
    if (value != PTHREAD_CANCELED) ::sem_post(&g_semaphore);
    ::pthread_join(threads[1], nullptr);
  }
}

TEST(Cancel, ItselfAndAThreadThatHasEnded) {
  pthread_t thread;
  const auto cancels_itself = [](void*) -> void* {
    const Notes notes;
    ::pthread_cancel(::pthread_self());
    ::pthread_testcancel();
    return nullptr;
  };
  g_cleaned = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(::pthread_create(&thread, nullptr, cancels_itself, nullptr), 0);
    ::usleep(5000);
    EXPECT_EQ(::pthread_cancel(thread), 0);
    void* value = nullptr;
    EXPECT_EQ(::pthread_join(thread, &value), 0);
    EXPECT_EQ(value, PTHREAD_CANCELED);
  }
  EXPECT_EQ(g_cleaned, 3);
}

TEST(Cancel, AsynchronouslyOnOneRankOnly) {
  std::thread([] {
    const int error = ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    EXPECT_EQ(error, kasane::ranks() == 1 ? 0 : ENOTSUP);
    EXPECT_EQ(::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr), 0);
  }).join();
}

std::atomic<int> g_signals;

TEST(Threads, MainIsKnownEverywhere) {
  g_main = ::pthread_self();
  ::signal(SIGUSR1, [](int) { ++g_signals; });
  for (int i = 0; i < static_cast<int>(kThreads); ++i)
    std::thread([] { EXPECT_EQ(::pthread_kill(g_main, SIGUSR1), 0); }).join();
  while (g_signals != kThreads) std::this_thread::yield();
}

TEST(Threads, SigwaitGivesTheSignal) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR2);
  sigset_t before;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &set, &before), 0);
  std::array<pthread_t, kThreads> threads{};
  for (auto& t : threads)  // with the mask of their creator
    ASSERT_EQ(::pthread_create(
                  &t, nullptr,
                  [](void* awaited) -> void* {
                    int signal = 0;
                    EXPECT_EQ(::sigwait(static_cast<const sigset_t*>(awaited), &signal), 0);
                    EXPECT_EQ(signal, SIGUSR2);
                    return nullptr;
                  },
                  &set),
              0);
  for (const auto t : threads) EXPECT_EQ(::pthread_kill(t, SIGUSR2), 0);
  for (const auto t : threads) EXPECT_EQ(::pthread_join(t, nullptr), 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Threads, HaveNamesAndAttributesAreTheirRanks) {
  g_goes_on = false;
  std::array<pthread_t, kThreads> threads{};
  for (auto& t : threads)
    ASSERT_EQ(::pthread_create(
                  &t, nullptr,
                  [](void*) -> void* {
                    while (!g_goes_on) ::usleep(1000);
                    return nullptr;
                  },
                  nullptr),
              0);
  for (const auto t : threads) {
    char name[16] = "";
    EXPECT_EQ(::pthread_setname_np(t, "a worker of 15!"), 0);
    EXPECT_EQ(::pthread_setname_np(t, "a name that is too long"), ERANGE);
    EXPECT_EQ(::pthread_getname_np(t, name, sizeof name), 0);
    EXPECT_STREQ(name, "a worker of 15!");
  }
  int refused = 0;
  for (const auto t : threads) {  // what libc keeps of it lies in its rank's private memory
    pthread_attr_t attributes;
    const int error = ::pthread_getattr_np(t, &attributes);
    if (error == 0) ::pthread_attr_destroy(&attributes);
    refused += error == ENOTSUP ? 1 : error;
  }
  EXPECT_EQ(refused != 0, kasane::ranks() != 1) << refused;
  g_goes_on = true;
  for (const auto t : threads) ::pthread_join(t, nullptr);
}

}  // namespace
