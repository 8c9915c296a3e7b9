// SPDX-License-Identifier: Apache-2.0
// OS threads that the program starts (std::thread, OpenMP, pthread_create) allocate as main does: their new
// and malloc give global memory. A thread that a library starts by itself does not. Off in sanitizer builds,
// which have their own pthread_create.
//
// Thread safety: as pthread_create().
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>

#include "ult/pool.h"

namespace {

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run(void* allocated) {
  const Start start = *static_cast<Start*>(allocated);
  std::free(allocated);
  kasane::ult::Pool::enter_program();
  return start.function(start.argument);
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                              void* argument) {
  using Real = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Real real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (!kasane::ult::Pool::in_user_code()) return real(thread, attributes, function, argument);
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  if (start == nullptr) return EAGAIN;
  *start = {function, argument};
  const int result = real(thread, attributes, run, start);
  if (result != 0) std::free(start);
  return result;
}

#endif
