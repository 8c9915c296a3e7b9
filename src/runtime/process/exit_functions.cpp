// SPDX-License-Identifier: Apache-2.0
// __cxa_atexit: what the program registers for its end, destructors of function statics and functions of
// atexit(), is registered where exit() runs. A user-level thread that registers on another rank goes to
// rank 0 for it, and of a bound thread its deputy there registers. What other libraries register is of
// their own variables, and so of this rank.
//
// Thread safety: as the function that is replaced, also before the runtime begins.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <algorithm>
#include <vector>

#include "runtime/language/held_mutexes.h"
#include "runtime/process/bound_threads.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/program_objects.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

bool on_thread_of_serving_rank() noexcept {
  const Runtime* const runtime = Runtime::current();
  return runtime != nullptr && runtime->shares_variables() && !process().main_here &&
         phase() == diagnostics::Phase::running &&
         (ult::Pool::self() != kNoSlot || BoundThreads::here() != nullptr) &&
         in_space(__builtin_frame_address(0));  // not in a signal handler
}

/// object: null from atexit() in an executable that is not position-independent.
bool is_of_program(const void* object) {
  if (object == nullptr) return true;
  const std::vector<Image> images = program_images();
  return std::ranges::any_of(images, [&](const Image& image) { return image.holds(object); });
}

struct Registration {
  void (*function)(void*);
  void *argument, *object;
  int result;
  void make() noexcept {
    static constinit Hidden<int (*)(void (*)(void*), void*, void*)> libcs("__cxa_atexit");
    result = libcs.get()(function, argument, object);
  }
};

[[gnu::cold, gnu::noinline]] void go_to_main(Registration& registration) noexcept {
  if (!is_of_program(registration.object)) return registration.make();
  if (BoundThreads::here() != nullptr)
    return BoundThreads::call_at(
        Rank{0}, [](void* r) { static_cast<Registration*>(r)->make(); }, &registration);
  check_no_mutex_held("the registration of a function for the program's end");
  ult::Pool::go_to(Rank{0});
  registration.make();
}

}  // namespace
}  // namespace kasane::runtime

extern "C" [[gnu::visibility("default")]] int __cxa_atexit(void (*function)(void*), void* argument,
                                                           void* object) noexcept {
  kasane::runtime::Registration registration{function, argument, object, 0};
  if (kasane::runtime::on_thread_of_serving_rank()) [[unlikely]]
    kasane::runtime::go_to_main(registration);
  else
    registration.make();
  return registration.result;
}

#endif
