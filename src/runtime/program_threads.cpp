// SPDX-License-Identifier: Apache-2.0
// The program's own OS threads (std::thread, OpenMP): pthread_create() for the whole program. A thread that
// is made by user code runs user code, so its system calls are caught; the kernel does not inherit that.
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>

#include "base/call_selector.h"
#include "mem/caught_calls.h"

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace {

struct Begin {
  void* (*function)(void*);
  void* argument;
};

void* begin(void* p) {
  const Begin begin = *static_cast<Begin*>(p);
  std::free(p);
  const kasane::mem::ProgramThread here;
  kasane::set_calls(kasane::Calls::caught);
  return begin.function(begin.argument);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*function)(void*),
                                                             void* argument) noexcept {
  // Perhaps looked up twice.
  static const auto libcs =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (kasane::calls() == kasane::Calls::passed) return libcs(thread, attributes, function, argument);
  auto* const begins = static_cast<Begin*>(std::malloc(sizeof(Begin)));
  if (begins == nullptr) return EAGAIN;
  *begins = {function, argument};
  const int error = libcs(thread, attributes, begin, begins);
  if (error != 0) std::free(begins);
  return error;
}

#endif
