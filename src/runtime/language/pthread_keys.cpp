// SPDX-License-Identifier: Apache-2.0
// Keys of Pthreads and of C11 (tss_t): those that the executable makes are Kasane's (ult/locals.h), so a
// thread finds its value wherever it runs, and every rank knows the key. There are kLocalKeys a job, which
// are not made free again. Main and OS threads have values of their own, without destructors. Keys that
// libraries make are libc's, hence a worker's. A sanitizer has its own.
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <threads.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>

#include "runtime/rank/hidden.h"
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

bool is_ours(pthread_key_t key) noexcept { return key - kFirst < kLocalKeys; }

bool is_of_executable(const void* code) noexcept {
  struct Search {
    std::uintptr_t code;
    bool found;
  } search{reinterpret_cast<std::uintptr_t>(code), false};
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* p) {  // the executable is the first
        auto& s = *static_cast<Search*>(p);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          s.found |= part.p_type == PT_LOAD && s.code - object->dlpi_addr - part.p_vaddr < part.p_memsz;
        }
        return 1;
      },
      &search);
  return search.found;
}

/// Of main and of OS threads, which do not move.
[[gnu::noinline]] void*& value_of_os_thread(pthread_key_t key) noexcept {
  [[gnu::tls_model("initial-exec")]] static constinit thread_local std::array<void*, kLocalKeys> values{};
  return values[key - kFirst];
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
  } catch (const std::exception&) {
    c.error = refuse("all keys of the job are in use; put what a thread has into one structure");
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

int create(pthread_key_t* key, Destructor destructor, const void* caller) noexcept {
  static constinit Hidden<int (*)(pthread_key_t*, Destructor)> libcs("pthread_key_create");
  Runtime* const runtime = Runtime::current();
  if (runtime == nullptr || !runtime->running()) return libcs.get()(key, destructor);
  if (!is_of_executable(caller)) {
    warn_of_pool_resource(caller, runtime->ranks());
    return libcs.get()(key, destructor);
  }
  Creation c{destructor};
  if (ult::Pool::in_user_code())
    create_on_thread(&c);
  else if (runtime->at_main())
    runtime->run_root(create_on_thread, &c);
  else
    return refuse("an OS thread of the program cannot make keys; make them in main or on a thread");
  if (c.error == 0) *key = c.key;
  return c.error;
}

int destroy(pthread_key_t key) noexcept {
  static constinit Hidden<int (*)(pthread_key_t)> libcs("pthread_key_delete");
  return is_ours(key) ? 0 : libcs.get()(key);
}

void* get(pthread_key_t key) noexcept {
  static constinit Hidden<void* (*)(pthread_key_t)> libcs("pthread_getspecific");
  if (!is_ours(key)) [[likely]]
    return libcs.get()(key);
  return ult::Pool::self() != kNoSlot ? ult::Locals::get(key - kFirst) : value_of_os_thread(key);
}

int set(pthread_key_t key, const void* value) noexcept {
  static constinit Hidden<int (*)(pthread_key_t, const void*)> libcs("pthread_setspecific");
  if (!is_ours(key)) [[likely]]
    return libcs.get()(key, value);
  if (ult::Pool::self() != kNoSlot)
    ult::Locals::set(key - kFirst, const_cast<void*>(value));
  else
    value_of_os_thread(key) = const_cast<void*>(value);
  return 0;
}

}  // namespace
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

#endif
