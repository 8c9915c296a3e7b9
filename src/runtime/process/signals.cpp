// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/signals.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/call_selector.h"
#include "base/raw_call.h"
#include "comm/bootstrap/signals_for_main.h"
#include "runtime/language/cancellation.h"
#include "runtime/process/action_order.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"
#include "traps/signal_dispatch.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);

Sigaction libc_sigaction() noexcept {
  static constinit Hidden<Sigaction> libcs("sigaction");
  return libcs.get();
}

/// A lock for a few instructions. All signals are blocked, so no handler of the same thread waits for it.
class SignalLock {
 public:
  explicit SignalLock(std::atomic_flag& flag) noexcept : flag_(flag) {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
    // acquire: see what the last holder stored
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  SignalLock(const SignalLock&) = delete;
  SignalLock& operator=(const SignalLock&) = delete;
  ~SignalLock() {
    flag_.clear(std::memory_order_release);  // release: the next holder sees our stores
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  std::atomic_flag& flag_;
  sigset_t mask_;
};

/// A struct sigaction that a fault handler may read while a thread changes it.
class Remembered {
 public:
  void get(struct sigaction& out) noexcept {
    const SignalLock lock(locked_);
    out = action_;
  }
  void exchange(const struct sigaction* action, struct sigaction* old) noexcept {
    const SignalLock lock(locked_);
    if (old != nullptr) *old = action_;
    if (action != nullptr) action_ = *action;
  }

 private:
  std::atomic_flag locked_;
  struct sigaction action_ = {};
};

Remembered g_segv, g_bus, g_sys;
std::atomic<bool> g_guarded{false}, g_sys_guarded{false};

/// Of the action in g_sys, what a handler of SIGSYS may read: a filter of the program's (seccomp) may turn
/// any call into a SIGSYS, those of a SignalLock included.
std::atomic<sighandler_t> g_sys_handler{SIG_DFL};
std::atomic<bool> g_sys_takes_info{false};

void note_sys(const struct sigaction& action) noexcept {
  g_sys_takes_info.store((action.sa_flags & SA_SIGINFO) != 0, std::memory_order_relaxed);
  g_sys_handler.store(action.sa_handler, std::memory_order_release);  // release: with the flag
}

Remembered* guarded(int signal) noexcept {
  // acquire: guard_fault_signals() has stored what the program had before.
  if (!g_guarded.load(std::memory_order_acquire)) return nullptr;
  if (signal == SIGSYS) return g_sys_guarded.load(std::memory_order_acquire) ? &g_sys : nullptr;
  return signal == SIGSEGV ? &g_segv : signal == SIGBUS ? &g_bus : nullptr;
}

void never_block(sigset_t& mask) noexcept {
  for (const int signal : traps::kNeverBlocked) ::sigdelset(&mask, signal);
}

/// A mask of the program's, without what the runtime needs.
class ProgramMask {
 public:
  explicit ProgramMask(const sigset_t* named) noexcept : named_(named) {
    if (named == nullptr) return;
    mask_ = *named;
    never_block(mask_);
  }
  [[nodiscard]] const sigset_t* get() const noexcept { return named_ != nullptr ? &mask_ : nullptr; }

 private:
  const sigset_t* named_;
  sigset_t mask_;
};

/// Runs the program's handler as the kernel would: with the mask of the interrupted code and the handler's
/// own. Faults of the space are served meanwhile.
class HandlerMask {
 public:
  HandlerMask(int signal, const struct sigaction& action, const void* context) noexcept {
    sigset_t mask = static_cast<const ucontext_t*>(context)->uc_sigmask;
    if ((action.sa_flags & SA_NODEFER) == 0) ::sigaddset(&mask, signal);
    for (int s = 1; s < _NSIG; ++s) {
      if (::sigismember(&action.sa_mask, s) == 1) ::sigaddset(&mask, s);
    }
    never_block(mask);
    ::pthread_sigmask(SIG_SETMASK, &mask, &old_);
  }
  HandlerMask(const HandlerMask&) = delete;
  HandlerMask& operator=(const HandlerMask&) = delete;
  ~HandlerMask() { ::pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

/// A sanitizer's handler is not the program's: our report replaces it.
bool is_sanitizers(const struct sigaction& action) noexcept {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(action.sa_handler), &info) == 0 || info.dli_fname == nullptr)
    return false;
  return std::strstr(info.dli_fname, "/libasan.") != nullptr ||
         std::strstr(info.dli_fname, "/libtsan.") != nullptr;
}

// ---- all other signals ----

/// What the program has installed for a signal, for sigaction(), and what our handler calls.
struct Installed {
  Remembered action;
  /// The handler's address and, above the addresses of user code, its flags. 0: the default action.
  std::atomic<std::uint64_t> call{0};
};
constexpr std::uint64_t kTakesInfo = std::uint64_t{1} << 63, kOnce = std::uint64_t{1} << 62,
                        kRestarts = std::uint64_t{1} << 61;
Installed g_installed[_NSIG];
constinit std::atomic<void (*)(int, const struct sigaction&) noexcept> g_tell{nullptr};

/// Since the service thread has asked. Stores of a handler, like others, are written back at an edge, and
/// some threads have none for long.
std::atomic<bool> g_handled{false};

std::atomic<bool> g_ended{false};

std::uint64_t packed(const struct sigaction& action) noexcept {
  const auto address = std::bit_cast<std::uint64_t>(action.sa_handler);
  return address | ((action.sa_flags & SA_SIGINFO) != 0 ? kTakesInfo : 0) |
         ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 ? kOnce : 0) |
         ((action.sa_flags & SA_RESTART) != 0 ? kRestarts : 0);
}

/// The instruction that raised it would run again, or the thread has no more to run.
bool can_wait(int signal, const siginfo_t& info) noexcept {
  if (signal == SIGABRT) return false;
  return info.si_code <= 0 || (signal != SIGILL && signal != SIGFPE && signal != SIGTRAP);
}

/// The signal is blocked for the interrupted code, and queued for this OS thread again. False: the kernel has
/// no memory for that.
bool defer(int signal, siginfo_t* info, ucontext_t& interrupted) noexcept {
  const std::uint64_t mask = std::uint64_t{1} << (signal - 1);
  // First: the program's flags may let the signal interrupt its own handler.
  traps::issue_call(SYS_rt_sigprocmask, {SIG_BLOCK, reinterpret_cast<long>(&mask), 0, sizeof mask, 0, 0});
  const long process = traps::issue_call(SYS_getpid, {}), thread = traps::issue_call(SYS_gettid, {});
  const auto queue = [&] {
    return traps::issue_call(SYS_rt_tgsigqueueinfo,
                             {process, thread, signal, reinterpret_cast<long>(info), 0, 0});
  };
  long result = queue();
  for (int tries = 0; result == -EAGAIN && tries < 1000; ++tries) {
    traps::issue_call(SYS_sched_yield, {});
    result = queue();
  }
  if (result != 0) return false;
  note_deferred_signal(signal);
  // All: a signal that was deferred while this handler began is not in the mask that the kernel has saved.
  const std::uint64_t waiting = deferred_signals();
  std::uint64_t after;
  std::memcpy(&after, &interrupted.uc_sigmask, sizeof after);
  after |= waiting;
  std::memcpy(&interrupted.uc_sigmask, &after, sizeof after);
  return true;
}

/// Whether signals from elsewhere do nothing here (comm/bootstrap/signals_for_main.h).
bool is_for_other_rank(int signal) noexcept {
  return comm::for_main(signal) && process().rank != kNoRank && !process().main_here;
}

/// SIG_DFL, as the kernel has it. Under mpirun the other signals for main end a rank that only serves.
struct sigaction standard_action(int signal) noexcept {
  const bool user = signal == SIGUSR1 || signal == SIGUSR2;
  constexpr struct sigaction kDefault = {};
  const bool passes = is_for_other_rank(signal) && (process().status != nullptr || user);
  return passes ? comm::action_for_main() : kDefault;
}

/// The action that sigaction() has named: all ranks have it when this returns. Nothing in jobs where each
/// rank runs main, and where the runtime or a library of its installs a handler.
void tell_all_ranks(int signal, const struct sigaction& action) noexcept {
  // acquire: what tells them
  if (const auto tell = g_tell.load(std::memory_order_acquire); tell != nullptr && calls() != Calls::passed)
    tell(signal, action);
}

void restore_default_action(int signal) noexcept {
  const struct sigaction standard = standard_action(signal), named = {};
  libc_sigaction()(signal, &standard, nullptr);
  tell_all_ranks(signal, named);
}

void call_handler(int signal, siginfo_t* info, void* context) noexcept {
  Installed& installed = g_installed[signal];
  std::uint64_t call = installed.call.load(std::memory_order_acquire);  // acquire: what install() did before
  if ((call & kOnce) != 0 && installed.call.compare_exchange_strong(call, 0)) restore_default_action(signal);
  const std::uint64_t handler = call & ~(kTakesInfo | kOnce | kRestarts);
  if (handler == 0) {  // another thread has taken it, or the program has taken it back
    traps::issue_call(
        SYS_tgkill, {traps::issue_call(SYS_getpid, {}), traps::issue_call(SYS_gettid, {}), signal, 0, 0, 0});
    return;
  }
  ult::Pool::note_handler((call & kRestarts) != 0);
  const std::uint64_t waiting = hide_deferred_signals();
  {
    const ult::UserCode user_code;
    if ((call & kTakesInfo) != 0)
      std::bit_cast<void (*)(int, siginfo_t*, void*)>(handler)(signal, info, context);
    else
      std::bit_cast<sighandler_t>(handler)(signal);
  }
  show_deferred_signals(waiting);
  g_handled.store(true, std::memory_order_release);  // release: the handler's stores
}

/// Installed for all signals for which the program has a handler.
void on_signal_of_program(int signal, siginfo_t* info, void* context) {
  if (g_ended.load(std::memory_order_relaxed)) return;  // relaxed: a handler that has begun is not stopped
  const int saved = errno;
  if (is_for_other_rank(signal) && comm::sender_of(*info) != comm::Sender::job)
    return comm::on_signal_for_main(signal, info, context);
  if (calls() != Calls::passed || !can_wait(signal, *info) ||
      !defer(signal, info, *static_cast<ucontext_t*>(context)))
    call_handler(signal, info, context);
  errno = saved;
}

bool is_handler(const struct sigaction& action) noexcept {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

/// What sigaction() says of the kernel's action.
struct sigaction seen_by_program(Installed& installed, const struct sigaction& kernels) noexcept {
  struct sigaction seen = kernels;
  if ((kernels.sa_flags & SA_SIGINFO) != 0 && kernels.sa_sigaction == on_signal_of_program)
    installed.action.get(seen);
  else if (comm::is_action_for_main(kernels))
    seen = {};
  return seen;
}

int install_behind_ours(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  if (signal <= 0 || signal >= _NSIG) return libc_sigaction()(signal, action, old);
  Installed& installed = g_installed[signal];
  struct sigaction before;
  if (libc_sigaction()(signal, nullptr, &before) != 0) return -1;
  before = seen_by_program(installed, before);
  if (action != nullptr) {
    struct sigaction ours = *action;
    never_block(ours.sa_mask);
    if (is_handler(ours)) {
      installed.action.exchange(&ours, nullptr);
      installed.call.store(packed(ours), std::memory_order_release);  // release: before its first signal
      ours.sa_sigaction = on_signal_of_program;
      ours.sa_flags = (ours.sa_flags | SA_SIGINFO | SA_ONSTACK) & ~static_cast<int>(SA_RESETHAND);
    } else if (ours.sa_handler == SIG_DFL) {
      ours = standard_action(signal);
    }
    if (libc_sigaction()(signal, &ours, nullptr) != 0) return -1;
  }
  if (old != nullptr) *old = before;
  return 0;
}

int install(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  if (Remembered* kept = guarded(signal)) {
    kept->exchange(action, old);
    if (signal == SIGSYS && action != nullptr) note_sys(*action);
    return 0;
  }
  // acquire: see guarded(). Before the start nothing needs more, and a handler set then is a library's.
  if (g_guarded.load(std::memory_order_acquire)) return install_behind_ours(signal, action, old);
  if (action == nullptr) return libc_sigaction()(signal, action, old);
  struct sigaction without = *action;
  never_block(without.sa_mask);
  return libc_sigaction()(signal, &without, old);
}

bool has(int signal, const struct sigaction& action) noexcept {
  constexpr int kRestorer = 0x04000000;  // libc's
  struct sigaction now = {};
  return install(signal, nullptr, &now) == 0 && now.sa_handler == action.sa_handler &&
         ((now.sa_flags ^ action.sa_flags) & ~kRestorer) == 0 &&
         std::memcmp(&now.sa_mask, &action.sa_mask, sizeof(std::uint64_t)) == 0;
}

/// sigaction() of the program. What is installed already is not installed again: it costs no messages, and
/// what another rank installs meanwhile stays.
int install_in_job(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  const ActionStep step =
      action != nullptr ? next(ActionEvent::named, has(signal, *action), 0) : ActionStep{};
  if (install(signal, step.install ? action : nullptr, old) != 0) return -1;
  if (step.tell) tell_all_ranks(signal, *action);
  return 0;
}

std::atomic_flag g_taking;
std::uint64_t g_numbers[_NSIG];  ///< of the actions, under g_taking (signal_actions.h)

/// What signal() and its like install.
sighandler_t install(int signal, sighandler_t handler, int flags) noexcept {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigemptyset(&action.sa_mask);
  if ((flags & SA_RESTART) != 0) ::sigaddset(&action.sa_mask, signal);
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  return install_in_job(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

}  // namespace

void guard_fault_signals() noexcept {
  if (g_guarded.load(std::memory_order_relaxed)) return;  // relaxed: called at the start, by one thread
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction before = {};
    // By the function that the program would call: under ThreadSanitizer the kernel knows only a wrapper of
    // the handler.
    if (libc_sigaction()(signal, nullptr, &before) != 0 || is_sanitizers(before)) continue;
    (signal == SIGSEGV ? g_segv : g_bus).exchange(&before, nullptr);
  }
  g_guarded.store(true, std::memory_order_release);  // release: see guarded()
}

void guard_call_signal() noexcept {
  struct sigaction before = {};
  if (g_sys_guarded.load(std::memory_order_relaxed)) return;  // relaxed: called at the start, by one thread
  if (libc_sigaction()(SIGSYS, nullptr, &before) == 0) {
    g_sys.exchange(&before, nullptr);
    note_sys(before);
  }
  g_sys_guarded.store(true, std::memory_order_release);  // release: see guarded()
}

void let_faults_through() noexcept {
  sigset_t needed;
  ::sigemptyset(&needed);
  for (const int signal : traps::kNeverBlocked) ::sigaddset(&needed, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &needed, nullptr);
}

void call_other_sigsys(int signal, siginfo_t* info, void* context) {
  const sighandler_t handler = g_sys_handler.load(std::memory_order_acquire);  // acquire: see note_sys()
  if (handler != SIG_DFL && handler != SIG_IGN) {
    if (!g_sys_takes_info.load(std::memory_order_relaxed)) return handler(signal);
    return std::bit_cast<void (*)(int, siginfo_t*, void*)>(handler)(signal, info, context);
  }
  const struct sigaction standard = {};
  traps::raw_sigaction(signal, &standard, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
}

void tell_actions_by(void (*tell)(int signal, const struct sigaction&) noexcept) noexcept {
  g_tell.store(tell, std::memory_order_release);  // release: what `tell` uses
}

void take_action(int signal, const struct sigaction& action, std::uint64_t number) noexcept {
  const SignalLock lock(g_taking);
  const ActionStep step = next(ActionEvent::told, false, g_numbers[signal], number);
  g_numbers[signal] = step.number;
  if (step.install) install(signal, &action, nullptr);
}

void end_signal_handlers() noexcept { g_ended.store(true, std::memory_order_relaxed); }

bool handlers_have_run() noexcept {
  // acquire: what they stored. relaxed: a hint, which costs no other CPU its line.
  return g_handled.load(std::memory_order_relaxed) && g_handled.exchange(false, std::memory_order_acquire);
}

bool call_program_fault_handler(int signal, siginfo_t* info, void* context) noexcept {
  Remembered* kept = guarded(signal);
  if (kept == nullptr) return false;
  struct sigaction action;
  kept->get(action);
  // An ignored fault would occur again at once; the kernel ends the process then, and so does this handler.
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return false;
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    const struct sigaction standard = {};
    kept->exchange(&standard, nullptr);
  }
  const HandlerMask mask(signal, action, context);
  const ult::UserCode user_code;  // which may leave by longjmp
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
  return true;
}

}  // namespace kasane::runtime

extern "C" [[gnu::visibility("default")]] int sigaction(int signal, const struct sigaction* action,
                                                        struct sigaction* old) noexcept {
  return kasane::runtime::install_in_job(signal, action, old);
}

extern "C" [[gnu::visibility("default")]] sighandler_t signal(int signal, sighandler_t handler) noexcept {
  return kasane::runtime::install(signal, handler, SA_RESTART);  // BSD semantics, as glibc's signal()
}

/// signal() of programs that are compiled for POSIX or ISO C alone (-std=c11).
extern "C" [[gnu::visibility("default")]] sighandler_t __sysv_signal(int signal,
                                                                     sighandler_t handler) noexcept {
  return kasane::runtime::install(signal, handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER);
}

// Masks of the program's, for good or for the time of a wait.
// A sanitizer has its own.

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

extern "C" [[gnu::visibility("default")]] int pthread_sigmask(int how, const sigset_t* set,
                                                              sigset_t* old) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(int, const sigset_t*, sigset_t*)> libcs("pthread_sigmask");
  if (how == SIG_UNBLOCK) return libcs.get()(how, set, old);
  return libcs.get()(how, kasane::runtime::ProgramMask(set).get(), old);
}

extern "C" [[gnu::visibility("default")]] int sigprocmask(int how, const sigset_t* set,
                                                          sigset_t* old) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(int, const sigset_t*, sigset_t*)> libcs("sigprocmask");
  if (how == SIG_UNBLOCK) return libcs.get()(how, set, old);
  return libcs.get()(how, kasane::runtime::ProgramMask(set).get(), old);
}

extern "C" [[gnu::visibility("default")]] int sigaltstack(const stack_t* wanted, stack_t* old) noexcept {
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto kept = kasane::traps::AltStack::of_program(wanted, old, frame);
  return static_cast<int>(kasane::as_libc(
      kept ? *kept
           : kasane::raw_call(SYS_sigaltstack, reinterpret_cast<long>(wanted), reinterpret_cast<long>(old))));
}

extern "C" [[gnu::visibility("default")]] int sigsuspend(const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(const sigset_t*)> libcs("sigsuspend");
  return kasane::runtime::call_in_point([&] { return libcs.get()(kasane::runtime::ProgramMask(set).get()); });
}

extern "C" [[gnu::visibility("default")]] int ppoll(pollfd* files, nfds_t n, const timespec* limit,
                                                    const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(pollfd*, nfds_t, const timespec*, const sigset_t*)> libcs(
      "ppoll");
  return kasane::runtime::call_in_point(
      [&] { return libcs.get()(files, n, limit, kasane::runtime::ProgramMask(set).get()); });
}

extern "C" [[gnu::visibility("default")]] int pselect(int n, fd_set* in, fd_set* out, fd_set* other,
                                                      const timespec* limit, const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(int, fd_set*, fd_set*, fd_set*, const timespec*,
                                                   const sigset_t*)>
      libcs("pselect");
  return kasane::runtime::call_in_point(
      [&] { return libcs.get()(n, in, out, other, limit, kasane::runtime::ProgramMask(set).get()); });
}

extern "C" [[gnu::visibility("default")]] int epoll_pwait(int epoll, epoll_event* events, int most, int limit,
                                                          const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(int, epoll_event*, int, int, const sigset_t*)> libcs(
      "epoll_pwait");
  return kasane::runtime::call_in_point(
      [&] { return libcs.get()(epoll, events, most, limit, kasane::runtime::ProgramMask(set).get()); });
}

#endif
