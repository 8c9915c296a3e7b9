// SPDX-License-Identifier: Apache-2.0
// System calls of every kind (made as they are, carried out, answered by the handler, with a child) on
// threads of every kind, with all registers live: general ones, x87, SSE, and what this processor has of AVX
// and AVX-512. All but rax, rcx and r11 are after a call what they were before, and so are the 128 bytes
// below the stack pointer. Prints what was not.
#include <cpuid.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <thread>

namespace {

constexpr std::uint32_t kParts = 0xe7;  ///< x87, SSE, AVX, AVX-512
constexpr std::size_t kImage = 2688, kRedZone = 128;

/// What a call is made with, and what is there after it. The assembly knows the offsets.
struct Live {
  long call[7];     ///< number, arguments
  long child_ends;  ///< 1: where the result is 0, the process or thread ends
  long after[13];   ///< result, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12 to r15
  std::uint64_t red_zone[kRedZone / 8];
  alignas(64) unsigned char before_image[kImage], after_image[kImage];
};
static_assert(offsetof(Live, child_ends) == 56 && offsetof(Live, after) == 64 &&
              offsetof(Live, red_zone) == 168 && offsetof(Live, before_image) == 320 &&
              offsetof(Live, after_image) == 3008);

extern "C" void live_call(Live*);
asm(R"(
        .text
        .p2align 4
live_call:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushq   %rdi
        movq    %rdi, %rcx
        movl    $0xe7, %eax
        xorl    %edx, %edx
        xrstor64 320(%rcx)
        movl    $16, %r11d
0:      movq    %r11, %rax
        negq    %rax
        movq    %r11, (%rsp, %rax, 8)
        decq    %r11
        jnz     0b
        movq    (%rcx), %rax
        movq    8(%rcx), %rdi
        movq    16(%rcx), %rsi
        movq    24(%rcx), %rdx
        movq    32(%rcx), %r10
        movq    40(%rcx), %r8
        movq    48(%rcx), %r9
        movl    $101, %ebx
        movl    $102, %ebp
        movl    $103, %r12d
        movl    $104, %r13d
        movl    $105, %r14d
        movl    $106, %r15d
        syscall
        movq    (%rsp), %rcx
        movq    %rax, 64(%rcx)
        movq    %rdi, 72(%rcx)
        movq    %rsi, 80(%rcx)
        movq    %rdx, 88(%rcx)
        movq    %r10, 96(%rcx)
        movq    %r8, 104(%rcx)
        movq    %r9, 112(%rcx)
        movq    %rbx, 120(%rcx)
        movq    %rbp, 128(%rcx)
        movq    %r12, 136(%rcx)
        movq    %r13, 144(%rcx)
        movq    %r14, 152(%rcx)
        movq    %r15, 160(%rcx)
        movl    $16, %r11d
0:      movq    %r11, %rax
        negq    %rax
        movq    (%rsp, %rax, 8), %rax
        movq    %rax, 160(%rcx, %r11, 8)
        decq    %r11
        jnz     0b
        movl    $0xe7, %eax
        xorl    %edx, %edx
        xsave64 3008(%rcx)
        fninit
        cmpq    $0, 56(%rcx)
        je      0f
        cmpq    $0, 64(%rcx)
        jne     0f
        movl    $60, %eax
        xorl    %edi, %edi
        syscall
        hlt
0:      popq    %rdi
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret
)");

/// A part of the image, at its offset in it.
struct Part {
  const char* name;
  std::uint32_t at, bytes;
};

std::atomic<int> g_wrong{0};

/// Of part 2 and above, as the processor says; 0 bytes where it has none.
Part part_of(unsigned number, const char* name) {
  unsigned bytes = 0, at = 0, c = 0, d = 0;
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> number & 1) == 0 || __get_cpuid_count(0xd, number, &bytes, &at, &c, &d) == 0)
    return {name, 0, 0};
  return {name, at, bytes};
}

template <class F>
void for_each_part(const F& f) {
  for (std::uint32_t i = 0; i < 8; ++i) f(Part{"x87", 32 + 16 * i, 10});
  f(Part{"xmm", 160, 256});
  f(part_of(2, "upper halves of ymm"));
  f(part_of(5, "mask registers"));
  f(part_of(6, "upper halves of zmm"));
  f(part_of(7, "zmm16 to zmm31"));
}

void prepare(Live& live, unsigned seed) {
  std::memset(static_cast<void*>(&live), 0, sizeof live);
  for_each_part([&](const Part& part) {
    for (std::uint32_t i = 0; i < part.bytes; ++i)
      live.before_image[part.at + i] = static_cast<unsigned char>(1 + (seed + part.at + 7 * i) % 255);
  });
  constexpr std::uint16_t kControl = 0x37f;
  constexpr std::uint32_t kMxcsr = 0x1f80;
  std::memcpy(live.before_image, &kControl, sizeof kControl);
  live.before_image[4] = 0xff;  // all x87 registers are in use
  std::memcpy(live.before_image + 24, &kMxcsr, sizeof kMxcsr);
  std::uint32_t has, high;
  asm volatile("xgetbv" : "=a"(has), "=d"(high) : "c"(0));
  const std::uint64_t in_use = has & kParts;
  std::memcpy(live.before_image + 512, &in_use, sizeof in_use);
}

void complain(const char* thread, const char* call, const char* what) {
  g_wrong.fetch_add(1);
  char line[200];
  const int n = std::snprintf(line, sizeof line, "%s, %s: %s changed\n", thread, call, what);
  if (::write(2, line, static_cast<std::size_t>(n)) != n) std::abort();
}

void check(const Live& live, const char* thread, const char* call) {
  for_each_part([&](const Part& part) {
    if (std::memcmp(live.before_image + part.at, live.after_image + part.at, part.bytes) != 0)
      complain(thread, call, part.name);
  });
  if (std::memcmp(live.call + 1, live.after + 1, 6 * sizeof(long)) != 0)
    complain(thread, call, "a register of an argument");
  for (int i = 0; i < 6; ++i)
    if (live.after[7 + i] != 101 + i) complain(thread, call, "a general register");
  for (std::size_t i = 0; i < kRedZone / 8; ++i)
    if (live.red_zone[i] != i + 1) return complain(thread, call, "the red zone");
}

/// Private memory, and what a child needs of it.
class Room {
 public:
  Room() : at_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) std::abort();
  }
  ~Room() { ::munmap(at_, kBytes); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  [[nodiscard]] Live& parent() const { return static_cast<Live*>(at_)[0]; }
  [[nodiscard]] Live& child() const { return static_cast<Live*>(at_)[1]; }
  [[nodiscard]] char* private_bytes() const { return static_cast<char*>(at_) + 2 * sizeof(Live); }
  /// Where a child's stack begins; on it is what live_call() finds there.
  [[nodiscard]] char* child_stack() const {
    char* const top = static_cast<char*>(at_) + kBytes - 64;
    const Live* const its = &child();
    std::memcpy(top, &its, sizeof its);
    return top;
  }
  [[nodiscard]] char* stack_low() const { return static_cast<char*>(at_) + kBytes / 2; }

 private:
  static constexpr std::size_t kBytes = 64 * 1024;
  void* const at_;
};

struct Calls {
  const char* thread;
  char* global;  ///< memory of the space
  int file;      ///< that can be read and written
  bool with_children;
};

long make(const Calls& calls, const char* name, Room& room, std::initializer_list<long> call,
          bool child_ends = false) {
  Live& live = room.parent();
  prepare(live, 17);
  std::size_t i = 0;
  for (const long word : call) live.call[i++] = word;
  for (; i < 7; ++i)
    live.call[i] = 1000 + static_cast<long>(i);  // unused arguments are registers like others
  live.child_ends = child_ends ? 1 : 0;
  live_call(&live);
  check(live, calls.thread, name);
  return live.after[0];
}

void expect(const Calls& calls, const char* name, bool right) {
  if (!right) complain(calls.thread, name, "its result");
}

long word(const void* p) { return reinterpret_cast<long>(p); }

/// The child's registers are the parent's, too.
void make_with_child(const Calls& calls, const char* name, Room& room, std::initializer_list<long> call) {
  prepare(room.child(), 17);
  room.child().child_ends = 1;
  const long child = make(calls, name, room, call, true);
  expect(calls, name, child > 0);
  int status = 0;
  while (child > 0 && ::waitpid(static_cast<pid_t>(child), &status, __WALL) < 0 && errno == EINTR) {
  }
  expect(calls, name, child > 0 && status == 0);
  const Live& its = room.child();
  for_each_part([&](const Part& part) {
    if (std::memcmp(room.parent().before_image + part.at, its.after_image + part.at, part.bytes) != 0)
      complain(calls.thread, name, part.name);
  });
  for (int i = 0; i < 6; ++i)
    if (its.after[7 + i] != 101 + i) complain(calls.thread, name, "a general register of the child");
  expect(calls, name, std::memcmp(room.parent().call + 1, its.after + 1, 6 * sizeof(long)) == 0);
}

void make_all(const Calls& calls) {
  Room room;
  char* const mine = room.private_bytes();
  std::memset(mine, 'p', 64);
  std::memset(calls.global, 'g', 64);
  const long file = calls.file;
  expect(calls, "getpid", make(calls, "getpid", room, {SYS_getpid}) == ::getpid());
  expect(calls, "pwrite", make(calls, "pwrite", room, {SYS_pwrite64, file, word(mine), 64, 0}) == 64);
  expect(
      calls, "pwrite of global memory",
      make(calls, "pwrite of global memory", room, {SYS_pwrite64, file, word(calls.global), 64, 64}) == 64);
  expect(calls, "pread", make(calls, "pread", room, {SYS_pread64, file, word(mine), 64, 64}) == 64);
  expect(calls, "pread", std::memcmp(mine, calls.global, 64) == 0);
  expect(calls, "pread to global memory",
         make(calls, "pread to global memory", room, {SYS_pread64, file, word(calls.global), 64, 0}) == 64);
  expect(calls, "pread to global memory", calls.global[63] == 'p');
  std::strcpy(calls.global, "/dev/null");
  const long opened = make(calls, "openat", room, {SYS_openat, AT_FDCWD, word(calls.global), O_WRONLY, 0});
  expect(calls, "openat", opened >= 0);
  expect(calls, "write", make(calls, "write", room, {SYS_write, opened, word(calls.global), 10}) == 10);
  expect(calls, "close", make(calls, "close", room, {SYS_close, opened}) == 0);
  expect(calls, "rt_sigprocmask",
         make(calls, "rt_sigprocmask", room, {SYS_rt_sigprocmask, SIG_BLOCK, 0, word(mine), 8}) == 0);
  expect(calls, "sigaltstack", make(calls, "sigaltstack", room, {SYS_sigaltstack, 0, word(mine)}) == 0);
  if (!calls.with_children) return;
  constexpr long kFlags = CLONE_VM | CLONE_VFORK | SIGCHLD;
  make_with_child(calls, "clone", room, {SYS_clone, kFlags, word(room.child_stack()), 0, 0, 0});
  auto* const arguments = reinterpret_cast<clone_args*>(mine);
  std::memset(static_cast<void*>(arguments), 0, sizeof *arguments);
  arguments->flags = CLONE_VM | CLONE_VFORK;
  arguments->exit_signal = SIGCHLD;
  arguments->stack = reinterpret_cast<std::uint64_t>(room.stack_low());
  arguments->stack_size = static_cast<std::uint64_t>(room.child_stack() - room.stack_low());
  make_with_child(calls, "clone3", room, {SYS_clone3, word(arguments), sizeof *arguments});
}

// ---- threads of every kind ----

/// Global memory and a file for the calls of one thread. In main it is made, so that an OS thread uses it.
struct Given {
  std::unique_ptr<char[]> global = std::make_unique<char[]>(4096);
  int file = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  Given() {
    if (file < 0) std::abort();
  }
  ~Given() { ::close(file); }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  [[nodiscard]] Calls calls(const char* thread, bool with_children = true) const {
    return {thread, global.get(), file, with_children};
  }
};

thread_local const Calls* t_in_handler = nullptr;
[[gnu::noinline]] const Calls* in_handler() { return t_in_handler; }
[[gnu::noinline]] void set_in_handler(const Calls* calls) { t_in_handler = calls; }

void on_signal(int) { make_all(*in_handler()); }

/// In a handler of a signal that the calling thread raises, with this flag of sigaction().
void in_signal_handler(const char* thread, int flags) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = flags;
  if (::sigaction(SIGUSR1, &action, nullptr) != 0) std::abort();
  const Given given;
  const Calls calls = given.calls(thread);
  set_in_handler(&calls);
  ::raise(SIGUSR1);
  set_in_handler(nullptr);
}

void in_child(const char* thread) {
  const Given given;
  const pid_t child = ::fork();
  if (child == 0) {
    g_wrong = 0;
    make_all(given.calls(thread, false));
    ::_exit(g_wrong == 0 ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0)
    complain(thread, "fork", "its child");
}

/// Asks for a signal stack of its own; the next call says that it has it.
void set_signal_stack(char* at, std::size_t bytes, int flags) {
  stack_t stack = {}, now = {};
  stack.ss_sp = at;
  stack.ss_size = bytes;
  stack.ss_flags = flags;
  if (::sigaltstack(&stack, nullptr) != 0 || ::sigaltstack(nullptr, &now) != 0) std::abort();
  const bool has = (now.ss_flags & SS_DISABLE) == 0;
  if (has != (flags != SS_DISABLE) || (has && (now.ss_sp != at || now.ss_size != bytes)))
    complain("sigaltstack", "the program's", "its stack");
}

void on_os_thread(const char* thread) {
  const Given given;
  make_all(given.calls(thread));
  in_signal_handler("a handler on an OS thread", 0);
  in_signal_handler("a handler on an OS thread, SA_ONSTACK", SA_ONSTACK);
  in_child("the child of an OS thread");
}

char g_signal_stack[8192];  ///< in the space, as most programs have it

void own_signal_stack(const char* thread, char* at, std::size_t bytes, int flags) {
  std::thread([=] {
    set_signal_stack(at, bytes, flags);
    on_os_thread(thread);
  }).join();
}

void* on_pthread(void*) {
  on_os_thread("a thread with a small stack");
  return nullptr;
}

void on_threads_of_the_program() {
  std::thread([] { on_os_thread("std::thread"); }).join();
  own_signal_stack("a thread without a signal stack", nullptr, 0, SS_DISABLE);
  own_signal_stack("a thread with a small signal stack", g_signal_stack, sizeof g_signal_stack, 0);
  const auto large = std::make_unique<char[]>(1 << 18);
  own_signal_stack("a thread with a large signal stack", large.get(), 1 << 18, 0);
  pthread_attr_t small;
  pthread_t made;
  if (pthread_attr_init(&small) != 0 || pthread_attr_setstacksize(&small, 64 * 1024) != 0 ||
      pthread_create(&made, &small, on_pthread, nullptr) != 0 || pthread_join(made, nullptr) != 0)
    std::abort();
  thrd_t of_c;
  const auto function = [](void*) {
    on_os_thread("thrd_create");
    return 0;
  };
  if (thrd_create(&of_c, function, nullptr) != thrd_success || thrd_join(of_c, nullptr) != thrd_success)
    std::abort();
}

void on_a_thread_of_run(const char* thread) {
  const Given given;
  make_all(given.calls(thread));
}

}  // namespace

int main() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0)
    return std::puts("skipped: no XSAVE, by which registers are set and looked at") < 0 ? 1 : 0;
  {
    const Given given;
    make_all(given.calls("main"));
  }
  in_signal_handler("a handler in main", 0);
  in_signal_handler("a handler in main, SA_ONSTACK", SA_ONSTACK);
  in_child("the child of main");
  on_threads_of_the_program();
  set_signal_stack(g_signal_stack, sizeof g_signal_stack, 0);
  in_signal_handler("a handler in main with a signal stack", SA_ONSTACK);
  kasane::run([] {
    on_a_thread_of_run("the first thread of run()");
    in_signal_handler("a handler on a thread of run()", SA_ONSTACK);
    kasane::parallel_for(0, 16, [](int) { on_a_thread_of_run("a thread of run()"); });
    std::thread([] { on_os_thread("std::thread of a thread of run()"); }).join();
  });
  const int wrong = g_wrong;
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
