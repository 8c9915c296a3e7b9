// SPDX-License-Identifier: Apache-2.0
#include "base/call_selector.h"

#include <signal.h>
#include <sys/syscall.h>

constinit thread_local std::uint16_t kasane_call_selector = 0;
constinit thread_local std::uint64_t kasane_deferred_signals = 0;

namespace kasane {

void note_deferred_signal(int signal) noexcept {
  __atomic_fetch_or(&kasane_deferred_signals, std::uint64_t{1} << (signal - 1), __ATOMIC_RELAXED);
}

std::uint64_t hide_deferred_signals() noexcept {
  return __atomic_exchange_n(&kasane_deferred_signals, 0, __ATOMIC_RELAXED);
}
void show_deferred_signals(std::uint64_t hidden) noexcept {
  __atomic_fetch_or(&kasane_deferred_signals, hidden, __ATOMIC_RELAXED);
}

// A handler that runs between any two steps finds no signals noted, and leaves these.
void run_deferred_signals() noexcept {
  const Calls before = calls();
  set_calls(Calls::open);  // the call below passes
  long result;
  asm volatile(
      "movl $8, %%r10d\n\t"  // the bytes of a mask
      "syscall"
      : "=a"(result)
      : "0"(SYS_rt_sigprocmask), "D"(SIG_UNBLOCK), "S"(&kasane_deferred_signals), "d"(nullptr)
      : "rcx", "r10", "r11", "memory");
  kasane_deferred_signals = 0;
  set_calls(before);
}

}  // namespace kasane
