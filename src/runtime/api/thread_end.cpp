// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/thread_end.h"

#include <cxxabi.h>
#include <pthread.h>
#include <threads.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <optional>
#include <vector>

#include "runtime/language/cancellation.h"
#include "runtime/process/shared_process.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "topo/threads.h"
#include "ult/forced_unwind.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

constexpr std::uint64_t kLookAgainNs = 1'000'000;

pid_t g_main_thread = 0;  ///< 0: main does not run

/// In private memory: main may end by exit(), and never frees it.
std::vector<pid_t> os_threads() {
  const ult::RuntimeSection section;
  return topo::os_threads();
}

struct ThreadCounts {
  std::uint64_t ended = 0, forked = 0;
};
ThreadCounts count_threads(const Runtime& runtime) {
  ThreadCounts counts;
  // All that have ended before all that were forked: equal numbers say that none was alive in between.
  for (std::uint32_t r = 0; r < runtime.ranks(); ++r) counts.ended += runtime.counters(Rank{r})[row_threads];
  for (std::uint32_t r = 0; r < runtime.ranks(); ++r) counts.forked += runtime.counters(Rank{r})[row_forks];
  return counts;
}

/// The root thread: waits until it is the only one.
void await_threads(void*) {
  const std::uint64_t roots_before = Runtime::current()->roots() - 1;  // no other root starts meanwhile
  kasane::counting_semaphore never(0);
  for (;;) {
    const ThreadCounts counts = count_threads(*Runtime::current());
    if (counts.ended == counts.forked + roots_before) return;
    (void)never.try_acquire_for(std::chrono::nanoseconds(kLookAgainNs));
  }
}

void await_all(const std::vector<pid_t>& of_runtime) {
  Runtime& runtime = *Runtime::current();
  for (;;) {
    if (raw(runtime.rank()) == 0) runtime.run_root(await_threads, nullptr);
    // Callers of the pool (ult/outside_callers.h) may have come and gone.
    BoundThreads* const bound = SharedProcess::current_threads();
    const bool alone = bound == nullptr || bound->running_anywhere() == 1;  // this one
    const auto programs = std::ranges::count_if(
        os_threads(), [&](pid_t thread) { return !std::ranges::binary_search(of_runtime, thread); });
    if (alone && programs <= static_cast<std::ptrdiff_t>(runtime.pool().outside_callers())) return;
    ::usleep(kLookAgainNs / 1000);
  }
}

[[noreturn]] void end_main_thread() {
  ult::ForcedUnwind::to(reinterpret_cast<const void*>(&run_program), "pthread_exit");
}

/// Returns on OS threads that are not ours.
void end_own_thread(void* value) {
  if (process().rank == kNoRank || phase() != diagnostics::Phase::running) return;
  if (ult::Pool::self() != kNoSlot) ult::Pool::end_by_unwinding("pthread_exit");
  if (BoundThreads::here() != nullptr) BoundThreads::exit(value);
  if (g_main_thread == ::gettid()) end_main_thread();
}

}  // namespace

int run_program(ProgramMain main, int argc, char** argv, char** environment) {
  const std::vector<pid_t> of_runtime = os_threads();
  g_main_thread = ::gettid();
  std::optional<CancelledByLibc> by_libc;
  if (Cancellation::here() == nullptr) by_libc.emplace();
  try {
    return main(argc, argv, environment);
  } catch (abi::__forced_unwind&) {  // libc's of a cancelled main must not leave this block
    g_main_thread = 0;
    await_all(of_runtime);
    std::exit(0);
  }
}

}  // namespace kasane::runtime

extern "C" [[gnu::visibility("default")]] void pthread_exit(void* value) {
  kasane::runtime::end_own_thread(value);
  static constinit kasane::runtime::Hidden<void (*)(void*)> libcs("pthread_exit");
  libcs.get()(value);
  __builtin_unreachable();
}

extern "C" [[gnu::visibility("default")]] void thrd_exit(int value) {
  kasane::runtime::end_own_thread(reinterpret_cast<void*>(static_cast<std::intptr_t>(value)));
  static constinit kasane::runtime::Hidden<void (*)(int)> libcs("thrd_exit");
  libcs.get()(value);
  __builtin_unreachable();
}
