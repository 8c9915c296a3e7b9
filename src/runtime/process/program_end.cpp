// SPDX-License-Identifier: Apache-2.0
// What ends a process in a plain program ends the job: exit() and its relatives, on whatever thread and rank.
//
//   exit(n)                    what atexit() registered is rank 0's: a thread of another rank asks rank 0 to
//                              call exit(), and never goes on
//   _exit, _Exit, quick_exit   end the process at once; the supervisor ends the others, with the same code
//
// In a sanitizer's build these functions are the sanitizer's.
//
// Thread safety: as the functions that are replaced. Where two threads call exit(), the second one waits for
// ever, as in glibc 2.41.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "runtime/process/coverage.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"

namespace {

using kasane::runtime::note_end_of_process;
using kasane::runtime::process;
using kasane::ult::Pool;

bool job_runs() noexcept {
  return process().rank != kasane::kNoRank && kasane::runtime::phase() == kasane::diagnostics::Phase::running;
}

std::uint64_t caller() noexcept {
  const std::uint64_t thread = Pool::id().value;
  return thread != 0 ? thread : static_cast<std::uint64_t>(::syscall(SYS_gettid));
}

[[noreturn]] void leave_to_rank_0(int code) noexcept {
  kasane::runtime::Runtime::current()->ask_exit(code);
  for (;;) {
    // A signal handler runs on top of a thread and cannot leave it.
    const bool on_own_stack = kasane::runtime::in_space(__builtin_frame_address(0));
    if (Pool::self() == kasane::kNoSlot || !on_own_stack)
      ::pause();
    else
      Pool::suspend([](void*, kasane::SlotId) {}, nullptr);  // nothing resumes it
  }
}

/// Returns for one caller, again if a function of atexit() calls exit().
void be_the_one_that_exits() noexcept {
  static std::atomic<std::uint64_t> first{0};
  std::uint64_t other = 0;
  // relaxed: it decides only who goes on
  if (first.compare_exchange_strong(other, caller(), std::memory_order_relaxed) || other == caller()) return;
  for (;;) ::pause();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void exit(int code) noexcept {
  if (job_runs() && !process().main_here) leave_to_rank_0(code);
  if (process().rank != kasane::kNoRank) be_the_one_that_exits();
  static constinit kasane::runtime::Hidden<void (*)(int)> libcs("exit");
  libcs.get()(code);
  __builtin_unreachable();
}

extern "C" [[gnu::visibility("default")]] void _exit(int code) {
  note_end_of_process();
  kasane::runtime::write_coverage();
  for (;;) ::syscall(SYS_exit_group, code);
}
extern "C" [[gnu::visibility("default")]] void _Exit(int code) noexcept { ::_exit(code); }

extern "C" [[gnu::visibility("default")]] void quick_exit(int code) noexcept {
  note_end_of_process();
  static constinit kasane::runtime::Hidden<void (*)(int)> libcs("quick_exit");
  libcs.get()(code);
  __builtin_unreachable();
}

#endif
