// SPDX-License-Identifier: Apache-2.0
// std::mutex and its like, and what Pthreads calls them: libkasane defines the functions of libc. An object
// of the program's, in one of its variables or in the space, is worked on by the atomics of the program
// (runtime/language/atomics.h), which order memory between ranks, and a thread that waits is suspended, not
// its worker (runtime/language/futex_calls.h). Any other object is libc's matter, and all are before the
// runtime is there.
//
//   object          word
//   mutex           __lock
//   condition       the first; counts signals
//   shared mutex    __readers
//   once, spin lock itself
//   semaphore       the first
//   barrier         the first: threads that have arrived; the second: phases; the fifth: those that have left
//
// lock_words.h says what the words mean. A spin lock is 1 free, 0 locked.
//
// These words are 0 (a spin lock's: 1) in what libc's initialisers make, so static objects, and those of
// pthread_mutex_init, are ready. kind, owner and count of a mutex have their places in libc's object.
//
// Thread safety: as the functions that are replaced. Robust mutexes and those with a protocol stay libc's.
#include "ult/sanitizer.h"

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>

#include "runtime/language/atomics.h"
#include "runtime/language/cancellation.h"
#include "runtime/language/futex_calls.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/language/lock_calls.h"
#include "runtime/language/lock_words.h"
#include "runtime/rank/hidden.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

constexpr int kRelaxed = __ATOMIC_RELAXED, kAcquire = __ATOMIC_ACQUIRE, kRelease = __ATOMIC_RELEASE;

/// Where objects are the program's.
struct Ranges {
  std::uintptr_t space = 0, stacks = 0, variables = 0;
  std::size_t space_bytes = 0, stacks_bytes = 0, variables_bytes = 0;
};
constinit Ranges g_ranges;  ///< constant while threads of the program run

/// Whether the code is a network library's, which the runtime calls, perhaps for an atomic of this file.
[[gnu::noinline]] bool is_network(const void* code) noexcept {
  Dl_info object{};
  if (::dladdr(code, &object) == 0 || object.dli_fname == nullptr) return false;
  const std::string_view name(object.dli_fname);
  for (const std::string_view part : {"/libmpi", "/libopen-", "/openmpi", "/mca_", "/libuc", "/libpmix"})
    if (name.find(part) != name.npos) return true;
  return false;
}

/// caller: the code that calls. Libraries in C have nothing in the space but what lies on their stacks.
inline bool is_programs(const volatile void* p, const void* caller) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  if (at - g_ranges.variables < g_ranges.variables_bytes) return true;
  if (at - g_ranges.space >= g_ranges.space_bytes) return false;
  return at - g_ranges.stacks >= g_ranges.stacks_bytes || !is_network(caller);
}

/// The executable's variables, but for one that contains the runtime, whose mutexes are libc's.
int find_variables(dl_phdr_info* object, std::size_t, void* found) {
  auto& ranges = *static_cast<Ranges*>(found);
  for (const ElfW(Phdr) & part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    const std::uintptr_t first = object->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0 ||
        reinterpret_cast<std::uintptr_t>(&g_ranges) - first < part.p_memsz)
      continue;
    ranges.variables = first;
    ranges.variables_bytes = part.p_memsz;
  }
  return 1;  // the first object is the executable
}

// ---- mutexes ----------------------------------------------------------------------------------------------

/// A number that no other living thread of the job has, but for OS threads of other ranks.
[[gnu::noinline]] int self() noexcept {
  const SlotId slot = ult::Pool::self();
  return slot != kNoSlot ? static_cast<int>(raw(slot)) + 1 : -static_cast<int>(::gettid());
}

class Mutex {
 public:
  explicit Mutex(pthread_mutex_t* mutex) noexcept : data_(mutex->__data) {}

  int lock(const Deadline* deadline) noexcept {
    if (const int done = again(); done >= 0) return done;
    if (!try_word()) {
      while (set(MutexEvent::lock, kAcquire) != LockAction::has)
        if (const int error = wait_for_word(&data_.__lock, kAfterLock, deadline, "std::mutex::lock");
            error != 0)
          return error;
    }
    return own();
  }
  int try_lock() noexcept {
    if (const int done = again(); done >= 0) return done == EDEADLK ? EBUSY : done;
    return try_word() ? own() : EBUSY;
  }
  int unlock() noexcept {
    if (has_owner()) {
      if (data_.__owner != self()) return EPERM;
      if (is_recursive() && --data_.__count != 0) return 0;
      data_.__owner = 0;
    }
    if (set(MutexEvent::unlock, kRelease) == LockAction::wake_one) wake_word(&data_.__lock, false);
    return 0;
  }

 private:
  [[nodiscard]] bool is_recursive() const noexcept { return (data_.__kind & 3) == PTHREAD_MUTEX_RECURSIVE; }
  [[nodiscard]] bool has_owner() const noexcept {
    return is_recursive() || (data_.__kind & 3) == PTHREAD_MUTEX_ERRORCHECK;
  }
  /// Of the thread that has it; -1: it has not. Only its own store can name it.
  int again() noexcept {
    if (!has_owner() || data_.__owner != self()) return -1;
    if (!is_recursive()) return EDEADLK;
    ++data_.__count;
    return 0;
  }
  bool try_word() noexcept {
    std::uint32_t seen = 0;
    return swap_atomic(&data_.__lock, seen, next(MutexEvent::try_lock, 0).word, kAcquire);
  }
  /// These events leave the same word whatever it was, so one atomic operation does them.
  LockAction set(MutexEvent event, int order) noexcept {
    return next(event, exchange_atomic(&data_.__lock, next(event, 0).word, order)).action;
  }
  static constexpr std::uint32_t kAfterLock = next(MutexEvent::lock, 0).word;
  static_assert(next(MutexEvent::lock, 1).word == kAfterLock &&
                next(MutexEvent::lock, 2).word == kAfterLock &&
                next(MutexEvent::unlock, 1).word == next(MutexEvent::unlock, 2).word);

  int own() noexcept {
    if (has_owner()) data_.__owner = self(), data_.__count = 1;
    return 0;
  }
  decltype(pthread_mutex_t::__data)& data_;
};

constexpr int kRobust = 16, kInherit = 32, kProtect = 64;
inline bool is_programs_mutex(const pthread_mutex_t* m, const void* caller) noexcept {
  return is_programs(m, caller) && (m->__data.__kind & (kRobust | kInherit | kProtect)) == 0;
}

// ---- conditions -------------------------------------------------------------------------------------------

int wait_at(pthread_cond_t* condition, pthread_mutex_t* mutex, const Deadline* deadline) {
  Cancellation::test();
  // With the mutex held: who takes it may notify, and free the condition.
  const PreparedWait prepared = prepare_wait(condition);
  if (const int error = ::pthread_mutex_unlock(mutex); error != 0) return error;
  const int result = wait_in_point(condition, prepared, deadline, "std::condition_variable::wait");
  ::pthread_mutex_lock(mutex);
  if (result != EINTR) return result;
  Cancellation::test();
  return 0;
}
int notify(pthread_cond_t* condition, bool all) noexcept {
  add_atomic(condition, 1, kRelaxed);  // the mutex orders
  wake_word(condition, all);
  return 0;
}
/// That pthread_condattr_setclock chose.
clockid_t clock_of(const pthread_cond_t* condition) noexcept {
  return (condition->__data.__wrefs & 2) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

// ---- shared mutexes ---------------------------------------------------------------------------------------

/// The step that the word took, by compare and swap.
template <class Event>
LockStep change(void* word, Event event, int order) noexcept {
  std::uint32_t seen = load_atomic(word, kRelaxed);
  for (;;) {
    const LockStep step = next(event, seen);
    if (step.word == seen || swap_atomic(word, seen, step.word, order)) return step;
  }
}

bool try_shared_mutex(pthread_rwlock_t* lock, SharedEvent tried) noexcept {
  return change(lock, tried, kAcquire).action == LockAction::has;
}
int lock_shared_mutex(pthread_rwlock_t* lock, SharedEvent tried, const Deadline* deadline) noexcept {
  while (!try_shared_mutex(lock, tried)) {
    const LockStep step = change(lock, SharedEvent::announce, kRelaxed);
    if (step.action != LockAction::wait) continue;
    if (const int error = wait_for_word(lock, step.word, deadline, "std::shared_mutex::lock"); error != 0)
      return error;
  }
  return 0;
}
int unlock_shared_mutex(pthread_rwlock_t* lock) noexcept {
  if (change(lock, SharedEvent::unlock, kRelease).action == LockAction::wake_all) wake_word(lock, true);
  return 0;
}

// ---- once -------------------------------------------------------------------------------------------------

/// std::call_once says in variables of the OS thread what its function is to call. They go with the thread.
class CallOfOnce {
 public:
  [[gnu::noinline]] CallOfOnce() noexcept : callable_(std::__once_callable), call_(std::__once_call) {}
  [[gnu::noinline]] void bring_here() const noexcept {
    std::__once_callable = callable_;
    std::__once_call = call_;
  }

 private:
  void* callable_;
  void (*call_)();
};

void end_of_once(pthread_once_t* once, OnceEvent event) noexcept {
  if (change(once, event, kRelease).action == LockAction::wake_all) wake_word(once, true);
}

int call_once(pthread_once_t* once, void (*function)()) {
  const CallOfOnce call;
  for (;;) {
    if (load_atomic(once, kAcquire) == kDone) return 0;
    const LockStep step = change(once, OnceEvent::enter, kAcquire);
    if (step.action == LockAction::has) break;
    if (step.action == LockAction::wait) wait_for_word(once, step.word, nullptr, "std::call_once");
  }
  call.bring_here();
  try {
    function();
  } catch (...) {  // the end of a thread, too
    end_of_once(once, OnceEvent::abort);
    throw;
  }
  end_of_once(once, OnceEvent::end);
  return 0;
}

// ---- C's semaphores, barriers -----------------------------------------------------------------------------

bool try_acquire(sem_t* semaphore) noexcept {
  return change(semaphore, SemaphoreEvent::acquire, kAcquire).action == LockAction::has;
}
/// With libc's convention for errors.
int acquire(sem_t* semaphore, const Deadline* deadline) {
  Cancellation::test();
  while (!try_acquire(semaphore)) {
    const int error = wait_in_point(semaphore, 0, deadline, "sem_wait");
    if (error == EINTR) Cancellation::test();
    if (error == 0 || error == EINTR) continue;
    errno = error;
    return -1;
  }
  return 0;
}
int release(sem_t* semaphore) noexcept {
  // As next() says, in one operation. One beyond the most is taken back, as if a thread had taken it.
  if (add_atomic(semaphore, 1, kRelease) >= SEM_VALUE_MAX) {
    add_atomic(semaphore, ~std::uint32_t{0}, kRelaxed);
    errno = EOVERFLOW;
    return -1;
  }
  wake_word(semaphore, false);
  return 0;
}

struct BarrierWords {
  std::uint32_t arrived, phase, count;  ///< where libc's pthread_barrier_init puts the count
  std::uint32_t shared, left;
};
static_assert(sizeof(BarrierWords) <= sizeof(pthread_barrier_t));
int pass(pthread_barrier_t* barrier) noexcept {
  auto* const words = reinterpret_cast<BarrierWords*>(barrier);
  const std::uint32_t phase = load_atomic(&words->phase, kAcquire);
  const LockStep step = next_at_barrier(add_atomic(&words->arrived, 1, __ATOMIC_ACQ_REL), words->count);
  if (step.action == LockAction::wake_all) {
    exchange_atomic(&words->arrived, step.word, kRelaxed);
    add_atomic(&words->phase, 1, kRelease);
    wake_word(&words->phase, true);
  } else {
    while (load_atomic(&words->phase, kAcquire) == phase)
      wait_for_word(&words->phase, phase, nullptr, "pthread_barrier_wait");
  }
  add_atomic(&words->left, 1, kRelaxed);
  return step.action == LockAction::wake_all ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}
/// Who has passed may destroy it while others have yet to see that they may pass. It looks at times, since a
/// wake-up by each that leaves would cost all barriers.
int destroy(pthread_barrier_t* barrier) noexcept {
  auto* const words = reinterpret_cast<BarrierWords*>(barrier);
  const std::uint32_t phase = load_atomic(&words->phase, kAcquire);
  for (std::uint32_t left;
       !may_destroy_barrier(phase, words->count, left = load_atomic(&words->left, kAcquire));) {
    timespec soon{};
    ::clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += 200'000;
    if (soon.tv_nsec >= 1'000'000'000) ++soon.tv_sec, soon.tv_nsec -= 1'000'000'000;
    const Deadline deadline{CLOCK_MONOTONIC, soon};
    wait_for_word(&words->left, left, &deadline, "pthread_barrier_destroy");
  }
  return 0;
}

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

#define KASANE_CALLER __builtin_return_address(0)

/// Defines libc's function `name`: `ours` where the object is the program's, else libc's.
#define KASANE_LOCKS(name, parameters, arguments, global, ours)                           \
  extern "C" [[gnu::visibility("default")]] int kasane_lock_##name parameters asm(#name); \
  int kasane_lock_##name parameters {                                                     \
    if (global) [[unlikely]]                                                              \
      return ours;                                                                        \
    static constinit kasane::runtime::Hidden<int(*) parameters> libcs(#name);             \
    return libcs.get() arguments;                                                         \
  }

/// KASANE_LOCKS for `mutex`, which `ours` calls m; libc's mutexes are counted.
#define KASANE_LOCKS_MUTEX(name, parameters, arguments, mutex, ours, change)              \
  extern "C" [[gnu::visibility("default")]] int kasane_lock_##name parameters asm(#name); \
  int kasane_lock_##name parameters {                                                     \
    if (is_programs_mutex(mutex, KASANE_CALLER)) [[unlikely]] {                           \
      Mutex m(mutex);                                                                     \
      return ours;                                                                        \
    }                                                                                     \
    static constinit kasane::runtime::Hidden<int(*) parameters> libcs(#name);             \
    const int error = libcs.get() arguments;                                              \
    if (error == 0) count_held(change);                                                   \
    return error;                                                                         \
  }

using Mutex_ = pthread_mutex_t;
using Cond_ = pthread_cond_t;
using Shared_ = pthread_rwlock_t;
using Time_ = const timespec;

namespace {
/// For the time of the call.
struct Until {
  Until(clockid_t clock, Time_* time) noexcept : deadline{clock, *time} {}
  const Deadline* operator&() const noexcept { return &deadline; }  // NOLINT(google-runtime-operator)
  Deadline deadline;
};
}  // namespace

KASANE_LOCKS_MUTEX(pthread_mutex_lock, (Mutex_ * p), (p), p, m.lock(nullptr), 1)
KASANE_LOCKS_MUTEX(pthread_mutex_trylock, (Mutex_ * p), (p), p, m.try_lock(), 1)
KASANE_LOCKS_MUTEX(pthread_mutex_unlock, (Mutex_ * p), (p), p, m.unlock(), -1)
KASANE_LOCKS_MUTEX(pthread_mutex_timedlock, (Mutex_ * p, Time_* t), (p, t), p,
                   m.lock(&Until(CLOCK_REALTIME, t)), 1)
KASANE_LOCKS_MUTEX(pthread_mutex_clocklock, (Mutex_ * p, clockid_t c, Time_* t), (p, c, t), p,
                   m.lock(&Until(c, t)), 1)

KASANE_LOCKS(pthread_cond_wait, (Cond_ * c, Mutex_* m), (c, m), is_programs(c, KASANE_CALLER),
             wait_at(c, m, nullptr))
KASANE_LOCKS(pthread_cond_timedwait, (Cond_ * c, Mutex_* m, Time_* t), (c, m, t),
             is_programs(c, KASANE_CALLER), wait_at(c, m, &Until(clock_of(c), t)))
KASANE_LOCKS(pthread_cond_clockwait, (Cond_ * c, Mutex_* m, clockid_t clock, Time_* t), (c, m, clock, t),
             is_programs(c, KASANE_CALLER), wait_at(c, m, &Until(clock, t)))
KASANE_LOCKS(pthread_cond_signal, (Cond_ * c), (c), is_programs(c, KASANE_CALLER), notify(c, false))
KASANE_LOCKS(pthread_cond_broadcast, (Cond_ * c), (c), is_programs(c, KASANE_CALLER), notify(c, true))

KASANE_LOCKS(pthread_rwlock_rdlock, (Shared_ * l), (l), is_programs(l, KASANE_CALLER),
             lock_shared_mutex(l, SharedEvent::try_shared, nullptr))
KASANE_LOCKS(pthread_rwlock_tryrdlock, (Shared_ * l), (l), is_programs(l, KASANE_CALLER),
             try_shared_mutex(l, SharedEvent::try_shared) ? 0 : EBUSY)
KASANE_LOCKS(pthread_rwlock_timedrdlock, (Shared_ * l, Time_* t), (l, t), is_programs(l, KASANE_CALLER),
             lock_shared_mutex(l, SharedEvent::try_shared, &Until(CLOCK_REALTIME, t)))
KASANE_LOCKS(pthread_rwlock_clockrdlock, (Shared_ * l, clockid_t c, Time_* t), (l, c, t),
             is_programs(l, KASANE_CALLER), lock_shared_mutex(l, SharedEvent::try_shared, &Until(c, t)))
KASANE_LOCKS(pthread_rwlock_wrlock, (Shared_ * l), (l), is_programs(l, KASANE_CALLER),
             lock_shared_mutex(l, SharedEvent::try_lock, nullptr))
KASANE_LOCKS(pthread_rwlock_trywrlock, (Shared_ * l), (l), is_programs(l, KASANE_CALLER),
             try_shared_mutex(l, SharedEvent::try_lock) ? 0 : EBUSY)
KASANE_LOCKS(pthread_rwlock_timedwrlock, (Shared_ * l, Time_* t), (l, t), is_programs(l, KASANE_CALLER),
             lock_shared_mutex(l, SharedEvent::try_lock, &Until(CLOCK_REALTIME, t)))
KASANE_LOCKS(pthread_rwlock_clockwrlock, (Shared_ * l, clockid_t c, Time_* t), (l, c, t),
             is_programs(l, KASANE_CALLER), lock_shared_mutex(l, SharedEvent::try_lock, &Until(c, t)))
KASANE_LOCKS(pthread_rwlock_unlock, (Shared_ * l), (l), is_programs(l, KASANE_CALLER), unlock_shared_mutex(l))

KASANE_LOCKS(pthread_once, (pthread_once_t * o, void (*f)()), (o, f), is_programs(o, KASANE_CALLER),
             call_once(o, f))

KASANE_LOCKS(sem_wait, (sem_t * s), (s), is_programs(s, KASANE_CALLER), acquire(s, nullptr))
KASANE_LOCKS(sem_trywait, (sem_t * s), (s), is_programs(s, KASANE_CALLER),
             try_acquire(s) ? 0 : (errno = EAGAIN, -1))
KASANE_LOCKS(sem_timedwait, (sem_t * s, Time_* t), (s, t), is_programs(s, KASANE_CALLER),
             acquire(s, &Until(CLOCK_REALTIME, t)))
KASANE_LOCKS(sem_clockwait, (sem_t * s, clockid_t c, Time_* t), (s, c, t), is_programs(s, KASANE_CALLER),
             acquire(s, &Until(c, t)))
KASANE_LOCKS(sem_post, (sem_t * s), (s), is_programs(s, KASANE_CALLER), release(s))
KASANE_LOCKS(sem_getvalue, (sem_t * s, int* value), (s, value), is_programs(s, KASANE_CALLER),
             (*value = static_cast<int>(load_atomic(s, kRelaxed)), 0))

KASANE_LOCKS(pthread_barrier_wait, (pthread_barrier_t * b), (b), is_programs(b, KASANE_CALLER), pass(b))
KASANE_LOCKS(pthread_barrier_destroy, (pthread_barrier_t * b), (b), is_programs(b, KASANE_CALLER), destroy(b))

KASANE_LOCKS(pthread_spin_lock, (pthread_spinlock_t * s), (s), is_programs(s, KASANE_CALLER), [s] {
  while (exchange_atomic(const_cast<int*>(s), 0, kAcquire) != 1) {
  }
  return 0;
}())
KASANE_LOCKS(pthread_spin_trylock, (pthread_spinlock_t * s), (s), is_programs(s, KASANE_CALLER),
             exchange_atomic(const_cast<int*>(s), 0, kAcquire) == 1 ? 0 : EBUSY)
KASANE_LOCKS(pthread_spin_unlock, (pthread_spinlock_t * s), (s), is_programs(s, KASANE_CALLER),
             (exchange_atomic(const_cast<int*>(s), 1, kRelease), 0))

// C11's functions, which libc binds within itself to Pthreads' (threads.h).

namespace {
static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t));
pthread_mutex_t* as_pthreads(mtx_t* m) noexcept { return reinterpret_cast<pthread_mutex_t*>(m); }
pthread_cond_t* as_pthreads(cnd_t* c) noexcept { return reinterpret_cast<pthread_cond_t*>(c); }
int as_c11(int error) noexcept {
  switch (error) {
    case 0: return thrd_success;
    case EBUSY: return thrd_busy;
    case ETIMEDOUT: return thrd_timedout;
    case ENOMEM: return thrd_nomem;
    default: return thrd_error;
  }
}
}  // namespace

KASANE_LOCKS_MUTEX(mtx_lock, (mtx_t * c), (c), as_pthreads(c), as_c11(m.lock(nullptr)), 1)
KASANE_LOCKS_MUTEX(mtx_trylock, (mtx_t * c), (c), as_pthreads(c), as_c11(m.try_lock()), 1)
KASANE_LOCKS_MUTEX(mtx_timedlock, (mtx_t * c, Time_* t), (c, t), as_pthreads(c),
                   as_c11(m.lock(&Until(CLOCK_REALTIME, t))), 1)
KASANE_LOCKS_MUTEX(mtx_unlock, (mtx_t * c), (c), as_pthreads(c), as_c11(m.unlock()), -1)
KASANE_LOCKS(cnd_wait, (cnd_t * c, mtx_t* m), (c, m), is_programs(c, KASANE_CALLER),
             as_c11(wait_at(as_pthreads(c), as_pthreads(m), nullptr)))
KASANE_LOCKS(cnd_timedwait, (cnd_t * c, mtx_t* m, Time_* t), (c, m, t), is_programs(c, KASANE_CALLER),
             as_c11(wait_at(as_pthreads(c), as_pthreads(m), &Until(CLOCK_REALTIME, t))))
KASANE_LOCKS(cnd_signal, (cnd_t * c), (c), is_programs(c, KASANE_CALLER),
             as_c11(notify(as_pthreads(c), false)))
KASANE_LOCKS(cnd_broadcast, (cnd_t * c), (c), is_programs(c, KASANE_CALLER),
             as_c11(notify(as_pthreads(c), true)))

extern "C" [[gnu::visibility("default")]] void call_once(once_flag* flag, void (*function)()) {
  (void)::pthread_once(reinterpret_cast<pthread_once_t*>(flag), function);
}

namespace kasane::runtime {
void own_locks_of_program(std::span<const std::byte> space, std::span<const std::byte> stacks) noexcept {
  Ranges ranges{.space = reinterpret_cast<std::uintptr_t>(space.data()),
                .stacks = reinterpret_cast<std::uintptr_t>(stacks.data()),
                .space_bytes = space.size(),
                .stacks_bytes = stacks.size()};
  if (!space.empty()) ::dl_iterate_phdr(find_variables, &ranges);
  g_ranges = ranges;
}
}  // namespace kasane::runtime

#else  // the sanitizers have functions of their own, and only one rank runs: all mutexes are libc's

#include "runtime/language/lock_calls.h"

namespace kasane::runtime {
void own_locks_of_program(std::span<const std::byte>, std::span<const std::byte>) noexcept {}
}  // namespace kasane::runtime

#endif
