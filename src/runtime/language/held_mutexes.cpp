// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/held_mutexes.h"

#include <cstdio>
#include <cstdlib>

#include "runtime/rank/process_state.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {
[[gnu::tls_model("initial-exec")]] thread_local constinit int t_held = 0;
}  // namespace

// Not inlined, so that the address of the thread-local is computed again after the caller has moved to
// another OS thread.
[[gnu::noinline]] void count_held(int change) noexcept {
  if (ult::Pool::in_user_code()) t_held += change;
}
[[gnu::noinline]] bool holds_mutex_of_libc() noexcept { return t_held > 0; }

void refuse_held_mutex(const char* where) {
  if (!holds_mutex_of_libc()) return;
  char text[256];
  const int n = std::snprintf(text, sizeof text,
                              "kasane: rank %u: a std::mutex is held at %s: the thread may go on in another "
                              "OS thread or rank, which does not own it; "
                              "use kasane::mutex, or unlock before\n",
                              raw(process().rank), where);
  tell(text, static_cast<std::size_t>(n));
  std::abort();
}

}  // namespace kasane::runtime
