// SPDX-License-Identifier: Apache-2.0
#include "runtime/crash.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "mem/signal_dispatch.h"
#include "runtime/crash_stack.h"
#include "runtime/crash_text.h"
#include "runtime/process_state.h"
#include "runtime/signals.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

constexpr std::uintptr_t kNearStack = 64 * 1024;   ///< a fault so close to the stack pointer is taken for an overflow
constexpr unsigned kTraceSeconds = 5;              ///< so long may the stack trace take before SIGALRM ends it

std::atomic<pid_t> g_reporter{0};   ///< the OS thread that reports

pid_t this_thread() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void say(const CrashText& text) noexcept { tell(text.data(), text.size()); }

/// Ends the process by the signal's default action.
[[noreturn]] void die_of(int signal) noexcept {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  mem::raw_sigaction(signal, &standard, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), this_thread(), signal);
  ::_exit(128 + signal);   // not reached: the signal is unblocked and fatal
}

/// The first thread to come here reports; another one waits for the end, and one that crashed in its own report ends at once.
void claim_report(int signal) noexcept {
  pid_t nobody = 0;
  // acq_rel: whoever loses must not go on as if the winner had not begun.
  if (g_reporter.compare_exchange_strong(nobody, this_thread(), std::memory_order_acq_rel)) return;
  if (nobody == this_thread()) die_of(signal);
  for (;;) ::pause();
}

void who(CrashText& text) noexcept {
  if (process().rank != kNoRank) text.add("rank ").decimal(raw(process().rank)).add(", ");
  text.add("OS thread ").decimal(static_cast<std::uint64_t>(this_thread()));
  if (ult::Pool::current() != nullptr) text.add(" (worker ").decimal(ult::Pool::worker()).add(")");
  const SlotId slot = ult::Pool::self();
  if (slot != kNoSlot) text.add(", user-level thread in slot ").decimal(raw(slot));
}

/// Says what a stack address means. False if the address is in no stack slot.
bool explain_stack_address(CrashText& text, std::uintptr_t address) noexcept {
  const ult::Pool* pool = ult::Pool::current();
  if (pool == nullptr) return false;
  const ult::Config& c = pool->config();
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(c.slots);
  const std::uint64_t slots = static_cast<std::uint64_t>(c.ranks) * c.slots_per_rank;
  if (c.slot_bytes == 0 || address - first >= slots * c.slot_bytes) return false;
  const std::uint64_t slot = (address - first) / c.slot_bytes;
  constexpr std::uintptr_t kGuardBytes = 4096;
  if ((address - first) % c.slot_bytes < kGuardBytes) {
    text.add("that is the guard below the stack of slot ").decimal(slot).add(": stack overflow. A stack has ").decimal(c.slot_bytes);
    text.add(" bytes; give more with kasane run --stack SIZE, or KASANE_STACK=SIZE\n");
  } else {
    text.add("that lies in the stack of slot ").decimal(slot).add(", which is not in use or belongs to another thread\n");
  }
  return true;
}

std::uintptr_t stack_pointer(const void* context) noexcept {
  if (context == nullptr) return 0;
  [[maybe_unused]] const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return machine.sp;
#else
  return 0;
#endif
}

void explain_address(const void* address, const char* meaning, const void* context) noexcept {
  CrashText text;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (meaning != nullptr) {
    text.add(meaning).add("\n");
  } else if (explain_stack_address(text, at)) {
  } else if (const std::uintptr_t sp = stack_pointer(context); sp != 0 && at - (sp - kNearStack) < kNearStack + 4096) {
    text.add("that is close to the stack pointer ").hex(sp).add(": probably a stack overflow (kasane run --stack SIZE, KASANE_STACK=SIZE)\n");
  } else if (in_space(address)) {
    text.add("that lies in the global space, at offset ").hex(at - reinterpret_cast<std::uintptr_t>(process().space_base));
    text.add(", where nothing is allocated: a wild pointer, or memory that was freed\n");
  } else if (at < 4096) {
    text.add("that is a null pointer, or a member of one\n");
  } else {
    text.add("that lies outside of the global space: a wild pointer, or memory of another rank's heap (malloc, globals)\n");
  }
  say(text);
}

/// The stack, last of all: the unwinder may crash or hang on what is left of it.
void trace(const void* context) noexcept {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  mem::raw_sigaction(SIGALRM, &standard, nullptr);
  ::alarm(kTraceSeconds);
  Frame frames[kMaxFrames];
  const std::size_t count = unwind(context, frames, kMaxFrames);
  for (std::size_t i = 0; i < count; ++i) {
    CrashText text;
    text.add("#").decimal(i).add(" ").hex(frames[i].address).add(" ");
    describe(text, frames[i]);
    say(text.add("\n"));
  }
  ::alarm(0);
}

void note_signal(int signal) noexcept {
  // relaxed: the supervisor looks after this process is gone.
  if (process().status != nullptr) process().status->signal.store(signal, std::memory_order_relaxed);
}

const char* cause_of(int signal, const siginfo_t& info) noexcept {
  if (info.si_code <= 0) return nullptr;   // sent by a process
  if (signal == SIGSEGV) return info.si_code == SEGV_ACCERR ? "access not allowed" : info.si_code == SEGV_MAPERR ? "nothing mapped" : nullptr;
  if (signal == SIGBUS) return info.si_code == BUS_ADRERR ? "no memory behind the mapping (disk or /dev/shm full?)" : info.si_code == BUS_ADRALN ? "misaligned" : nullptr;
  if (signal == SIGFPE) return info.si_code == FPE_INTDIV ? "integer division by zero" : info.si_code == FPE_INTOVF ? "integer overflow" : nullptr;
  return nullptr;
}

void say_what(int signal, const siginfo_t& info) noexcept {
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  const char* name = ::sigabbrev_np(signal);
  who(text);
  text.add(": SIG").add(name != nullptr ? name : "?");
  const bool fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
  if (info.si_code == SI_USER || info.si_code == SI_TKILL) {
    if (info.si_pid != ::getpid()) text.add(", sent by process ").decimal(static_cast<std::uint64_t>(info.si_pid));
  } else if (fault) {
    text.add(" at address ").address(info.si_addr);
  }
  if (const char* cause = cause_of(signal, info)) text.add(" (").add(cause).add(")");
  say(text.add("\n"));
  // A non-canonical address comes as null with SI_KERNEL.
  if ((signal == SIGSEGV || signal == SIGBUS) && info.si_code > 0 && info.si_code != SI_KERNEL) explain_address(info.si_addr, nullptr, nullptr);
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  claim_report(signal);
  note_signal(signal);
  say_what(signal, *info);
  trace(context);
  die_of(signal);
}

/// A fault that no range of ours owns, or that its owner calls wild.
void on_fault(int signal, siginfo_t* info, void* context) {
  const bool ours = info->si_code > 0 && in_space(info->si_addr);
  if (!ours && call_program_fault_handler(signal, info, context)) return;
  on_fatal_signal(signal, info, context);
}

Result<void> install(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  if (mem::raw_sigaction(signal, &action, nullptr) != 0) return fail_errno(Errc::internal, "sigaction for signal " + std::to_string(signal));
  return {};
}

}  // namespace

Result<void> install_crash_handlers(Rank) {
  guard_fault_signals();
  mem::set_fallback(on_fault);
  // Until the first range of the space is registered, faults come here directly; mem's handlers replace these then.
  for (const int signal : {SIGSEGV, SIGBUS}) KASANE_TRY(install(signal, on_fault));
  for (const int signal : {SIGILL, SIGFPE, SIGABRT, SIGTRAP}) KASANE_TRY(install(signal, on_fatal_signal));
  // The unwinder's first use may look for tables: better now than in a handler.
  Frame frames[kMaxFrames];
  unwind(nullptr, frames, kMaxFrames);
  return {};
}

void report_wild_access(const void* address, bool write, const char* meaning) {
  claim_report(SIGSEGV);
  note_signal(SIGSEGV);
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  who(text);
  say(text.add(write ? ": store to " : ": load from ").address(address).add("\n"));
  explain_address(address, meaning, nullptr);
  trace(nullptr);
  die_of(SIGSEGV);
}

}  // namespace kasane::runtime
