// SPDX-License-Identifier: Apache-2.0
// System calls of user code, caught before the kernel sees them (Syscall User Dispatch, Linux 5.11), so that
// those on global memory can be prepared. No privileges are needed.
//
//   user code: syscall ─► SIGSYS ─► handler, on the alternate stack
//      ├─ concerns() is false ─► the thread goes on in kasane_calls_pass: the same call, which passes; then
//      │                         behind the caught instruction
//      ├─ concerns() is true ──► the thread goes on in kasane_calls_carry_out, on its own stack as in any
//      │                         function that it calls: carry_out(call), then behind the instruction
//      └─ signal masks, handlers' returns, new threads ─► by the handler itself
//
// The handler only chooses, so a call that waits is interrupted by signals as usual, and the program's
// handlers run outside of ours. A mask of the program's never blocks what the runtime needs (kNeverBlocked).
//
// The kernel switches it on for one OS thread at a time, and does not inherit it. So the OS threads that run
// user code are known (ProgramThread). Those that exist when catching begins are told by a SIGSYS.
//
// Thread safety: any thread. Invariant: a thread that is switched on does not block SIGSYS.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace kasane::traps {

/// A caught call. The assembly knows the offsets of the fields.
struct CaughtCall {
  long number;
  long argument[6];
  std::uint64_t rip, rsp;  ///< behind the caught instruction
  std::uint64_t rbx;
  long result;
};

struct CallRules {
  /// Whether the runtime carries the call out. Runs in a signal handler.
  bool (*concerns)(const CaughtCall&) noexcept;
  /// Carries it out; returns what the kernel would: -errno for an error. Runs on the stack of the thread that
  /// made the call, which may be in the middle of any library function: no switch to another user-level
  /// thread, no stdio.
  long (*carry_out)(CaughtCall&) noexcept;
};

/// Signals that no mask of the program's may block: faults of the space, and caught calls.
inline constexpr std::array kNeverBlocked{SIGSEGV, SIGBUS, SIGSYS};

/// From now on calls that are caught go by the rules. Installs the handler of SIGSYS; a SIGSYS that is no
/// caught call (seccomp) goes to `other`.
Result<void> rule_caught_calls(const CallRules&, void (*other)(int, siginfo_t*, void*)) noexcept;
/// Whether catch_calls_of_program() can work here. Before the calling thread's calls are caught.
[[nodiscard]] bool calls_can_be_caught() noexcept;
/// From now on caught calls pass.
void pass_caught_calls() noexcept;
/// From now on the calls of all ProgramThreads are caught where their selector says so
/// (base/call_selector.h). After rule_caught_calls(). Returns when no thread is in a call that was not
/// caught, or after a second. False: this kernel cannot; errno says why.
bool catch_calls_of_program() noexcept;

/// As catch_calls_of_program(), in a child of fork() for its only thread.
bool catch_calls_of_child() noexcept;

/// The calling OS thread may run user code while the object lives. Its selector stays.
class ProgramThread {
 public:
  ProgramThread() noexcept;
  ~ProgramThread();
  ProgramThread(const ProgramThread&) = delete;
  ProgramThread& operator=(const ProgramThread&) = delete;

 private:
  friend bool catch_calls_of_program() noexcept;
  const int id_;
  ProgramThread *next_, *before_ = nullptr;  ///< in the list of all
};

/// The call itself, from code that is never caught: the kernel's answer, -errno for an error.
extern "C" [[gnu::visibility("hidden")]] long kasane_calls_issue(long number,
                                                                 const long (&arguments)[6]) noexcept;
inline long issue_call(long number, const long (&arguments)[6]) noexcept {
  return kasane_calls_issue(number, arguments);
}
/// Copies bytes that a program named, perhaps wrongly. False: some are not there; what was copied before them
/// stays. Memory of the space must be allocated.
[[nodiscard]] bool copy_named(void* to, const void* from, std::size_t bytes) noexcept;

/// For the handler of faults: the fault was copy_named()'s, which returns false when the thread goes on.
[[nodiscard]] bool end_named_copy(void* ucontext) noexcept;

/// As sigaction, with flags SA_SIGINFO | SA_ONSTACK | SA_NODEFER, and SA_RESTART if it restarts calls; all
/// signals but those of crashes are held back meanwhile, and the handler's return is never caught. libc's own
/// signals, too. False: errno says why.
bool install_own_handler(int signal, void (*handler)(int, siginfo_t*, void*), bool restarts = true) noexcept;

}  // namespace kasane::traps
