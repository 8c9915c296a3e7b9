// SPDX-License-Identifier: Apache-2.0
// The public mutex, condition variable, barrier and key: the objects of ult, built in the eight bytes of the public ones. They are records'
// names that never change, so they may lie in V and be copied bitwise.
//
// Thread safety: as the header says.
#include <cerrno>
#include <exception>
#include <kasane/kasane.h>
#include <new>

#include "runtime/api_error.h"
#include "ult/barrier.h"
#include "ult/condition_variable.h"
#include "ult/layout.h"
#include "ult/locals.h"
#include "ult/mutex.h"

namespace {

using kasane::runtime::api_fail;
using kasane::runtime::require_thread;
using kasane::ult::Barrier;
using kasane::ult::ConditionVariable;
using kasane::ult::Locals;
using kasane::ult::Mutex;

/// The object of ult inside a public one.
template <class T, class Public>
T& inside(Public* p) noexcept {
  static_assert(sizeof(T) == sizeof(Public) && alignof(T) <= alignof(Public));
  return *std::launder(reinterpret_cast<T*>(&p->handle));
}

template <class T, class Public, class... Args>
int init(Public* p, const char* call, Args... args) noexcept {
  if (const int code = require_thread(call)) return code;
  try {
    ::new (static_cast<void*>(&p->handle)) T(args...);
    return 0;
  } catch (const std::exception& e) {
    return api_fail(EAGAIN, call, e.what());
  }
}

template <class T, class Public>
int destroy(Public* p, const char* call) noexcept {
  if (const int code = require_thread(call)) return code;
  inside<T>(p).~T();
  return 0;
}

}  // namespace

extern "C" {

int kasane_mutex_init(kasane_mutex_t* mutex) { return init<Mutex>(mutex, "kasane::mutex"); }
int kasane_mutex_destroy(kasane_mutex_t* mutex) { return destroy<Mutex>(mutex, "kasane::mutex::~mutex"); }
int kasane_mutex_lock(kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::mutex::lock")) [[unlikely]]
    return code;
  inside<Mutex>(mutex).lock();
  return 0;
}
int kasane_mutex_trylock(kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::mutex::try_lock")) [[unlikely]]
    return code;
  return inside<Mutex>(mutex).try_lock() ? 0 : EBUSY;
}
int kasane_mutex_unlock(kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::mutex::unlock")) [[unlikely]]
    return code;
  inside<Mutex>(mutex).unlock();
  return 0;
}

int kasane_cond_init(kasane_cond_t* cond) { return init<ConditionVariable>(cond, "kasane::condition_variable"); }
int kasane_cond_destroy(kasane_cond_t* cond) {
  return destroy<ConditionVariable>(cond, "kasane::condition_variable::~condition_variable");
}
int kasane_cond_wait(kasane_cond_t* cond, kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::condition_variable::wait")) return code;
  inside<ConditionVariable>(cond).wait(inside<Mutex>(mutex));
  return 0;
}
int kasane_cond_signal(kasane_cond_t* cond) {
  if (const int code = require_thread("kasane::condition_variable::notify_one")) return code;
  inside<ConditionVariable>(cond).notify_one();
  return 0;
}
int kasane_cond_broadcast(kasane_cond_t* cond) {
  if (const int code = require_thread("kasane::condition_variable::notify_all")) return code;
  inside<ConditionVariable>(cond).notify_all();
  return 0;
}

int kasane_barrier_init(kasane_barrier_t* barrier, uint32_t count) {
  if (count == 0) return api_fail(EINVAL, "kasane::barrier", "a barrier for no threads");
  return init<Barrier>(barrier, "kasane::barrier", count);
}
int kasane_barrier_destroy(kasane_barrier_t* barrier) { return destroy<Barrier>(barrier, "kasane::barrier::~barrier"); }
int kasane_barrier_wait(kasane_barrier_t* barrier) {
  if (const int code = require_thread("kasane::barrier::arrive_and_wait")) return code;
  inside<Barrier>(barrier).arrive_and_wait();
  return 0;
}

int kasane_key_create(kasane_key_t* key, void (*destructor)(void*)) {
  if (const int code = require_thread("kasane::local")) return code;
  try {
    *key = Locals::create_key(destructor);
    return 0;
  } catch (const std::exception& e) {
    return api_fail(EAGAIN, "kasane::local", e.what());
  }
}
int kasane_key_set(kasane_key_t key, void* value) {
  if (const int code = require_thread("kasane::local::set")) return code;
  if (key >= kasane::ult::kLocalKeys) return api_fail(EINVAL, "kasane::local::set", "there is no such key");
  Locals::set(key, value);
  return 0;
}
void* kasane_key_get(kasane_key_t key) {
  if (key >= kasane::ult::kLocalKeys || kasane::ult::Pool::self() == kasane::kNoSlot) return nullptr;
  return Locals::get(key);
}

}  // extern "C"
