// SPDX-License-Identifier: Apache-2.0
#include "traps/caught_calls.h"

#include <cpuid.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/call_selector.h"
#include "traps/alt_stack.h"
#include "traps/signal_dispatch.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif
#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif

extern "C" {
#define KASANE_HIDDEN [[gnu::visibility("hidden")]]
KASANE_HIDDEN extern const char kasane_calls_begin[], kasane_calls_end[];
KASANE_HIDDEN extern const char kasane_calls_pass[], kasane_calls_clone[], kasane_calls_clone3[];
KASANE_HIDDEN extern const char kasane_calls_sigreturn[], kasane_calls_restorer[], kasane_calls_carry_out[];
KASANE_HIDDEN extern const char kasane_calls_copying[], kasane_calls_copy_failed[];
KASANE_HIDDEN int kasane_calls_copy(void* to, const void* from, std::size_t bytes) noexcept;
KASANE_HIDDEN long kasane_calls_carry_out_here(kasane::traps::CaughtCall*) noexcept;
#undef KASANE_HIDDEN
}

namespace kasane::traps {
namespace {

static_assert(offsetof(CaughtCall, argument) == 8 && offsetof(CaughtCall, rip) == 56 &&
              offsetof(CaughtCall, rsp) == 64 && offsetof(CaughtCall, rbx) == 72 &&
              offsetof(CaughtCall, result) == 80 && sizeof(CaughtCall) == 88);  // caught_calls_x86_64.S

std::atomic<const CallRules*> g_rules{nullptr};
CallRules g_stored_rules;
void (*g_other)(int, siginfo_t*, void*) = nullptr;

greg_t address_of(const char* code) noexcept { return reinterpret_cast<greg_t>(code); }

/// The thread as it was when its call was caught, and as it will go on.
class Caught {
 public:
  explicit Caught(void* context) noexcept
      : context_(*static_cast<ucontext_t*>(context)), regs_(context_.uc_mcontext.gregs) {}

  [[nodiscard]] CaughtCall call() const noexcept {
    return {regs_[REG_RAX],
            {regs_[REG_RDI], regs_[REG_RSI], regs_[REG_RDX], regs_[REG_R10], regs_[REG_R8], regs_[REG_R9]},
            static_cast<std::uint64_t>(regs_[REG_RIP]),
            static_cast<std::uint64_t>(regs_[REG_RSP]),
            0,
            0};
  }
  void answer(long result) noexcept { regs_[REG_RAX] = result; }
  void pass() noexcept { go_on(kasane_calls_pass); }
  void carry_out() noexcept { go_on(kasane_calls_carry_out); }
  void return_from_handler() noexcept { regs_[REG_RIP] = address_of(kasane_calls_sigreturn); }
  void clone() noexcept;
  void clone3() noexcept;
  void fork_and_wait(long flags) noexcept;
  void change_mask() noexcept;
  [[nodiscard]] bool change_signal_stack() noexcept;

 private:
  /// The kernel takes the registers from the context. Nothing is stored on the thread's stack: on a thread
  /// without an alternate one, and in a handler of the program's, this handler's own frame is there.
  void go_on(const char* code) noexcept {
    regs_[REG_RCX] = regs_[REG_RIP];
    regs_[REG_RIP] = address_of(code);
  }

  ucontext_t& context_;
  greg_t* const regs_;
};

/// A child with a stack of its own begins there as its parent goes on. One with a copy of its parent's memory
/// needs nothing.
void Caught::clone() noexcept {
  const auto flags = static_cast<std::uint64_t>(regs_[REG_RDI]);
  if (regs_[REG_RSI] != 0) return go_on(kasane_calls_clone);
  if ((flags & CLONE_VM) != 0) return fork_and_wait(regs_[REG_RDI]);
  pass();
}

void Caught::clone3() noexcept {
  struct Arguments {
    std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size;
    char rest[256 - 7 * 8];  // as in caught_calls_x86_64.S
  } copy;
  const auto bytes = static_cast<std::uint64_t>(regs_[REG_RSI]);
  const auto named = reinterpret_cast<const void*>(regs_[REG_RDI]);
  if (bytes < offsetof(Arguments, rest) || bytes > sizeof copy || !copy_named(&copy, named, bytes))
    return pass();  // the kernel refuses it
  if (copy.stack != 0 && copy.stack_size > 400) return go_on(kasane_calls_clone3);
  if ((copy.flags & CLONE_VM) == 0 || copy.stack != 0) return pass();
  fork_and_wait(static_cast<long>(copy.flags | copy.exit_signal));
}

/// vfork. The child goes on from this handler and uses the stack, so it gets a copy of the memory.
void Caught::fork_and_wait(long flags) noexcept {
  answer(issue_call(SYS_clone, {flags & ~static_cast<long>(CLONE_VM), 0, regs_[REG_RDX], regs_[REG_R10],
                                regs_[REG_R8], 0}));
}

/// rt_sigprocmask: the mask is the one that the kernel sets when this handler returns.
void Caught::change_mask() noexcept {
  const auto how = regs_[REG_RDI];
  const auto wanted = reinterpret_cast<const void*>(regs_[REG_RSI]);
  const auto old = reinterpret_cast<void*>(regs_[REG_RDX]);
  if (regs_[REG_R10] != sizeof(std::uint64_t)) return answer(-EINVAL);
  std::uint64_t mask, set = 0;
  std::memcpy(&mask, &context_.uc_sigmask, sizeof mask);
  if (wanted != nullptr && !copy_named(&set, wanted, sizeof set)) return answer(-EFAULT);
  if (wanted != nullptr && how != SIG_BLOCK && how != SIG_UNBLOCK && how != SIG_SETMASK)
    return answer(-EINVAL);
  std::uint64_t next = mask;
  if (wanted != nullptr) next = how == SIG_BLOCK ? mask | set : how == SIG_UNBLOCK ? mask & ~set : set;
  for (const int signal : kNeverBlocked) next &= ~(std::uint64_t{1} << (signal - 1));
  if (old != nullptr && !copy_named(old, &mask, sizeof mask)) return answer(-EFAULT);
  std::memcpy(&context_.uc_sigmask, &next, sizeof next);
  answer(0);
}

/// sigaltstack. False: the kernel's.
bool Caught::change_signal_stack() noexcept {
  const auto wanted = reinterpret_cast<const void*>(regs_[REG_RDI]);
  const auto old = reinterpret_cast<void*>(regs_[REG_RSI]);
  const auto sp = static_cast<std::uintptr_t>(regs_[REG_RSP]);
  stack_t copy, before;
  if (!AltStack::of_program(nullptr, &before, sp)) return false;
  int result = wanted != nullptr && !copy_named(&copy, wanted, sizeof copy) ? -EFAULT : 0;
  if (result == 0) result = *AltStack::of_program(wanted != nullptr ? &copy : nullptr, &before, sp);
  if (result == 0 && old != nullptr && !copy_named(old, &before, sizeof before)) result = -EFAULT;
  answer(result);
  return true;
}

void route(Caught& thread) noexcept {
  const CaughtCall call = thread.call();
  switch (call.number) {
    case SYS_rt_sigreturn: return thread.return_from_handler();
    case SYS_rt_sigprocmask: return thread.change_mask();
    case SYS_clone: return thread.clone();
    case SYS_clone3: return thread.clone3();
    case SYS_vfork: return thread.fork_and_wait(CLONE_VFORK | SIGCHLD);
    case SYS_sigaltstack:
      if (thread.change_signal_stack()) return;
      break;
    default: break;
  }
  // acquire: what the rules use
  const CallRules* const rules = g_rules.load(std::memory_order_acquire);
  if (rules != nullptr && rules->concerns(call)) return thread.carry_out();
  thread.pass();
}

bool switch_on_here(int mode = PR_SYS_DISPATCH_ON) noexcept {
  const long begin = mode == PR_SYS_DISPATCH_ON ? reinterpret_cast<long>(kasane_calls_begin) : 0,
             bytes = mode == PR_SYS_DISPATCH_ON ? kasane_calls_end - kasane_calls_begin : 0;
  return ::prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, begin, bytes,
                 mode == PR_SYS_DISPATCH_ON ? &kasane_call_selector : nullptr) == 0;
}

// ---- the program's threads ----

/// Held for a few instructions, but by catch_calls_of_program() for all its time.
constinit std::mutex g_threads_lock;
constinit ProgramThread* g_threads = nullptr;
bool g_on = false;  ///< under the lock
std::atomic<std::uint32_t> g_to_switch{0};

/// The SIGSYS by which catch_calls_of_program() asks a thread.
bool asked_to_switch(const siginfo_t& info) noexcept {
  // acquire, acq_rel: with the store and the loads there
  if (info.si_code != SI_TKILL || g_to_switch.load(std::memory_order_acquire) == 0) return false;
  switch_on_here();
  g_to_switch.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

void on_caught(int signal, siginfo_t* info, void* context) {
  if (info->si_code != SYS_USER_DISPATCH) {
    const int saved = errno;
    const PassedInHandler passed;
    if (!asked_to_switch(*info)) g_other(signal, info, context);
    errno = saved;
    return;
  }
  set_calls(Calls::passed);
  const int saved = errno;
  Caught thread(context);
  route(thread);
  errno = saved;
  set_calls(Calls::caught);
}

/// kasane_calls_carry_out saves the vector registers in a frame of fixed size.
bool can_save_vectors() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  constexpr unsigned kParts = 0xe7, kRoom = 2688;
  for (unsigned part = 2; part < 8; ++part) {
    if ((kParts >> part & 1) == 0 || __get_cpuid_count(0xd, part, &a, &b, &c, &d) == 0) continue;
    if (a != 0 && a + b > kRoom) return false;
  }
  return true;
}

}  // namespace

bool copy_named(void* to, const void* from, std::size_t bytes) noexcept {
  return kasane_calls_copy(to, from, bytes) == 0;
}

bool end_named_copy(void* ucontext) noexcept {
  greg_t& rip = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs[REG_RIP];
  if (rip != address_of(kasane_calls_copying)) return false;
  rip = address_of(kasane_calls_copy_failed);
  return true;
}

bool install_own_handler(int signal, void (*handler)(int, siginfo_t*, void*), bool restarts) noexcept {
  struct {  // the kernel's
    void (*handler)(int, siginfo_t*, void*);
    unsigned long flags;
    const char* restorer;
    std::uint64_t mask;
  } action{handler, SA_SIGINFO | SA_ONSTACK | SA_NODEFER, kasane_calls_restorer, ~std::uint64_t{0}};
  if (restarts) action.flags |= SA_RESTART;
  constexpr unsigned long kRestorer = 0x04000000;
  action.flags |= kRestorer;
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS})
    action.mask &= ~(std::uint64_t{1} << (crash - 1));
  return ::syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask) == 0;
}

Result<void> rule_caught_calls(const CallRules& rules, void (*other)(int, siginfo_t*, void*)) noexcept {
  if (!can_save_vectors()) return fail(Errc::unsupported, "this processor has no XSAVE");
  g_stored_rules = rules;
  g_other = other;
  if (!install_own_handler(SIGSYS, on_caught))
    return fail_errno(Errc::internal, "cannot install the handler of SIGSYS");
  g_rules.store(&g_stored_rules, std::memory_order_release);  // release: what the rules use
  return {};
}

bool calls_can_be_caught() noexcept {
  if (!can_save_vectors() || !switch_on_here()) return false;
  return switch_on_here(PR_SYS_DISPATCH_OFF);
}

void pass_caught_calls() noexcept { g_rules.store(nullptr, std::memory_order_seq_cst); }

bool catch_calls_of_program() noexcept {
  const PassedCalls passed;
  const std::lock_guard lock(g_threads_lock);
  if (g_on) return true;
  if (!switch_on_here()) return false;
  switch_on_here(PR_SYS_DISPATCH_OFF);
  g_on = true;
  for (const ProgramThread* t = g_threads; t != nullptr; t = t->next_) {
    if (t->id_ == ::gettid()) {
      switch_on_here();
      continue;
    }
    // acq_rel, acquire: with asked_to_switch(): the count is there before the signal, and when it is 0 again
    // each thread that was reached has switched itself on.
    g_to_switch.fetch_add(1, std::memory_order_acq_rel);
    if (::syscall(SYS_tgkill, ::getpid(), t->id_, SIGSYS) != 0)
      g_to_switch.fetch_sub(1, std::memory_order_acq_rel);
  }
  for (int i = 0; i < 1000 && g_to_switch.load(std::memory_order_acquire) != 0; ++i) ::usleep(1000);
  return true;
}

bool catch_calls_of_child() noexcept { return g_on = switch_on_here(); }

ProgramThread::ProgramThread() noexcept : id_(::gettid()) {
  const PassedCalls passed;
  const std::lock_guard lock(g_threads_lock);
  next_ = g_threads;
  if (next_ != nullptr) next_->before_ = this;
  g_threads = this;
  if (g_on) switch_on_here();
}

ProgramThread::~ProgramThread() {
  const std::lock_guard lock(g_threads_lock);
  if (next_ != nullptr) next_->before_ = before_;
  (before_ != nullptr ? before_->next_ : g_threads) = next_;
}

}  // namespace kasane::traps

namespace {
// Not inlined: the thread may be on another OS thread after the call, and errno at another address.
[[gnu::noinline]] int read_errno() noexcept { return errno; }
[[gnu::noinline]] void write_errno(int value) noexcept { errno = value; }
}  // namespace

long kasane_calls_carry_out_here(kasane::traps::CaughtCall* call) noexcept {
  using namespace kasane;
  set_calls(Calls::passed);
  const int saved = read_errno();
  // acquire: see route()
  const traps::CallRules* const rules = traps::g_rules.load(std::memory_order_acquire);
  const long result =
      rules != nullptr ? rules->carry_out(*call) : traps::issue_call(call->number, call->argument);
  write_errno(saved);
  leave_runtime(Calls::caught);
  return result;
}
