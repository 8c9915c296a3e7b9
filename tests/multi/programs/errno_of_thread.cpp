// SPDX-License-Identifier: Apache-2.0
// errno is the thread's: over forks, joins, locks, moves and page faults, in functions of which the compiler
// would keep errno's address. Also in a source that
// does not include kasane.hpp, whose calls fork.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include "errno_calls.h"

namespace {

void spin(int k) {
  volatile int s = 0;
  while (s < k) s = s + 1;
}

/// Sets errno to ERANGE, as libc does.
void fail() { (void)std::strtol("99999999999999999999999", nullptr, 10); }
void others_fail() {
  errno = ENOENT;
  spin(20000);
  errno = ENOTTY;
}

void fork_and_fail() {
  kasane::parallel_invoke(others_fail, others_fail);
  errno = ENOTTY;
}

[[gnu::noinline]] int over_forks(int rounds) {
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    errno = 0;
    fail();
    wrong += errno != ERANGE;
    kasane::parallel_invoke(others_fail, others_fail);
    wrong += errno_of_caller_is_wrong(fork_and_fail);
  }
  return wrong;
}

/// The parent's errno is kept while its child fails, here or on the rank to which the parent is stolen.
[[gnu::noinline]] int over_one_fork(int rounds) {
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    errno = i;
    kasane::thread child(others_fail);
    wrong += errno != i;
    child.join();
    wrong += errno != i;
  }
  return wrong;
}

[[gnu::noinline]] int over_moves_and_locks(kasane::mutex& mutex, void* const* places, int rounds) {
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    errno = 1000 + i;
    kasane::this_thread::move_near(places[static_cast<unsigned>(i) % kasane_ranks()]);
    wrong += errno != 1000 + i;
    mutex.lock();
    wrong += errno != 1000 + i;
    mutex.unlock();
    kasane::this_thread::yield();
    wrong += errno != 1000 + i;
  }
  return wrong;
}

/// Loads and stores of absent memory are served in between.
[[gnu::noinline]] int over_faults(int* const* arrays) {
  int wrong = 0;
  for (unsigned r = 0; r < kasane_ranks(); ++r) {
    for (int i = 0; i < 64; ++i) {
      errno = 77;
      arrays[r][i * 1024] += 1;
      wrong += errno != 77;
    }
  }
  return wrong;
}

int all() {
  int wrong = kasane::parallel_reduce(
      0, 16, 0, [](int) { return over_forks(40) + over_one_fork(40); }, [](int a, int b) { return a + b; },
      1);
  auto* const mutex = new kasane::mutex;
  auto* const places = new void*[kasane_ranks()];
  auto* const arrays = new int*[kasane_ranks()];
  for (unsigned r = 0; r < kasane_ranks(); ++r) {
    places[r] = kasane_allocate_at(8, 8, r);
    arrays[r] = static_cast<int*>(kasane_allocate_at(64 * 4096, 4096, r));
  }
  wrong += kasane::parallel_reduce(
      0, 8, 0, [=](int) { return over_moves_and_locks(*mutex, places, 50); },
      [](int a, int b) { return a + b; }, 1);
  wrong += over_faults(arrays);
  return wrong;
}

}  // namespace

int main() {
  const int wrong = kasane::run(all);
  if (wrong != 0) std::printf("wrong %d times\n", wrong);
  return wrong != 0;
}
