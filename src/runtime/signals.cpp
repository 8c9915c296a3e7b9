// SPDX-License-Identifier: Apache-2.0
#include "runtime/signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <ucontext.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace kasane::runtime {
namespace {

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);

Sigaction libc_sigaction() noexcept {
  // No function static with a guard, since signal handlers call this. A second look-up does no harm.
  static std::atomic<Sigaction> found{nullptr};
  // relaxed: a pointer to code, nothing is published with it
  Sigaction f = found.load(std::memory_order_relaxed);
  if (f == nullptr) {
    f = reinterpret_cast<Sigaction>(::dlsym(RTLD_NEXT, "sigaction"));
    found.store(f, std::memory_order_relaxed);
  }
  return f;
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

Remembered g_segv, g_bus;
std::atomic<bool> g_guarded{false};

Remembered* guarded(int signal) noexcept {
  // acquire: guard_fault_signals() has stored what the program had before.
  if (!g_guarded.load(std::memory_order_acquire)) return nullptr;
  return signal == SIGSEGV ? &g_segv : signal == SIGBUS ? &g_bus : nullptr;
}

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
    ::sigdelset(&mask, SIGSEGV);
    ::sigdelset(&mask, SIGBUS);
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
    return 0;
  }
  // relaxed: before the start nothing needs the flag, and a handler set then is set by one thread.
  if (action == nullptr || !g_guarded.load(std::memory_order_relaxed))
    return libc_sigaction()(signal, action, old);
  struct sigaction on_stack = *action;
  if (on_stack.sa_handler != SIG_DFL && on_stack.sa_handler != SIG_IGN) on_stack.sa_flags |= SA_ONSTACK;
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
