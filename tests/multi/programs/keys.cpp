// SPDX-License-Identifier: Apache-2.0
// Keys of Pthreads: made in main and on a thread, used by threads on all ranks while they move, with
// destructors; and values of main's and of an OS thread's own. Status 1 if a value is another's.
#include <pthread.h>
#include <threads.h>

#include <atomic>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <memory>
#include <memory_resource>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kWord = 65536 / sizeof(int);
constexpr int kThreads = 16;

pthread_key_t g_key;  ///< made in main
tss_t g_second;       ///< made on a thread
std::atomic<int> g_wrong, g_destroyed;

void destroy(void* value) {
  delete static_cast<int*>(value);
  ++g_destroyed;
}

void expect(bool holds) { g_wrong += holds ? 0 : 1; }

void use_keys(const int* words, int i) {
  expect(::pthread_getspecific(g_key) == nullptr);
  int* const mine = new int(i);
  expect(::pthread_setspecific(g_key, mine) == 0);
  int local = i;
  expect(::tss_set(g_second, &local) == thrd_success);
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
    kasane::this_thread::move_near(words + r * kWord);
    kasane::this_thread::yield();
    expect(::pthread_getspecific(g_key) == mine && *mine == i && ::tss_get(g_second) == &local);
  }
  expect(::tss_set(g_second, nullptr) == thrd_success);
}

/// argument "pool": a class of libstdc++'s with a key of its own, on another rank.
void use_pool() {
  std::pmr::synchronized_pool_resource pool;
  const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
  kasane::thread(kasane::near{words.get() + (kasane::ranks() - 1) * kWord}, [&pool] {
    std::pmr::vector<int>(100, 1, &pool).push_back(2);
  }).join();
}

}  // namespace

int main(int argc, char**) {
  if (argc == 2) return kasane::run(use_pool), 0;
  int of_main = 1;
  expect(::pthread_key_create(&g_key, destroy) == 0);
  expect(::pthread_setspecific(g_key, &of_main) == 0);
  kasane::run([] {
    const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    expect(::tss_create(&g_second, nullptr) == thrd_success);
    std::vector<kasane::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) % kasane::ranks() * kWord;
      threads.emplace_back(kasane::near{words.get() + at}, [w = words.get(), i] { use_keys(w, i); });
    }
    for (auto& t : threads) t.join();
  });
  std::thread([] {
    int own = 2;
    expect(::pthread_getspecific(g_key) == nullptr && ::pthread_setspecific(g_key, &own) == 0);
    expect(::pthread_getspecific(g_key) == &own && ::pthread_setspecific(g_key, nullptr) == 0);
  }).join();
  expect(::pthread_getspecific(g_key) == &of_main && ::pthread_setspecific(g_key, nullptr) == 0);
  pthread_key_t more = 0;
  int made = 0;
  while (made < 10 && ::pthread_key_create(&more, nullptr) == 0) ++made;
  expect(made == (kasane::ranks() == 1 ? 10 : 2));  // four in all; more for main and OS threads
  expect(::pthread_key_delete(g_key) == 0 && g_destroyed == kThreads);
  std::printf("%d wrong, %d destroyed\n", g_wrong.load(), g_destroyed.load());
  return g_wrong != 0 ? 1 : 0;
}
