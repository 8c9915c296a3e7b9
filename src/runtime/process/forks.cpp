// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/forks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>

#include "base/call_selector.h"
#include "comm/bootstrap/signals_for_main.h"
#include "mem/space.h"
#include "runtime/language/atomics.h"
#include "runtime/language/cancellation.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/random_numbers.h"
#include "runtime/process/system_calls.h"
#include "runtime/rank/call_memory.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/descriptors.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"
#include "traps/signal_dispatch.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

constexpr int kMostWaitMs = 10'000;
constexpr std::int64_t kChildTimeNs = 100'000'000;
constexpr std::uint64_t kGoOn = 0;  ///< instead of an address

/// Of a child, in private memory.
struct Child {
  int parent = -1;  ///< a socket
  bool parent_waits = true;
  struct sigaction before[2] = {};
};
constinit Child g_child;

// ---- a stack that is shared memory ----

void before_fork() {
  if (process().rank == kNoRank || !in_space(__builtin_frame_address(0))) return;
  CrashText text;
  text.add("kasane: a fork within a library on rank ").decimal(raw(process().rank));
  text.add(
      ": its stack is shared by parent and child, so it cannot work here. Use fork, posix_spawn, system or "
      "popen; in place of daemon(), start the job in the background (setsid kasane run …).\n");
  tell(text.data(), text.size());
  std::abort();
}

void in_child() {
  unlock_descriptors();
  forget_process();
  forget_drawing();
  if (runtime_of_parent() == nullptr) return;
  // A child's child: what it has touched is its own, and the rest stays its parent's.
  traps::issue_call(SYS_close, {g_child.parent, 0, 0, 0, 0, 0});
  g_child.parent = -1;
}

}  // namespace

void install_fork_guard() { ::pthread_atfork(before_fork, nullptr, in_child); }

namespace {

bool may_be_full(const traps::CaughtCall& call) noexcept {
  pollfd file{static_cast<int>(call.argument[0]), POLLOUT, 0};
  const bool much = call.number == SYS_write && call.argument[2] > PIPE_BUF;
  return much || traps::issue_call(SYS_poll, {reinterpret_cast<long>(&file), 1, 0, 0, 0, 0}) != 1;
}

bool may_wait(const traps::CaughtCall& call) noexcept {
  switch (call.number) {
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg: return may_be_full(call);
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_flock:
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_semop:
    case SYS_semtimedop: return true;
    case SYS_fcntl: return call.argument[1] == F_SETLKW || call.argument[1] == F_OFD_SETLKW;
    default: return false;
  }
}

/// In a child, before the call: lets the parent go on if the call may wait. In a handler.
[[maybe_unused]] void note_call_of_child(const traps::CaughtCall& call) noexcept {
  if (!g_child.parent_waits || g_child.parent < 0 || !may_wait(call)) return;
  g_child.parent_waits = false;
  std::uint64_t word = kGoOn;
  traps::issue_call(SYS_sendto,
                    {g_child.parent, reinterpret_cast<long>(&word), sizeof word, MSG_NOSIGNAL, 0, 0});
}

}  // namespace

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace {

// ---- what a child asks of its parent ----

struct Answer {
  std::uint64_t allocated = 0;
  std::byte bytes[mem::kBlockBytes] = {};
};

bool transfer(int socket, void* at, std::size_t bytes, bool send) noexcept {
  for (auto* p = static_cast<char*>(at); bytes != 0;) {
    const ssize_t n = send ? ::send(socket, p, bytes, MSG_NOSIGNAL) : ::recv(socket, p, bytes, MSG_WAITALL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

/// In the parent, on an OS thread of its own, until the child has closed its end. waiting: a pipe whose
/// end is closed when the parent may go on.
void serve_child(CallMemory& memory, int socket, int waiting) {
  const auto alt_stack = traps::AltStack::create();
  std::uint64_t asked = 0;
  Answer answer;
  const auto let_go_on = [&] {
    if (waiting >= 0) ::close(waiting);
    waiting = -1;
  };
  while (transfer(socket, &asked, sizeof asked, false)) {
    if (asked == kGoOn) {
      let_go_on();
      continue;
    }
    const auto* const block = reinterpret_cast<const std::byte*>(asked);
    answer.allocated = memory.pin_allocated(block, mem::kBlockBytes, false) == mem::kBlockBytes ? 1 : 0;
    if (answer.allocated != 0) {
      std::memcpy(answer.bytes, block, mem::kBlockBytes);
      memory.unpin(block, mem::kBlockBytes);
    }
    if (!transfer(socket, &answer, sizeof answer, true)) break;
  }
  ::close(socket);
  let_go_on();
}

bool has_computed(pid_t child) noexcept {
  clockid_t clock;
  timespec used;
  if (::clock_getcpuclockid(child, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return true;
  return used.tv_sec * 1'000'000'000 + used.tv_nsec > kChildTimeNs;
}

void wait_for_child(Runtime& runtime, pid_t child, int socket) {
  const ult::RuntimeSection section;  // private memory, and no thread of the program
  int waiting[2] = {-1, -1};
  if (::pipe2(waiting, O_CLOEXEC) != 0) waiting[0] = waiting[1] = -1;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([&memory = runtime.call_memory(), socket, end = waiting[1]] {
    serve_child(memory, socket, end);
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  constexpr int kStepMs = 10;
  pollfd until{waiting[0], POLLIN, 0};
  for (int ms = 0; waiting[0] >= 0 && ms < kMostWaitMs; ms += kStepMs)
    if (::poll(&until, 1, kStepMs) != 0 || has_computed(child)) break;
  ::close(waiting[0]);
}

// ---- the child ----

[[noreturn]] void refuse_access(int signal, const void* address) noexcept {
  CrashText text;
  text.add("kasane: a child of fork() (pid ").decimal(static_cast<std::uint64_t>(::getpid()));
  text.add(") accessed global memory at ").address(address);
  tell(text.data(), text.size());
  CrashText why;
  why.add(g_child.parent < 0 ? ", which it does not have: its parent is itself a child\n"
                             : ", where nothing is allocated, or its parent has ended\n");
  tell(why.data(), why.size());
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  traps::raw_sigaction(signal, &standard, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

/// False: the block cannot be had.
bool fetch_block(std::byte* block) noexcept {
  static constinit Answer answer;  // a child has one thread
  std::uint64_t asked = reinterpret_cast<std::uint64_t>(block);
  if (g_child.parent < 0 || !transfer(g_child.parent, &asked, sizeof asked, true) ||
      !transfer(g_child.parent, &answer, sizeof answer, false) || answer.allocated == 0)
    return false;
  if (::mmap(block, mem::kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
    return false;
  std::memcpy(block, answer.bytes, mem::kBlockBytes);
  return true;
}

void on_child_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const PassedCalls passed;
  auto* const at = static_cast<std::byte*>(info->si_addr);
  if (info->si_code > 0 && runtime_of_parent()->contains(at)) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (!fetch_block(at - address % mem::kBlockBytes) && !traps::end_named_copy(context))
      refuse_access(signal, at);
  } else {
    g_child.before[signal == SIGBUS].sa_sigaction(signal, info, context);
  }
  errno = error;
}

struct Fork {
  ucontext_t caller, forker;
  Runtime* runtime;
  int ends[2];  ///< the parent's, the child's
  pid_t result;
  int error;
  std::span<std::byte> stack;  ///< the caller's, if it lies in the space
  std::byte* live;             ///< what of it is in use
  std::byte* copy;
  ult::LazyRecord* records;  ///< of the calling thread
};
constexpr std::size_t kForkBytes = 256 * 1024;

/// The caller's frames, at their addresses, in private memory.
void restore_stack(const Fork& f) noexcept {
  if (f.stack.empty()) return;
  if (::mmap(f.stack.data(), f.stack.size(), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
    ::_exit(127);
  std::memcpy(f.live, f.copy, static_cast<std::size_t>(f.stack.data() + f.stack.size() - f.live));
}

void become_child(const Fork& f) noexcept {
  ::close(f.ends[0]);
  note_runtime_of_parent(*f.runtime);
  Cancellation::forget_here();
  g_child.parent = f.ends[1];
  ult::Pool::forget_process();
  Runtime::forget_process();
  connect_atomics(nullptr, {});
  for (const mem::ViewPart& part : f.runtime->space().addresses().parts()) {
    if (::mmap(part.at, part.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
               0) == MAP_FAILED)
      ::_exit(127);
  }
  restore_stack(f);
  ult::Pool::keep_records(f.records);
  struct sigaction action = {};
  action.sa_sigaction = on_child_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  traps::raw_sigaction(SIGSEGV, &action, &g_child.before[0]);
  traps::raw_sigaction(SIGBUS, &action, &g_child.before[1]);
  catch_calls_of_child(note_call_of_child);
}

/// On a private stack, of which parent and child have each their own.
void fork_there(unsigned high, unsigned low) {
  auto& f = *reinterpret_cast<Fork*>(std::uintptr_t{high} << 32 | low);
  static constinit Hidden<pid_t (*)()> libcs("fork");
  auto* const sp = reinterpret_cast<std::byte*>(f.caller.uc_mcontext.gregs[REG_RSP]);
  f.stack = f.runtime->stack_at(sp);
  f.records = ult::Pool::records();
  if (!f.stack.empty()) {
    constexpr std::size_t kRedZone = 128;
    f.live = sp - kRedZone;
    const auto bytes = static_cast<std::size_t>(f.stack.data() + f.stack.size() - f.live);
    void* const copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
      f.result = -1;
      f.error = ENOMEM;
      ::setcontext(&f.caller);
    }
    f.copy = static_cast<std::byte*>(copy);
    std::memcpy(f.copy, f.live, bytes);
  }
  f.result = libcs.get()();
  f.error = errno;
  if (f.result == 0) become_child(f);
  ::setcontext(&f.caller);
}

/// Not inlined: the caller's frames are complete in memory.
[[gnu::noinline]] pid_t fork_on_private_stack(Runtime& runtime) {
  void* const memory =
      ::mmap(nullptr, kForkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    errno = ENOMEM;
    return -1;
  }
  auto& f = *static_cast<Fork*>(memory);
  f.runtime = &runtime;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f.ends) != 0) {
    ::munmap(memory, kForkBytes);
    return -1;
  }
  ::getcontext(&f.forker);
  f.forker.uc_stack.ss_sp = static_cast<std::byte*>(memory) + sizeof(Fork);
  f.forker.uc_stack.ss_size = kForkBytes - sizeof(Fork);
  f.forker.uc_link = nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  ::makecontext(&f.forker, reinterpret_cast<void (*)()>(fork_there), 2, static_cast<unsigned>(at >> 32),
                static_cast<unsigned>(at));
  ::swapcontext(&f.caller, &f.forker);
  const pid_t result = f.result;
  const int error = f.error;
  if (result > 0) comm::note_child(result);
  if (f.copy != nullptr) ::munmap(f.copy, static_cast<std::size_t>(f.stack.data() + f.stack.size() - f.live));
  if (result != 0) {
    ::close(f.ends[1]);
    result > 0 ? wait_for_child(runtime, result, f.ends[0]) : static_cast<void>(::close(f.ends[0]));
  }
  ::munmap(memory, kForkBytes);
  errno = error;
  return result;
}

}  // namespace

#endif

}  // namespace kasane::runtime

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

extern "C" [[gnu::visibility("default")]] pid_t fork() noexcept {
  using namespace kasane::runtime;
  static constinit Hidden<pid_t (*)()> libcs("fork");
  Runtime* const runtime = Runtime::current();
  if (runtime == nullptr || !(runtime->running() || runtime->attached()) || process().rank == kasane::kNoRank)
    return libcs.get()();
  const kasane::PassedCalls passed;
  return fork_on_private_stack(*runtime);
}

/// Parent and child would share a stack, and the child's faults need what it may close.
extern "C" [[gnu::visibility("default")]] pid_t vfork() noexcept { return ::fork(); }

#endif
