// SPDX-License-Identifier: Apache-2.0
// The public mutex, condition variable, barrier, reader-writer lock, semaphore, latch, once and key: the
// objects of ult, constructed in the eight bytes of the public ones. An object is the constant identifier of
// a record, so it may lie in V and be copied bitwise. Also the waits of atomics, which have no object.
//
// Thread safety: as the header says.
#include <kasane/kasane.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>

#include "base/clock.h"
#include "runtime/api/api_error.h"
#include "runtime/process/output.h"
#include "runtime/rank/runtime.h"
#include "ult/layout.h"
#include "ult/locals.h"
#include "ult/sync/barrier.h"
#include "ult/sync/barrier_record.h"
#include "ult/sync/condition_variable.h"
#include "ult/sync/latch.h"
#include "ult/sync/latch_record.h"
#include "ult/sync/mutex.h"
#include "ult/sync/once.h"
#include "ult/sync/semaphore.h"
#include "ult/sync/semaphore_record.h"
#include "ult/sync/shared_mutex.h"
#include "ult/sync/watch.h"
#include "ult/sync_record.h"

namespace {

using kasane::runtime::api_fail;
using kasane::runtime::may_wait;
using kasane::runtime::Runtime;
using kasane::ult::Barrier;
using kasane::ult::ConditionVariable;
using kasane::ult::Latch;
using kasane::ult::Locals;
using kasane::ult::Mutex;
using kasane::ult::Once;
using kasane::ult::pool_of_thread;
using kasane::ult::Semaphore;
using kasane::ult::SharedMutex;
using kasane::ult::SyncField;
using kasane::ult::SyncHandle;
using kasane::ult::SyncKind;
using kasane::ult::SyncRecords;
using kasane::ult::Watch;

static_assert(KASANE_SEM_MAX == kasane::ult::kMaxPermits &&
              KASANE_BARRIER_MAX == kasane::ult::kMostAtBarrier);

/// As runtime::require_thread(). What the thread has printed is written first: by the call another thread may
/// learn how far it is.
int require_thread(const char* call) noexcept {
  kasane::runtime::keep_output_in_order();
  return kasane::runtime::require_thread(call);
}

/// An object is used for more than it was made for. advice: what is to be done.
int refuse_excess(const char* call, const void* object, const char* what, std::uint32_t n,
                  const char* advice) {
  char text[240];
  std::snprintf(text, sizeof text, "rank %u: the %s at %p: %u %s", raw(Runtime::current()->rank()), what,
                object, n, advice);
  return api_fail(EINVAL, call, text);
}

constexpr const char* kAllDropped = "all threads that the barrier was for have dropped out of it";

/// The object of ult inside a public one.
template <class T, class Public>
T& inside(Public* p) noexcept {
  static_assert(sizeof(T) == sizeof(Public) && alignof(T) <= alignof(Public));
  return *std::launder(reinterpret_cast<T*>(&p->handle));
}

template <class T>
constexpr SyncKind kKindOf = std::is_same_v<T, Mutex>               ? SyncKind::mutex
                             : std::is_same_v<T, ConditionVariable> ? SyncKind::condition_variable
                             : std::is_same_v<T, Barrier>           ? SyncKind::barrier
                             : std::is_same_v<T, SharedMutex>       ? SyncKind::shared_mutex
                             : std::is_same_v<T, Semaphore>         ? SyncKind::semaphore
                             : std::is_same_v<T, Latch>             ? SyncKind::latch
                                                                    : SyncKind::once;

/// Whether no thread holds the object, waits for it or changes it, as its record's word says.
bool is_idle(SyncKind kind, kasane::ult::Word word) noexcept {
  using kasane::kNoSlot, kasane::ult::BarrierWord, kasane::ult::LatchWord, kasane::ult::SemaphoreWord;
  switch (kind) {
    case SyncKind::mutex:
    case SyncKind::once:
    case SyncKind::condition_variable: return word == 0;
    case SyncKind::barrier: return BarrierWord::unpack(word).newest == kNoSlot;
    case SyncKind::latch: return LatchWord::unpack(word).newest == kNoSlot;
    case SyncKind::semaphore: return !SemaphoreWord::unpack(word).waited_for();
    case SyncKind::shared_mutex: return word == SemaphoreWord{kNoSlot, kasane::ult::kMaxPermits}.pack();
  }
  return false;
}

/// Programs initialise an object again where it lies and never destroy it (Pthreads programs for each step of
/// a loop). If no thread uses the former object, its record is free from now on. handle: what lies there.
void forget_former_object(SyncHandle handle, const void* address) {
  SyncRecords records(pool_of_thread("the constructor of a synchronisation object"));
  const auto kind = records.object_at(handle, address);
  if (kind && is_idle(*kind, records.load(handle, SyncField::word))) records.give_back(handle);
}

/// Calls act() on a user-level thread: the calling one, or from main one of its own. So static objects and
/// objects of main may be made before run() and destroyed after it.
template <class F>
int on_a_thread(const char* call, const F& act) noexcept {
  if (kasane::ult::Pool::self() != kasane::kNoSlot) [[likely]]
    return act();
  Runtime* const r = Runtime::current();
  if (r == nullptr || !r->at_main()) return kasane::runtime::api_fail_outside(call);
  struct Root {
    const F& act;
    int code;
  } root{act, 0};
  r->run_root(
      [](void* p) {
        auto& here = *static_cast<Root*>(p);
        here.code = here.act();
      },
      &root);
  return root.code;
}

template <class T, class Public, class... Args>
int init(Public* p, const char* call, Args... args) noexcept {
  return on_a_thread(call, [&] {
    try {
      forget_former_object({p->handle}, p);
      ::new (static_cast<void*>(&p->handle)) T(args...);
      SyncRecords(pool_of_thread(call)).note_object({p->handle}, kKindOf<T>, p);
      return 0;
    } catch (const std::exception& e) {
      return api_fail(EAGAIN, call, e.what());
    }
  });
}

/// Calls act(object) on a thread, else returns EPERM. Where act may fail to get something, it returns whether
/// it has; kFailed if not.
template <class T, int kFailed = EBUSY, class Public, class F>
int without_waiting(Public* p, const char* call, const F& act) {
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  if constexpr (std::is_same_v<decltype(act(inside<T>(p))), bool>)
    return act(inside<T>(p)) ? 0 : kFailed;
  else
    return act(inside<T>(p)), 0;
}
/// without_waiting() for an act that may wait.
template <class T, int kFailed = EBUSY, class Public, class F>
int with(Public* p, const char* call, const F& act) {
  if (const int code = may_wait(call)) [[unlikely]]
    return code;
  return without_waiting<T, kFailed>(p, call, act);
}

template <class T, class Public>
int destroy(Public* p, const char* call) noexcept {
  return on_a_thread(call, [&] {
    inside<T>(p).~T();
    return 0;
  });
}

/// The offset of the word in the space, for Watch. On a thread.
Watch watch_of(const void* global) {
  const Runtime& r = *Runtime::current();
  return {r.space().offset(global), r.ranks(), global};
}

template <class F>
int notify(const void* global, const char* call, const F& act) {
  if (const int code = require_thread(call)) return code;
  const Runtime& r = *Runtime::current();
  if (!r.contains(global) && !r.one_rank_variables().contains(global))
    return api_fail(EINVAL, call, "not in global memory");
  act(watch_of(global));
  return 0;
}

}  // namespace

extern "C" {

uint64_t kasane_clock_ns(void) {
  kasane::ult::let_others_run(kasane::runtime::holds_mutex_of_libc);  // programs wait for a time
  const Runtime* r = Runtime::current();
  return r != nullptr ? r->clock_ns() : kasane::now_ns();
}

int kasane_atomic_wait(uint32_t width, const void* global, uint64_t old) {
  if (const int code = may_wait("kasane::atomic::wait")) return code;
  void* const word = const_cast<void*>(global);
  // The first comparison comes before any announcement, since the value has often changed already. Afterwards
  // each comparison comes between the preparation and the begin of a wait.
  std::optional<std::uint32_t> epoch;
  for (;;) {
    uint64_t now = 0;
    if (const int code = kasane_atomic(KASANE_FETCH_ADD, width, word, 0, 0, &now, nullptr)) return code;
    if (now != old) return 0;
    const Watch watch = watch_of(global);
    if (epoch) watch.wait(*epoch);
    epoch = watch.prepare();
  }
}
int kasane_atomic_notify_one(const void* global) {
  return notify(global, "kasane::atomic::notify_one",
                [](const Watch& w) { w.notify_one(Runtime::current()->pool()); });
}
int kasane_atomic_notify_all(const void* global) {
  return notify(global, "kasane::atomic::notify_all",
                [](const Watch& w) { w.notify_all(Runtime::current()->pool()); });
}

int kasane_mutex_init(kasane_mutex_t* mutex) { return init<Mutex>(mutex, "kasane::mutex"); }
int kasane_mutex_destroy(kasane_mutex_t* mutex) { return destroy<Mutex>(mutex, "kasane::mutex::~mutex"); }
int kasane_mutex_lock(kasane_mutex_t* mutex) {
  if (const int code = may_wait("kasane::mutex::lock")) [[unlikely]]
    return code;
  inside<Mutex>(mutex).lock();
  return 0;
}
int kasane_mutex_trylock(kasane_mutex_t* mutex) {
  if (const int code = may_wait("kasane::mutex::try_lock")) [[unlikely]]
    return code;
  return inside<Mutex>(mutex).try_lock() ? 0 : EBUSY;
}
int kasane_mutex_unlock(kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::mutex::unlock")) [[unlikely]]
    return code;
  inside<Mutex>(mutex).unlock();
  return 0;
}

int kasane_mutex_lock_relaxed(kasane_mutex_t* mutex) {
  return with<Mutex>(mutex, "kasane_mutex_lock_relaxed", [](Mutex& m) { m.lock_relaxed(); });
}
int kasane_mutex_unlock_relaxed(kasane_mutex_t* mutex) {
  return without_waiting<Mutex>(mutex, "kasane_mutex_unlock_relaxed", [](Mutex& m) { m.unlock_relaxed(); });
}

int kasane_cond_init(kasane_cond_t* cond) {
  return init<ConditionVariable>(cond, "kasane::condition_variable");
}
int kasane_cond_destroy(kasane_cond_t* cond) {
  return destroy<ConditionVariable>(cond, "kasane::condition_variable::~condition_variable");
}
int kasane_cond_wait(kasane_cond_t* cond, kasane_mutex_t* mutex) {
  if (const int code = require_thread("kasane::condition_variable::wait")) return code;
  inside<ConditionVariable>(cond).wait(inside<Mutex>(mutex));
  return 0;
}
int kasane_cond_timedwait(kasane_cond_t* cond, kasane_mutex_t* mutex, uint64_t deadline_ns) {
  return with<ConditionVariable, ETIMEDOUT>(
      cond, "kasane::condition_variable::wait_until",
      [&](ConditionVariable& c) { return c.wait_until(inside<Mutex>(mutex), deadline_ns); });
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
  if (count > KASANE_BARRIER_MAX)
    return api_fail(EINVAL, "kasane::barrier", "more threads than KASANE_BARRIER_MAX");
  return init<Barrier>(barrier, "kasane::barrier", count);
}
int kasane_barrier_destroy(kasane_barrier_t* barrier) {
  return destroy<Barrier>(barrier, "kasane::barrier::~barrier");
}
int kasane_barrier_wait(kasane_barrier_t* barrier) {
  constexpr const char* call = "kasane::barrier::arrive_and_wait";
  if (const int code = may_wait(call)) return code;
  return inside<Barrier>(barrier).arrive_and_wait() ? 0 : api_fail(EINVAL, call, kAllDropped);
}
int kasane_barrier_arrive(kasane_barrier_t* barrier, uint32_t count, uint32_t* phase) {
  constexpr const char* call = "kasane::barrier::arrive";
  if (const int code = require_thread(call)) return code;
  const std::optional<std::uint32_t> arrived = inside<Barrier>(barrier).arrive(count);
  if (!arrived) return api_fail(EINVAL, call, "more arrivals than this phase still waits for, or none");
  *phase = *arrived;
  return 0;
}
int kasane_barrier_arrive_and_drop(kasane_barrier_t* barrier) {
  constexpr const char* call = "kasane::barrier::arrive_and_drop";
  if (const int code = require_thread(call)) return code;
  return inside<Barrier>(barrier).arrive_and_drop() ? 0 : api_fail(EINVAL, call, kAllDropped);
}
int kasane_barrier_wait_phase(kasane_barrier_t* barrier, uint32_t phase) {
  return with<Barrier>(barrier, "kasane::barrier::wait", [phase](Barrier& b) { b.wait(phase); });
}

int kasane_rwlock_init(kasane_rwlock_t* lock) { return init<SharedMutex>(lock, "kasane::shared_mutex"); }
int kasane_rwlock_destroy(kasane_rwlock_t* lock) {
  return destroy<SharedMutex>(lock, "kasane::shared_mutex::~shared_mutex");
}
int kasane_rwlock_rdlock(kasane_rwlock_t* lock) {
  return with<SharedMutex>(lock, "kasane::shared_mutex::lock_shared",
                           [](SharedMutex& m) { m.lock_shared(); });
}
int kasane_rwlock_tryrdlock(kasane_rwlock_t* lock) {
  return with<SharedMutex>(lock, "kasane::shared_mutex::try_lock_shared",
                           [](SharedMutex& m) { return m.try_lock_shared(); });
}
int kasane_rwlock_timedrdlock(kasane_rwlock_t* lock, uint64_t deadline_ns) {
  return with<SharedMutex, ETIMEDOUT>(lock, "kasane::shared_timed_mutex::try_lock_shared_until",
                                      [=](SharedMutex& m) { return m.try_lock_shared_until(deadline_ns); });
}
int kasane_rwlock_rdunlock(kasane_rwlock_t* lock) {
  return without_waiting<SharedMutex>(lock, "kasane::shared_mutex::unlock_shared",
                                      [](SharedMutex& m) { m.unlock_shared(); });
}
int kasane_rwlock_wrlock(kasane_rwlock_t* lock) {
  return with<SharedMutex>(lock, "kasane::shared_mutex::lock", [](SharedMutex& m) { m.lock(); });
}
int kasane_rwlock_trywrlock(kasane_rwlock_t* lock) {
  return with<SharedMutex>(lock, "kasane::shared_mutex::try_lock",
                           [](SharedMutex& m) { return m.try_lock(); });
}
int kasane_rwlock_timedwrlock(kasane_rwlock_t* lock, uint64_t deadline_ns) {
  return with<SharedMutex, ETIMEDOUT>(lock, "kasane::shared_timed_mutex::try_lock_until",
                                      [=](SharedMutex& m) { return m.try_lock_until(deadline_ns); });
}
int kasane_rwlock_wrunlock(kasane_rwlock_t* lock) {
  return without_waiting<SharedMutex>(lock, "kasane::shared_mutex::unlock",
                                      [](SharedMutex& m) { m.unlock(); });
}

int kasane_sem_init(kasane_sem_t* sem, uint32_t permits) {
  if (permits > KASANE_SEM_MAX)
    return api_fail(EINVAL, "kasane::counting_semaphore", "more permits than KASANE_SEM_MAX");
  return init<Semaphore>(sem, "kasane::counting_semaphore", permits);
}
int kasane_sem_destroy(kasane_sem_t* sem) {
  return destroy<Semaphore>(sem, "kasane::counting_semaphore::~counting_semaphore");
}
int kasane_sem_wait(kasane_sem_t* sem) {
  return with<Semaphore>(sem, "kasane::counting_semaphore::acquire", [](Semaphore& s) { s.acquire(); });
}
int kasane_sem_trywait(kasane_sem_t* sem) {
  return with<Semaphore>(sem, "kasane::counting_semaphore::try_acquire",
                         [](Semaphore& s) { return s.try_acquire(); });
}
int kasane_sem_timedwait(kasane_sem_t* sem, uint64_t deadline_ns) {
  return with<Semaphore, ETIMEDOUT>(sem, "kasane::counting_semaphore::try_acquire_until",
                                    [=](Semaphore& s) { return s.try_acquire_until(deadline_ns); });
}
int kasane_sem_post(kasane_sem_t* sem, uint32_t permits) {
  constexpr const char* call = "kasane::counting_semaphore::release";
  const int code =
      without_waiting<Semaphore, EINVAL>(sem, call, [permits](Semaphore& s) { return s.release(permits); });
  if (code != EINVAL) return code;
  return refuse_excess(call, sem, "semaphore", permits,
                       "more permits are more than KASANE_SEM_MAX: release only what was acquired");
}

int kasane_latch_init(kasane_latch_t* latch, uint32_t expected) {
  return init<Latch>(latch, "kasane::latch", expected);
}
int kasane_latch_destroy(kasane_latch_t* latch) { return destroy<Latch>(latch, "kasane::latch::~latch"); }
int kasane_latch_count_down(kasane_latch_t* latch, uint32_t n) {
  constexpr const char* call = "kasane::latch::count_down";
  const int code = without_waiting<Latch, EINVAL>(latch, call, [n](Latch& l) { return l.count_down(n); });
  if (code != EINVAL) return code;
  return refuse_excess(call, latch, "latch", n,
                       "arrivals are more than are still to come: construct it with as many as count down");
}
int kasane_latch_wait(const kasane_latch_t* latch) {
  return with<Latch>(const_cast<kasane_latch_t*>(latch), "kasane::latch::wait",
                     [](const Latch& l) { l.wait(); });
}
int kasane_latch_trywait(const kasane_latch_t* latch) {
  return with<Latch>(const_cast<kasane_latch_t*>(latch), "kasane::latch::try_wait",
                     [](const Latch& l) { return l.try_wait(); });
}

int kasane_once_init(kasane_once_t* once) { return init<Once>(once, "kasane::once_flag"); }
int kasane_once_destroy(kasane_once_t* once) { return destroy<Once>(once, "kasane::once_flag::~once_flag"); }
int kasane_call_once(kasane_once_t* once, void (*function)(void*), void* argument) {
  return with<Once>(once, "kasane::call_once", [&](Once& o) {
    if (!o.begin()) return;
    struct Attempt {  // a caller that throws leaves the call to the next one
      Once& once;
      bool done = false;
      ~Attempt() { once.end(done); }
    } attempt{o};
    function(argument);
    attempt.done = true;
  });
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
