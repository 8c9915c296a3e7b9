// SPDX-License-Identifier: Apache-2.0
// What the calling OS thread runs: user code or the runtime. Two bytes of each OS thread say it. The kernel
// reads the first at each system call of a thread for which catching is switched on (Syscall User Dispatch;
// traps/caught_calls.h), the handler of the program's signals the second (runtime/process/signals.h).
//
//             system calls   signals   where
//   caught    are caught     run       user code: a buffer may lie in global memory that is absent
//   passed    pass           wait      the runtime: workers' own loops, RuntimeSections, fault handlers. It
//                                      may hold what a fault of the program's handler waits for
//   open      pass           run       a worker that sleeps; OS threads that the runtime does not know
//
// The runtime never passes the kernel addresses of V (rule 10), so `caught` there would be slow for system
// calls; but a handler of the program's must not interrupt it where it holds a block, a lock or a lane.
//
// A signal of the program's that waits is blocked for the OS thread and queued for it again (defer_signal());
// a thread that leaves the runtime unblocks it, and the kernel delivers it.
//
// Thread safety: each OS thread has its own bytes. The accesses are assembly, since a compiler may keep the
// address of a thread_local over a switch that continues in another OS thread (rule 13). Async-signal-safe.
#pragma once

#include <cstdint>

extern "C" {
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint16_t kasane_call_selector;
/// Bit s - 1: signal s waits until the OS thread leaves the runtime.
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint64_t kasane_deferred_signals;
}

namespace kasane {

/// The low byte is the kernel's: SYSCALL_DISPATCH_FILTER_ALLOW and _BLOCK. The high one: signals wait.
enum class Calls : std::uint16_t { open = 0, caught = 1, passed = 0x100 };

inline void set_calls(Calls calls) noexcept {
  std::uintptr_t at;
  asm volatile(
      "movq kasane_call_selector@gottpoff(%%rip), %0\n\t"
      "movw %w1, %%fs:(%0)"
      : "=&r"(at)
      : "r"(static_cast<std::uint32_t>(calls))
      : "memory");
}
[[nodiscard]] inline Calls calls() noexcept {
  std::uintptr_t at;
  std::uint32_t calls;
  asm volatile(
      "movq kasane_call_selector@gottpoff(%%rip), %0\n\t"
      "movzwl %%fs:(%0), %1"
      : "=&r"(at), "=r"(calls)
      :
      : "memory");
  return Calls{static_cast<std::uint16_t>(calls)};
}

[[nodiscard]] inline std::uint64_t deferred_signals() noexcept {
  std::uint64_t signals;
  asm volatile(
      "movq kasane_deferred_signals@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=&r"(signals)
      :
      : "memory");
  return signals;
}
/// The handler of that signal waits; the caller has blocked it for the OS thread, and queued it again.
void note_deferred_signal(int signal) noexcept;
/// Those that wait where a handler interrupts: it must not unblock them. The others wait again at its end.
[[nodiscard]] std::uint64_t hide_deferred_signals() noexcept;
void show_deferred_signals(std::uint64_t hidden) noexcept;
/// Unblocks them: their handlers run before it returns. The caller may be interrupted.
[[gnu::noinline]] void run_deferred_signals() noexcept;

/// From the runtime to what was before. Signals that waited are handled if they may run there.
inline void leave_runtime(Calls before) noexcept {
  set_calls(before);
  // After the store: a signal that comes between the two runs at once.
  if (deferred_signals() != 0 && before != Calls::passed) [[unlikely]]
    run_deferred_signals();
}

/// The same in a handler of the runtime's own, which blocks the program's signals: they stay blocked until it
/// returns.
class PassedInHandler {
 public:
  PassedInHandler() noexcept { set_calls(Calls::passed); }
  ~PassedInHandler() { set_calls(before_); }
  PassedInHandler(const PassedInHandler&) = delete;
  PassedInHandler& operator=(const PassedInHandler&) = delete;

 private:
  const Calls before_ = calls();
};

/// The runtime runs in a scope. The OS thread may be another one at its end.
class PassedCalls {
 public:
  PassedCalls() noexcept { set_calls(Calls::passed); }
  ~PassedCalls() { leave_runtime(before_); }
  PassedCalls(const PassedCalls&) = delete;
  PassedCalls& operator=(const PassedCalls&) = delete;

 private:
  const Calls before_ = calls();
};

/// The runtime waits in a scope, and holds nothing meanwhile: the program's signal handlers may run.
class OpenForSignals {
 public:
  OpenForSignals() noexcept { leave_runtime(Calls::open); }
  ~OpenForSignals() { set_calls(before_); }
  OpenForSignals(const OpenForSignals&) = delete;
  OpenForSignals& operator=(const OpenForSignals&) = delete;

 private:
  const Calls before_ = calls();
};

}  // namespace kasane
