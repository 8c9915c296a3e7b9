// SPDX-License-Identifier: Apache-2.0
// The program's own OS threads (std::thread, OpenMP): pthread_create() for the whole program. A thread that
// user code makes runs user code: its new and malloc give global memory as main's do, and its system calls
// are caught, which the kernel does not inherit. A thread that a library starts by itself does neither. Where
// the runtime, or a library for it, starts one, the descriptors that it opens are the runtime's. Off in
// sanitizer builds, which have their own pthread_create.
//
// Thread safety: as pthread_create().
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <threads.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/call_selector.h"
#include "runtime/language/cancellation.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/pthread_keys.h"
#include "runtime/process/shared_process.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/own_code.h"
#include "runtime/rank/warn.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"
#include "ult/pool.h"

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

namespace {

struct Begin {
  void* (*function)(void*);
  void* argument;
  bool allocates_globally, caught, of_runtime;
};

/// Made before the thread-locals of the program.
struct Keys {
  ~Keys() { kasane::runtime::run_destructors_of_keys(); }
};
thread_local std::optional<Keys> t_keys;

void* begin(void* p) {
  const Begin begin = *static_cast<Begin*>(p);
  std::free(p);
  if (begin.of_runtime) kasane::runtime::note_thread_of_runtime();
  if (!begin.allocates_globally && !begin.caught) return begin.function(begin.argument);
  // For the report of a stack overflow. Where there is no memory for it, handlers run on the thread's stack.
  const auto alternate = kasane::traps::AltStack::create();
  if (begin.allocates_globally) kasane::ult::Pool::enter_program();
  if (!begin.caught) return begin.function(begin.argument);
  t_keys.emplace();
  const kasane::runtime::CancelledByLibc cancelled_by_libc;
  const kasane::traps::ProgramThread here;
  kasane::set_calls(kasane::Calls::caught);
  return begin.function(begin.argument);
}

/// Threads of the program, and those that libstdc++ makes for it. Those of other libraries stay.
bool is_of_program(const void* caller) noexcept {
  if (kasane::runtime::is_code_of_program(caller) || kasane::runtime::is_code_of_runtime(caller)) return true;
  dl_find_object object;  // dladdr() looks for the symbol, too: 30 µs
  return ::_dl_find_object(const_cast<void*>(caller), &object) == 0 &&
         std::strstr(object.dlfo_link_map->l_name, "/libstdc++.") != nullptr;
}

/// Null: threads stay here, and those of the runtime do.
BoundThreads* spreading() noexcept {
  return kasane::runtime::runs_runtime() ? nullptr : kasane::runtime::SharedProcess::current_threads();
}

/// For a call about a thread. Another thread may have come far with exit(): libc knows none of another rank.
BoundThreads* spreading(pthread_t about) noexcept {
  BoundThreads* const threads = spreading();
  if (threads == nullptr && about != ::pthread_self() && !kasane::runtime::runs_runtime())
    kasane::runtime::SharedProcess::await_exit();
  return threads;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*function)(void*),
                                                             void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static constinit kasane::runtime::Hidden<Create> libcs("pthread_create");
  const bool globally = kasane::ult::Pool::in_program(), caught = kasane::calls() == kasane::Calls::caught;
  const bool of_runtime = kasane::runtime::runs_runtime();
  if (!globally && !caught && !of_runtime) return libcs.get()(thread, attributes, function, argument);
  if (BoundThreads* const threads = spreading();
      threads != nullptr && is_of_program(__builtin_return_address(0)))
    return threads->create(thread, attributes, function, argument);
  auto* const begins = static_cast<Begin*>(std::malloc(sizeof(Begin)));
  if (begins == nullptr) return EAGAIN;
  *begins = {function, argument, globally, caught, of_runtime};
  const int error = libcs.get()(thread, attributes, begin, begins);
  if (error != 0) std::free(begins);
  return error;
}

namespace {

struct BeginC {
  thrd_start_t function;
  void* argument;
};

void* begin_c(void* p) {
  const BeginC begin = *static_cast<BeginC*>(p);
  std::free(p);
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(begin.function(begin.argument)));
}

}  // namespace

/// C11's, which libc binds within itself to another function. A thrd_t is a pthread_t.
extern "C" [[gnu::visibility("default")]] int thrd_create(thrd_t* thread, thrd_start_t function,
                                                          void* argument) {
  // Its int is the lower half of what join_c() takes from a function of Pthreads.
  if (BoundThreads* const threads = kasane::ult::Pool::in_program() ? spreading() : nullptr)
    return threads->create(thread, nullptr, std::bit_cast<void* (*)(void*)>(function), argument) == 0
               ? thrd_success
               : thrd_error;
  auto* const begins = static_cast<BeginC*>(std::malloc(sizeof(BeginC)));
  if (begins == nullptr) return thrd_nomem;
  *begins = {function, argument};
  const int error = ::pthread_create(thread, nullptr, begin_c, begins);
  if (error == 0) return thrd_success;
  std::free(begins);
  return error == ENOMEM ? thrd_nomem : thrd_error;
}

// ---- of a thread that may be on another rank --------------------------------------------------------------

namespace {

std::optional<int> join(BoundThreads* threads, pthread_t thread, void** value, BoundEvent how,
                        const Deadline* deadline) {
  if (threads != nullptr) return threads->join(thread, value, how, deadline);
  const bool refused = kasane::runtime::is_main_thread(thread) && thread != ::pthread_self();
  return refused ? std::optional(EINVAL) : std::nullopt;
}

std::optional<int> join_until(BoundThreads* threads, pthread_t thread, void** value, clockid_t clock,
                              const timespec* time) {
  if (time == nullptr) return join(threads, thread, value, BoundEvent::join, nullptr);
  const Deadline deadline{clock, *time};
  return join(threads, thread, value, BoundEvent::join, &deadline);
}

/// C11's result of a thread, which Pthreads passes as a pointer.
std::optional<int> join_c(BoundThreads* threads, thrd_t thread, int* result) {
  void* value = nullptr;
  const std::optional<int> error = join(threads, thread, &value, BoundEvent::join, nullptr);
  if (error == 0 && result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(value));
  return error ? std::optional(*error == 0 ? thrd_success : thrd_error) : std::nullopt;
}

std::optional<int> detach_c(BoundThreads& threads, thrd_t thread) {
  const std::optional<int> error = threads.detach(thread);
  return error ? std::optional(*error == 0 ? thrd_success : thrd_error) : std::nullopt;
}

}  // namespace

/// Defines libc's function `name`, but where `ours` has an answer. `threads` may be null.
#define KASANE_OF_ANY_THREAD(name, parameters, arguments, ours)                         \
  extern "C" [[gnu::visibility("default")]] int kasane_of_##name parameters asm(#name); \
  int kasane_of_##name parameters {                                                     \
    BoundThreads* const threads = spreading(t);                                         \
    if (const std::optional<int> answer = ours) return *answer;                         \
    static constinit kasane::runtime::Hidden<int(*) parameters> libcs(#name);           \
    return libcs.get() arguments;                                                       \
  }
/// For threads of BoundThreads `ours`, of `threads`, answers.
#define KASANE_OF_THREAD(name, parameters, arguments, ours) \
  KASANE_OF_ANY_THREAD(name, parameters, arguments, threads != nullptr ? (ours) : std::nullopt)

using Time_ = const timespec;
KASANE_OF_ANY_THREAD(pthread_join, (pthread_t t, void** v), (t, v),
                     join(threads, t, v, BoundEvent::join, nullptr))
KASANE_OF_ANY_THREAD(pthread_tryjoin_np, (pthread_t t, void** v), (t, v),
                     join(threads, t, v, BoundEvent::try_join, nullptr))
KASANE_OF_ANY_THREAD(pthread_timedjoin_np, (pthread_t t, void** v, Time_* until), (t, v, until),
                     join_until(threads, t, v, CLOCK_REALTIME, until))
KASANE_OF_ANY_THREAD(pthread_clockjoin_np, (pthread_t t, void** v, clockid_t c, Time_* until),
                     (t, v, c, until), join_until(threads, t, v, c, until))
KASANE_OF_ANY_THREAD(thrd_join, (thrd_t t, int* v), (t, v), join_c(threads, t, v))
KASANE_OF_THREAD(pthread_detach, (pthread_t t), (t), threads->detach(t))
KASANE_OF_THREAD(pthread_kill, (pthread_t t, int s), (t, s), threads->signal(t, s, nullptr))
KASANE_OF_THREAD(pthread_sigqueue, (pthread_t t, int s, const sigval v), (t, s, v), threads->signal(t, s, &v))
KASANE_OF_THREAD(thrd_detach, (thrd_t t), (t), detach_c(*threads, t))

// What libc would look for in memory of another rank.
#define KASANE_OF_THREAD_HERE(name, parameters, arguments) \
  KASANE_OF_THREAD(name, parameters, arguments, threads->refuse(t, #name))

KASANE_OF_THREAD(pthread_setname_np, (pthread_t t, const char* n), (t, n), threads->set_name(t, n))
KASANE_OF_THREAD(pthread_getname_np, (pthread_t t, char* n, std::size_t b), (t, n, b),
                 threads->get_name(t, n, b))
KASANE_OF_THREAD_HERE(pthread_setaffinity_np, (pthread_t t, std::size_t b, const cpu_set_t* s), (t, b, s))
KASANE_OF_THREAD_HERE(pthread_getaffinity_np, (pthread_t t, std::size_t b, cpu_set_t* s), (t, b, s))
KASANE_OF_THREAD_HERE(pthread_setschedparam, (pthread_t t, int p, const sched_param* s), (t, p, s))
KASANE_OF_THREAD_HERE(pthread_getschedparam, (pthread_t t, int* p, sched_param* s), (t, p, s))
KASANE_OF_THREAD_HERE(pthread_setschedprio, (pthread_t t, int p), (t, p))
KASANE_OF_THREAD_HERE(pthread_getcpuclockid, (pthread_t t, clockid_t* c), (t, c))

// ---- cancellation -----------------------------------------------------------------------------------------

#define KASANE_SHOWN extern "C" [[gnu::visibility("default")]]

KASANE_SHOWN int pthread_cancel(pthread_t thread) {
  if (BoundThreads* const threads = spreading(thread); threads != nullptr)
    if (const std::optional<int> answer = threads->cancel(thread)) return *answer;
  static constinit kasane::runtime::Hidden<int (*)(pthread_t)> libcs("pthread_cancel");
  const int error = libcs.get()(thread);
  if (error == 0) kasane::runtime::rouse_from_word(thread);
  return error;
}
KASANE_SHOWN void pthread_testcancel() { Cancellation::test(); }

KASANE_SHOWN int pthread_setcancelstate(int state, int* before) {
  static constinit kasane::runtime::Hidden<int (*)(int, int*)> libcs("pthread_setcancelstate");
  const int error = libcs.get()(state, before);
  if (Cancellation* const own = Cancellation::of_calls_here(); error == 0 && own != nullptr)
    own->step(state == PTHREAD_CANCEL_ENABLE ? CancelEvent::enable : CancelEvent::disable);
  return error;
}

KASANE_SHOWN int pthread_setcanceltype(int type, int* before) {
  static constinit kasane::runtime::Hidden<int (*)(int, int*)> libcs("pthread_setcanceltype");
  if (type != PTHREAD_CANCEL_ASYNCHRONOUS || Cancellation::of_calls_here() == nullptr)
    return libcs.get()(type, before);
  kasane::runtime::CrashText text;
  kasane::runtime::warn(text.add(
      "kasane: pthread_setcanceltype: PTHREAD_CANCEL_ASYNCHRONOUS fails with ENOTSUP: with --threads "
      "spread a thread is cancelled in cancellation points only (pthread_testcancel), since it may "
      "be anywhere in the runtime\n"));
  return ENOTSUP;
}

// Points whose calls are libc's alone.
#define KASANE_POINT(name, parameters, arguments)                                       \
  extern "C" [[gnu::visibility("default")]] int kasane_of_##name parameters asm(#name); \
  int kasane_of_##name parameters {                                                     \
    static constinit kasane::runtime::Hidden<int(*) parameters> libcs(#name);           \
    return kasane::runtime::call_in_point([&] { return libcs.get() arguments; });       \
  }
KASANE_POINT(pause, (), ())
KASANE_POINT(sigwaitinfo, (const sigset_t* s, siginfo_t* i), (s, i))
KASANE_POINT(sigtimedwait, (const sigset_t* s, siginfo_t* i, Time_* t), (s, i, t))

/// libc's goes on waiting after the signal that cancels.
KASANE_SHOWN int sigwait(const sigset_t* set, int* signal) {
  static constinit kasane::runtime::Hidden<int (*)(const sigset_t*, int*)> libcs("sigwait");
  if (Cancellation::of_calls_here() == nullptr) return libcs.get()(set, signal);
  const int before = errno;
  int came;
  do came = ::sigwaitinfo(set, nullptr);
  while (came == -1 && errno == EINTR);
  const int error = came == -1 ? errno : 0;
  errno = before;
  if (error == 0) *signal = came;
  return error;
}

/// libc's words of such a mutex are of one process.
KASANE_SHOWN int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(pthread_mutex_t*, const pthread_mutexattr_t*)> libcs(
      "pthread_mutex_init");
  int robust = PTHREAD_MUTEX_STALLED, protocol = PTHREAD_PRIO_NONE;
  if (attributes != nullptr) [[unlikely]] {
    ::pthread_mutexattr_getrobust(attributes, &robust);
    ::pthread_mutexattr_getprotocol(attributes, &protocol);
  }
  if ((robust == PTHREAD_MUTEX_STALLED && protocol == PTHREAD_PRIO_NONE) || spreading() == nullptr)
    return libcs.get()(mutex, attributes);
  kasane::runtime::CrashText text;
  text.add("kasane: pthread_mutex_init fails with ENOTSUP: a ")
      .add(robust != PTHREAD_MUTEX_STALLED ? "robust mutex" : "mutex with a protocol of priorities");
  kasane::runtime::warn(text.add(" holds within one process, and --threads spread has one a rank\n"));
  return ENOTSUP;
}

/// Where a thread asks for its own stack, that is the one in the space.
KASANE_SHOWN int pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(pthread_t, pthread_attr_t*)> libcs("pthread_getattr_np");
  if (BoundThreads* const threads = thread != ::pthread_self() ? spreading(thread) : nullptr)
    if (const std::optional<int> refused = threads->refuse(thread, "pthread_getattr_np")) return *refused;
  const int error = libcs.get()(thread, attributes);
  if (error != 0 || BoundThreads::here() == nullptr || thread != ::pthread_self()) return error;
  void* low = nullptr;
  std::size_t bytes = 0;
  BoundThreads::stack_here(low, bytes);
  return ::pthread_attr_setstack(attributes, low, bytes);
}

#endif
