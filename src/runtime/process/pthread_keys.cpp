// SPDX-License-Identifier: Apache-2.0
// Keys of Pthreads and of C11 (tss_t): those that the executable makes are Kasane's (ult/locals.h), so a
// thread finds its value wherever it runs, and every rank knows the key. There are kLocalKeys a job, and with
// --threads spread, and on one rank, kThreadKeys more, which only main and OS threads can use. What an OS
// thread has for a key lies in private memory. None is made free again. Destructors run at the end of
// user-level threads and of OS threads. Keys that libraries make are libc's, hence a worker's. A sanitizer
// has its own.
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dlfcn.h>
#include <pthread.h>
#include <threads.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/process/pthread_keys.h"
#include "runtime/process/shared_process.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/own_code.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/warn.h"
#include "ult/layout.h"
#include "ult/locals.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using ult::kLocalKeys;
using Destructor = void (*)(void*);

/// libc's keys are less than PTHREAD_KEYS_MAX.
constexpr pthread_key_t kFirst = 0x4b000000;

constexpr std::uint32_t kMostKeys = kLocalKeys + kThreadKeys;

bool is_ours(pthread_key_t key) noexcept { return key - kFirst < kMostKeys; }
bool is_of_os_threads(pthread_key_t key) noexcept { return key - kFirst >= kLocalKeys; }

constinit std::array<std::atomic<Destructor>, kMostKeys> g_destructors{};

/// Of main and of OS threads, which do not move. In private memory: fault handlers do not look at them.
struct Values {
  void** at = nullptr;
  std::uint32_t count = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Values t_values{};

[[gnu::noinline]] void* value_of_os_thread(pthread_key_t key) noexcept {
  return key - kFirst < t_values.count ? t_values.at[key - kFirst] : nullptr;
}
[[gnu::noinline]] int set_value_of_os_thread(pthread_key_t key, void* value) noexcept {
  const std::uint32_t index = key - kFirst;
  if (index >= t_values.count) {
    const ult::RuntimeSection section;
    const std::uint32_t count = std::max(2 * t_values.count, index + 1);
    auto** const at = static_cast<void**>(std::realloc(t_values.at, count * sizeof(void*)));
    if (at == nullptr) return ENOMEM;
    std::fill(at + t_values.count, at + count, nullptr);
    t_values = {at, count};
  }
  t_values.at[index] = value;
  return 0;
}

int refuse(const char* why) noexcept {
  CrashText text;
  warn(text.add("kasane: pthread_key_create: ").add(why).add("\n"));
  return EAGAIN;
}

struct Creation {
  Destructor destructor;
  pthread_key_t key = 0;
  int error = 0;
};
void create_on_thread(void* argument) {
  auto& c = *static_cast<Creation*>(argument);
  const ult::RuntimeSection section;
  try {
    c.key = kFirst + ult::Locals::create_key(c.destructor);
    c.error = 0;
  } catch (const std::exception&) {
    c.error = EAGAIN;  // all are in use
  }
}

/// Of libstdc++ one class makes keys, and throws where its key is not known.
void warn_of_pool_resource(const void* caller, std::uint32_t ranks) noexcept {
  Dl_info object{};
  if (ranks == 1 || !ult::Pool::in_program() || ::dladdr(caller, &object) == 0 ||
      object.dli_fname == nullptr || std::strstr(object.dli_fname, "/libstdc++.") == nullptr)
    return;
  CrashText text;
  text.add("kasane: std::pmr::synchronized_pool_resource: its threads' pools are known on rank ");
  text.decimal(raw(process().rank))
      .add(" alone, and a thread that uses it elsewhere gets std::system_error ");
  warn(text.add("(EINVAL): use unsynchronized_pool_resource with a lock, or new\n"));
}

/// In a job of one rank.
std::uint32_t create_alone() noexcept {
  static constinit std::atomic<std::uint32_t> made{0};
  return std::min(made.fetch_add(1, std::memory_order_relaxed), kThreadKeys);
}

int create(pthread_key_t* key, Destructor destructor, const void* caller) noexcept {
  static constinit Hidden<int (*)(pthread_key_t*, Destructor)> libcs("pthread_key_create");
  Runtime* const runtime = Runtime::current();
  if (runtime == nullptr || !runtime->running()) return libcs.get()(key, destructor);
  if (!is_code_of_program(caller)) {
    warn_of_pool_resource(caller, runtime->ranks());
    return libcs.get()(key, destructor);
  }
  BoundThreads* const threads = SharedProcess::current_threads();
  const bool on_thread = ult::Pool::in_user_code();
  const bool has_more = !on_thread && (threads != nullptr || runtime->ranks() == 1);
  Creation c{.destructor = destructor, .error = EAGAIN};
  if (on_thread)
    create_on_thread(&c);
  else if (runtime->at_main())
    runtime->run_root(create_on_thread, &c);
  else if (!has_more)
    return refuse("an OS thread of the program cannot make keys; make them in main or on a thread");
  if (c.error != 0 && has_more) {
    const std::uint32_t made = threads != nullptr ? threads->create_key() : create_alone();
    c = {.destructor = destructor,
         .key = kFirst + kLocalKeys + made,
         .error = made == kThreadKeys ? EAGAIN : 0};
  }
  if (c.error != 0) return refuse("all keys of the job are in use; put what a thread has into one structure");
  if (threads != nullptr)
    threads->tell_destructor(c.key - kFirst, destructor);
  else
    note_destructor(c.key - kFirst, destructor);
  *key = c.key;
  return 0;
}

int destroy(pthread_key_t key) noexcept {
  static constinit Hidden<int (*)(pthread_key_t)> libcs("pthread_key_delete");
  return is_ours(key) ? 0 : libcs.get()(key);
}

void* get(pthread_key_t key) noexcept {
  static constinit Hidden<void* (*)(pthread_key_t)> libcs("pthread_getspecific");
  if (!is_ours(key)) [[likely]]
    return libcs.get()(key);
  if (ult::Pool::self() == kNoSlot) return value_of_os_thread(key);
  return is_of_os_threads(key) ? nullptr : ult::Locals::get(key - kFirst);
}

int set(pthread_key_t key, const void* value) noexcept {
  static constinit Hidden<int (*)(pthread_key_t, const void*)> libcs("pthread_setspecific");
  if (!is_ours(key)) [[likely]]
    return libcs.get()(key, value);
  if (ult::Pool::self() == kNoSlot) return set_value_of_os_thread(key, const_cast<void*>(value));
  if (is_of_os_threads(key)) {
    CrashText text;
    warn(
        text.add("kasane: pthread_setspecific: a key that main or an OS thread has made is of no use on a "
                 "user-level thread\n"));
    return EINVAL;
  }
  ult::Locals::set(key - kFirst, const_cast<void*>(value));
  return 0;
}

}  // namespace

// release and acquire: none is needed for a pointer to code, and its key comes later, by a message
void note_destructor(std::uint32_t number, void (*destructor)(void*)) noexcept {
  g_destructors[number].store(destructor, std::memory_order_relaxed);
}

void run_destructors_of_keys() noexcept {
  bool any = true;
  for (int round = 0; any && round < PTHREAD_DESTRUCTOR_ITERATIONS; ++round) {
    any = false;
    for (std::uint32_t i = 0; i < t_values.count; ++i) {
      void* const value = std::exchange(t_values.at[i], nullptr);
      const Destructor destructor = g_destructors[i].load(std::memory_order_relaxed);
      if (value == nullptr || destructor == nullptr) continue;
      any = true;
      destructor(value);
    }
  }
  const ult::RuntimeSection section;
  std::free(std::exchange(t_values, {}).at);
}

}  // namespace kasane::runtime

#define KASANE_SHOWN extern "C" [[gnu::visibility("default")]]
#define KASANE_CALLER __builtin_return_address(0)

KASANE_SHOWN int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return kasane::runtime::create(key, destructor, KASANE_CALLER);
}
KASANE_SHOWN int pthread_key_delete(pthread_key_t key) noexcept { return kasane::runtime::destroy(key); }
KASANE_SHOWN void* pthread_getspecific(pthread_key_t key) noexcept { return kasane::runtime::get(key); }
// Under another name, since <pthread.h> declares that the function does not use the value.
KASANE_SHOWN int kasane_set_specific(pthread_key_t, const void*) noexcept asm("pthread_setspecific");
int kasane_set_specific(pthread_key_t key, const void* value) noexcept {
  return kasane::runtime::set(key, value);
}
KASANE_SHOWN int tss_create(tss_t* key, tss_dtor_t destructor) {
  return kasane::runtime::create(key, destructor, KASANE_CALLER) == 0 ? thrd_success : thrd_error;
}
KASANE_SHOWN void tss_delete(tss_t key) { kasane::runtime::destroy(key); }
KASANE_SHOWN void* tss_get(tss_t key) { return kasane::runtime::get(key); }
KASANE_SHOWN int tss_set(tss_t key, void* value) {
  return kasane::runtime::set(key, value) == 0 ? thrd_success : thrd_error;
}

#else  // threads stay on their rank

#include "runtime/process/pthread_keys.h"

namespace kasane::runtime {
void note_destructor(std::uint32_t, void (*)(void*)) noexcept {}
void run_destructors_of_keys() noexcept {}
}  // namespace kasane::runtime

#endif
