// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/crash.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "mem/space.h"
#include "runtime/process/coverage.h"
#include "runtime/process/signals.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/process_state.h"
#include "runtime/report/crash_stack.h"
#include "runtime/report/own_thread_locals.h"
#include "traps/signal_dispatch.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

/// a fault this close to the stack pointer counts as an overflow
constexpr std::uintptr_t kNearStack = 64 * 1024;
constexpr unsigned kTraceSeconds = 5;  ///< the time after which SIGALRM ends the stack trace

std::atomic<pid_t> g_reporter{0};  ///< the OS thread that reports
Backtrace g_trace;

pid_t this_thread() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void say(const CrashText& text) noexcept { tell(text.data(), text.size()); }

void unblock(std::initializer_list<int> signals) noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : signals) ::sigaddset(&set, s);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

/// Ends the process by the signal's default action.
[[noreturn]] void die_of(int signal) noexcept {
  write_coverage();
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  traps::raw_sigaction(signal, &standard, nullptr);
  unblock({signal});
  ::syscall(SYS_tgkill, ::getpid(), this_thread(), signal);
  ::_exit(128 + signal);  // not reached: the signal is unblocked and fatal
}

/// The first thread reports; others wait for the end of the process, and a thread that crashes in its own
/// report ends it at once.
void claim_report(int signal) noexcept {
  leave_try_unwind();
  pid_t nobody = 0;
  // acq_rel: a thread that loses must see that the winner has begun.
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

/// The call stack that holds the address. bytes 0: there is none.
struct InStack {
  std::uint64_t stack = 0, offset = 0, bytes = 0;
};

InStack find_stack(std::uintptr_t address) noexcept {
  const ult::Pool* pool = ult::Pool::current();
  if (pool == nullptr) return {};
  const ult::Config& c = pool->config();
  if (c.stack_bytes == 0) return {};
  const std::uintptr_t begin = c.stack_end(StackId{0}) - c.bytes_of_stack(StackId{0});
  if (address < begin || address >= c.stack_end(StackId{c.ranks * c.stacks_per_rank - 1})) return {};
  const StackId stack = c.stack_at(address);
  const std::size_t bytes = c.bytes_of_stack(stack);
  return {raw(stack), address - (c.stack_end(stack) - bytes), bytes};
}

void explain_stack(CrashText& text, const InStack& in) noexcept {
  constexpr std::uint64_t kGuardBytes = 4096;
  if (in.offset < kGuardBytes) {
    text.add("that is the guard below call stack ")
        .decimal(in.stack)
        .add(": stack overflow. A stack has ")
        .decimal(in.bytes);
    text.add(" bytes; give more with kasane run --stack SIZE, or KASANE_STACK=SIZE\n");
  } else {
    text.add("that lies in call stack ")
        .decimal(in.stack)
        .add(", which is not in use or belongs to another thread\n");
  }
}

void explain_address(const void* address, const char* meaning) noexcept {
  CrashText text;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (meaning != nullptr) {
    text.add(meaning).add("\n");
  } else if (const InStack in = find_stack(at); in.bytes != 0) {
    explain_stack(text, in);
  } else if (in_space(address) && process().rank == kNoRank) {
    text.add("that was global memory until this process detached (kasane_detach, MPI_Finalize)\n");
  } else if (in_space(address)) {
    text.add("that lies in the global space, at offset ")
        .hex(at - reinterpret_cast<std::uintptr_t>(process().space_base));
    text.add(", where nothing is allocated: a wild pointer, or memory that was freed\n");
  } else if (at < 4096) {
    text.add("that is a null pointer, or a member of one\n");
  } else if (!describe_foreign_thread_local(text, address)) {
    text.add(
        "that lies outside of the global space: a wild pointer, or memory of another rank alone (malloc, a "
        "thread_local, a stack of a std::thread, variables of libraries)\n");
  }
  say(text);
}

void explain_refusal(const void* address, int refused) noexcept {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(process().space_base);
  const char* const name = ::strerrorname_np(refused);
  CrashText text;
  text.add("that lies in the global space, at offset ").hex(offset);
  text.add(", for which the kernel gave no memory: ").add(name != nullptr ? name : "an unknown error");
  say(text.add("\n"));
}

// Of the space a core file contains only stacks (base/memory_file.h). Pages that were never used cost
// nothing.

void keep_in_core(const std::byte* from, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(from) / mem::kBlockBytes * mem::kBlockBytes;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(from) + bytes;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DODUMP);
}

/// The upper part of main's stack, and this rank's call stacks that are allocated first.
void keep_stacks_in_core() noexcept {
  constexpr std::size_t kMainBytes = std::size_t{1} << 20, kStacksBytes = std::size_t{16} << 20;
  const std::byte* end = main_stack();
  if (end != nullptr) keep_in_core(end - kMainBytes, kMainBytes + mem::kBlockBytes);
  const ult::Pool* pool = ult::Pool::current();
  if (pool == nullptr) return;
  const ult::Config& c = pool->config();
  const std::size_t own = c.stack_bytes * c.stacks_per_rank;
  keep_in_core(c.stacks + raw(c.rank) * own, std::min(own, kStacksBytes));
}

/// The stack on which the crash occurred, which may belong to another rank.
void keep_stack_in_core(std::uintptr_t stack_pointer) noexcept {
  const InStack in = find_stack(stack_pointer);
  if (in.bytes != 0) keep_in_core(reinterpret_cast<const std::byte*>(stack_pointer), in.bytes - in.offset);
}

/// An address near the stack pointer, outside of the stacks that find_stack() knows.
bool is_overflow(const void* address, std::uintptr_t stack_pointer) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= 4096 && at - (stack_pointer - kNearStack) < kNearStack + 4096 && find_stack(at).bytes == 0;
}

void explain_overflow(std::uintptr_t stack_pointer) noexcept {
  CrashText text;
  text.add("it is beside the stack pointer ")
      .hex(stack_pointer)
      .add(": probably a stack overflow. More stack: --main-stack, KASANE_MAIN_STACK for main; ");
  say(text.add("--stack, KASANE_STACK for threads; ulimit -s or pthread_attr_setstacksize for OS threads\n"));
}

void say_frames() noexcept {
  for (std::size_t i = 0; i < g_trace.count; ++i) {
    const Frame& frame = g_trace.frames[i];
    CrashText text;
    text.add("#").decimal(i).add(" ").hex(frame.address).add(" ");
    describe(text, frame);
    if (frame.times > 1) text.add(", ").decimal(frame.times).add(" times");
    say(text.add("\n"));
  }
}

/// The stack, reported last: the unwinder may crash or hang on a damaged stack.
void trace(const void* context, bool aborted) noexcept {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  traps::raw_sigaction(SIGALRM, &standard, nullptr);
  unblock({SIGALRM});
  ::alarm(kTraceSeconds);
  keep_stacks_in_core();
  if (!try_unwind(context, g_trace) && g_trace.count < 2 && context != nullptr)
    follow_frame_pointers(context, g_trace);
  keep_stack_in_core(g_trace.stack_pointer);
  if (aborted) leave_out_end(g_trace);
  say_frames();
  g_trace.count = 0;
  if (aborted) find_throw(g_trace);
  if (g_trace.count != 0) {
    CrashText text;
    say(text.add("the exception that was not caught, or that was being handled, was thrown by\n"));
    say_frames();
  }
  ::alarm(0);
}

void note_signal(int signal) noexcept {
  // relaxed: the supervisor reads it after this process has ended.
  if (process().status != nullptr) process().status->signal.store(signal, std::memory_order_relaxed);
}

/// The address of the access that failed. The kernel reports a non-canonical address as null with SI_KERNEL.
bool is_fault(int signal, const siginfo_t& info) noexcept {
  return (signal == SIGSEGV || signal == SIGBUS) && info.si_code > 0 && info.si_code != SI_KERNEL;
}

const char* cause_of(int signal, const siginfo_t& info) noexcept {
  if (info.si_code <= 0) return nullptr;  // sent by a process
  if (signal == SIGSEGV)
    return info.si_code == SEGV_ACCERR   ? "access not allowed"
           : info.si_code == SEGV_MAPERR ? "nothing mapped"
                                         : nullptr;
  if (signal == SIGBUS)
    return info.si_code == BUS_ADRERR   ? "no memory behind the mapping (disk or /dev/shm full?)"
           : info.si_code == BUS_ADRALN ? "misaligned"
                                        : nullptr;
  if (signal == SIGFPE)
    return info.si_code == FPE_INTDIV   ? "integer division by zero"
           : info.si_code == FPE_INTOVF ? "integer overflow"
                                        : nullptr;
  return nullptr;
}

/// For the supervisor, which looks what other ranks have there.
void note_address(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  // relaxed: the supervisor reads it after this process has ended
  if (process().status != nullptr && !in_space(address) && at >= 4096)
    process().status->fault_address.store(at, std::memory_order_relaxed);
}

/// refused: the errno with which the kernel refused what would have made the access possible; 0: it was not
/// asked.
void say_what(int signal, const siginfo_t& info, const void* context, int refused) noexcept {
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  const char* name = ::sigabbrev_np(signal);
  who(text);
  text.add(": SIG").add(name != nullptr ? name : "?");
  const bool fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
  if (info.si_code == SI_USER || info.si_code == SI_TKILL) {
    if (info.si_pid != ::getpid())
      text.add(", sent by process ").decimal(static_cast<std::uint64_t>(info.si_pid));
  } else if (fault) {
    text.add(" at address ").address(info.si_addr);
  }
  if (const char* cause = cause_of(signal, info)) text.add(" (").add(cause).add(")");
  say(text.add("\n"));
  if (!is_fault(signal, info)) return;
  if (const std::uintptr_t sp = stack_pointer_of(context); is_overflow(info.si_addr, sp))
    explain_overflow(sp);
  else if (refused != 0)
    explain_refusal(info.si_addr, refused);
  else
    explain_address(info.si_addr, nullptr);
  note_address(info.si_addr);
}

void end_with_report(int signal, const siginfo_t& info, void* context, int refused) {
  claim_report(signal);
  note_signal(signal);
  say_what(signal, info, context, refused);
  trace(context, signal == SIGABRT);
  die_of(signal);
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  end_with_report(signal, *info, context, 0);
}

/// A fault outside of all registered ranges, or one that the owner of its range cannot serve.
void on_fault(int signal, siginfo_t* info, void* context) {
  const int refused = errno;
  leave_try_unwind();
  // relaxed: only this thread stores its own number
  const bool reporting = g_reporter.load(std::memory_order_relaxed) == this_thread();
  const bool ours = reporting || (info->si_code > 0 && in_space(info->si_addr));
  if (!reporting && follow_errno(info->si_addr, context)) return;
  if (!ours && call_program_fault_handler(signal, info, context)) return;
  end_with_report(signal, *info, context, ours ? refused : 0);
}

Result<void> install(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // a crash of the report itself comes, too
  ::sigemptyset(&action.sa_mask);
  if (traps::raw_sigaction(signal, &action, nullptr) != 0)
    return fail_errno(Errc::internal, "sigaction for signal " + std::to_string(signal));
  return {};
}

}  // namespace

Result<void> install_crash_handlers(Rank, OtherHandlers others) {
  guard_fault_signals();
  traps::set_fallback(on_fault);
  // Until the first range of the space is registered, faults arrive here directly; mem's handlers then
  // replace these.
  for (const int signal : {SIGSEGV, SIGBUS}) KASANE_TRY(install(signal, on_fault));
  for (const int signal : {SIGILL, SIGFPE, SIGABRT, SIGTRAP}) {
    struct sigaction before = {};
    if (others == OtherHandlers::stay && traps::raw_sigaction(signal, nullptr, &before) == 0 &&
        before.sa_handler != SIG_DFL)
      continue;
    KASANE_TRY(install(signal, on_fatal_signal));
  }
  // A process inherits blocked signals from its parent, and page faults of the space arrive as signals.
  // Threads inherit the mask from here.
  unblock({SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP});
  // The unwinder's first use may search for tables, which must not happen in a handler.
  unwind(nullptr, g_trace);
  return {};
}

void report_wild_access(const void* address, bool write, const char* meaning) {
  claim_report(SIGSEGV);
  note_signal(SIGSEGV);
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  who(text);
  say(text.add(write ? ": store to " : ": load from ").address(address).add("\n"));
  explain_address(address, meaning);
  trace(traps::faulting_context(), false);
  die_of(SIGSEGV);
}

}  // namespace kasane::runtime
