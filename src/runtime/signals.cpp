// SPDX-License-Identifier: Apache-2.0
#include "runtime/signals.h"

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
#include <cstring>

#include "base/call_selector.h"
#include "mem/caught_calls.h"
#include "mem/signal_dispatch.h"
#include "runtime/hidden.h"

namespace kasane::runtime {
namespace {

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);

Sigaction libc_sigaction() noexcept {
  static constinit Hidden<Sigaction> libcs("sigaction");
  return libcs.get();
}

/// A struct sigaction that a fault handler may read while a thread changes it.
class Remembered {
 public:
  void get(struct sigaction& out) noexcept {
    Lock lock(*this);
    out = action_;
  }
  void exchange(const struct sigaction* action, struct sigaction* old) noexcept {
    Lock lock(*this);
    if (old != nullptr) *old = action_;
    if (action != nullptr) action_ = *action;
  }

 private:
  /// Held for a copy of 152 bytes with all signals blocked, so that no handler of the same thread can wait
  /// for it.
  class Lock {
   public:
    explicit Lock(Remembered& r) noexcept : owner_(r) {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
      // acquire: see what the last holder stored
      while (owner_.locked_.test_and_set(std::memory_order_acquire)) {
      }
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() {
      owner_.locked_.clear(std::memory_order_release);  // release: the next holder sees our stores
      ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    }

   private:
    Remembered& owner_;
    sigset_t mask_;
  };

  std::atomic_flag locked_;
  struct sigaction action_ = {};
};

Remembered g_segv, g_bus, g_sys;
std::atomic<bool> g_guarded{false}, g_sys_guarded{false};

/// Of the action in g_sys, what a handler of SIGSYS may read: a filter of the program's (seccomp) may turn
/// any call into a SIGSYS, those of a Lock included.
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
  for (const int signal : mem::kNeverBlocked) ::sigdelset(&mask, signal);
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

int install(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  if (Remembered* kept = guarded(signal)) {
    kept->exchange(action, old);
    if (signal == SIGSYS && action != nullptr) note_sys(*action);
    return 0;
  }
  if (action == nullptr) return libc_sigaction()(signal, action, old);
  struct sigaction on_stack = *action;
  never_block(on_stack.sa_mask);
  // relaxed: before the start nothing needs the flag, and a handler set then is set by one thread.
  if (g_guarded.load(std::memory_order_relaxed) && on_stack.sa_handler != SIG_DFL &&
      on_stack.sa_handler != SIG_IGN)
    on_stack.sa_flags |= SA_ONSTACK;
  return libc_sigaction()(signal, &on_stack, old);
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
  for (const int signal : mem::kNeverBlocked) ::sigaddset(&needed, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &needed, nullptr);
}

void call_other_sigsys(int signal, siginfo_t* info, void* context) {
  const sighandler_t handler = g_sys_handler.load(std::memory_order_acquire);  // acquire: see note_sys()
  if (handler != SIG_DFL && handler != SIG_IGN) {
    if (!g_sys_takes_info.load(std::memory_order_relaxed)) return handler(signal);
    return std::bit_cast<void (*)(int, siginfo_t*, void*)>(handler)(signal, info, context);
  }
  const struct sigaction standard = {};
  mem::raw_sigaction(signal, &standard, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
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
  set_calls(Calls::caught);  // it is user code, and may leave by longjmp
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
  set_calls(Calls::passed);
  return true;
}

}  // namespace kasane::runtime

extern "C" [[gnu::visibility("default")]] int sigaction(int signal, const struct sigaction* action,
                                                        struct sigaction* old) noexcept {
  return kasane::runtime::install(signal, action, old);
}

extern "C" [[gnu::visibility("default")]] sighandler_t signal(int signal, sighandler_t handler) noexcept {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // BSD semantics, as glibc's signal()
  ::sigemptyset(&action.sa_mask);
  ::sigaddset(&action.sa_mask, signal);
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  return kasane::runtime::install(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
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

extern "C" [[gnu::visibility("default")]] int sigsuspend(const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(const sigset_t*)> libcs("sigsuspend");
  return libcs.get()(kasane::runtime::ProgramMask(set).get());
}

extern "C" [[gnu::visibility("default")]] int ppoll(pollfd* files, nfds_t n, const timespec* limit,
                                                    const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(pollfd*, nfds_t, const timespec*, const sigset_t*)> libcs(
      "ppoll");
  return libcs.get()(files, n, limit, kasane::runtime::ProgramMask(set).get());
}

extern "C" [[gnu::visibility("default")]] int pselect(int n, fd_set* in, fd_set* out, fd_set* other,
                                                      const timespec* limit, const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(int, fd_set*, fd_set*, fd_set*, const timespec*,
                                                   const sigset_t*)>
      libcs("pselect");
  return libcs.get()(n, in, out, other, limit, kasane::runtime::ProgramMask(set).get());
}

extern "C" [[gnu::visibility("default")]] int epoll_pwait(int epoll, epoll_event* events, int most, int limit,
                                                          const sigset_t* set) {
  static constinit kasane::runtime::Hidden<int (*)(int, epoll_event*, int, int, const sigset_t*)> libcs(
      "epoll_pwait");
  return libcs.get()(epoll, events, most, limit, kasane::runtime::ProgramMask(set).get());
}

#endif
