// SPDX-License-Identifier: Apache-2.0
#include "runtime/held_mutexes.h"

#if KASANE_ASSERT_LEVEL >= 1 && !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "runtime/hidden.h"
#include "runtime/lock_calls.h"
#include "runtime/process_state.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local constinit int t_held = 0;

using MutexCall = int (*)(pthread_mutex_t*);

constinit Hidden<MutexCall> g_lock("pthread_mutex_lock"), g_trylock("pthread_mutex_trylock"),
    g_unlock("pthread_mutex_unlock");

/// Not inlined, so that the address of the thread-local is computed again after the caller has moved to
/// another OS thread.
[[gnu::noinline]] void count_held(int change) noexcept {
  if (ult::Pool::in_user_code()) t_held += change;
}

}  // namespace

void check_no_mutex_held(const char* where) {
  if (t_held <= 0) return;
  char text[256];
  const int n = std::snprintf(text, sizeof text,
                              "kasane: rank %u: a std::mutex is held at %s: the thread may go on in another "
                              "OS thread or rank, which does not own it; "
                              "use kasane::mutex, or unlock before\n",
                              raw(process().rank), where);
  tell(text, static_cast<std::size_t>(n));
  std::abort();
}

[[gnu::noinline]] bool holds_mutex_of_libc() noexcept { return t_held > 0; }

}  // namespace kasane::runtime

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (kasane::runtime::is_mutex_of_program(mutex, __builtin_return_address(0)))
    return kasane::runtime::lock_of_program(mutex);
  const int error = kasane::runtime::g_lock.get()(mutex);
  if (error == 0) kasane::runtime::count_held(1);
  return error;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (kasane::runtime::is_mutex_of_program(mutex, __builtin_return_address(0)))
    return kasane::runtime::try_lock_of_program(mutex);
  const int error = kasane::runtime::g_trylock.get()(mutex);
  if (error == 0) kasane::runtime::count_held(1);
  return error;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (kasane::runtime::is_mutex_of_program(mutex, __builtin_return_address(0)))
    return kasane::runtime::unlock_of_program(mutex);
  kasane::runtime::count_held(-1);
  return kasane::runtime::g_unlock.get()(mutex);
}

}  // extern "C"

#elif KASANE_ASSERT_LEVEL >= 1

namespace kasane::runtime {
// the sanitizer has its own pthread_mutex_lock, and reports such an unlock
void check_no_mutex_held(const char*) {}
bool holds_mutex_of_libc() noexcept { return false; }
}  // namespace kasane::runtime

#endif
