// SPDX-License-Identifier: Apache-2.0
// The program's own OS threads (std::thread, OpenMP): pthread_create() for the whole program. A thread that
// user code makes runs user code: its new and malloc give global memory as main's do, and its system calls
// are caught, which the kernel does not inherit. A thread that a library starts by itself does neither. Where
// the runtime, or a library for it, starts one, the descriptors that it opens are the runtime's. Off in
// sanitizer builds, which have their own pthread_create.
//
// Thread safety: as pthread_create().
#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/call_selector.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/rank/hidden.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"
#include "ult/pool.h"

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace {

struct Begin {
  void* (*function)(void*);
  void* argument;
  bool allocates_globally, caught, of_runtime;
};

void* begin(void* p) {
  const Begin begin = *static_cast<Begin*>(p);
  std::free(p);
  if (begin.of_runtime) kasane::runtime::note_thread_of_runtime();
  if (!begin.allocates_globally && !begin.caught) return begin.function(begin.argument);
  // For the report of a stack overflow. Where there is no memory for it, handlers run on the thread's stack.
  const auto alternate = kasane::traps::AltStack::create();
  if (begin.allocates_globally) kasane::ult::Pool::enter_program();
  if (!begin.caught) return begin.function(begin.argument);
  const kasane::traps::ProgramThread here;
  kasane::set_calls(kasane::Calls::caught);
  return begin.function(begin.argument);
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
  auto* const begins = static_cast<BeginC*>(std::malloc(sizeof(BeginC)));
  if (begins == nullptr) return thrd_nomem;
  *begins = {function, argument};
  const int error = ::pthread_create(thread, nullptr, begin_c, begins);
  if (error == 0) return thrd_success;
  std::free(begins);
  return error == ENOMEM ? thrd_nomem : thrd_error;
}

#endif
