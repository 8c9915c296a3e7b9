// SPDX-License-Identifier: Apache-2.0
#include "support/system_call_log.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#if defined(__x86_64__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

// The call that the filter lets through: by the address that the kernel would return to.
extern "C" {
long kasane_test_system_call(long number, std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d,
                             std::uint64_t e, std::uint64_t f);
extern const char kasane_test_system_call_made[];
}
asm(R"(
    .text
    .globl kasane_test_system_call, kasane_test_system_call_made
    .type kasane_test_system_call, @function
kasane_test_system_call:
    movq %rdi, %rax
    movq %rsi, %rdi
    movq %rdx, %rsi
    movq %rcx, %rdx
    movq %r8, %r10
    movq %r9, %r8
    movq 8(%rsp), %r9
    syscall
kasane_test_system_call_made:
    ret
    .size kasane_test_system_call, . - kasane_test_system_call
)");

namespace kasane::test {
namespace {

std::array<SystemCall, 1024> calls;
std::size_t made = 0;
thread_local bool filtered = false, logging = false;

void on_call(int, siginfo_t* info, void* context) {
  const int saved = errno;
  auto& machine = *static_cast<ucontext_t*>(context);
  auto& registers = machine.uc_mcontext.gregs;
  const auto argument = [&](int which) { return static_cast<std::uint64_t>(registers[which]); };
  const SystemCall call{info->si_syscall,
                        {argument(REG_RDI), argument(REG_RSI), argument(REG_RDX), argument(REG_R10),
                         argument(REG_R8), argument(REG_R9)}};
  if (logging && made < calls.size()) calls[made++] = call;
  const auto& a = call.arguments;
  registers[REG_RAX] = kasane_test_system_call(call.number, a[0], a[1], a[2], a[3], a[4], a[5]);
  // What the call did to the mask must outlast this handler, whose end restores it.
  if (call.number == SYS_rt_sigprocmask)
    kasane_test_system_call(SYS_rt_sigprocmask, SIG_BLOCK, 0,
                            reinterpret_cast<std::uint64_t>(&machine.uc_sigmask), 8, 0, 0);
  errno = saved;
}

void filter_this_thread() {
  struct sigaction action = {};
  action.sa_sigaction = on_call;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) throw std::runtime_error("sigaction(SIGSYS) failed");

  const auto place = reinterpret_cast<std::uint64_t>(kasane_test_system_call_made);
  const auto allowed = [](unsigned number, std::uint8_t to_allow) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, to_allow, 0);
  };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(place), 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(place >> 32), 9, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      allowed(SYS_rt_sigreturn, 7),
      allowed(SYS_sigaltstack, 6),  // not in a handler that is on that stack
      allowed(SYS_clone, 5),
      allowed(SYS_clone3, 4),
      allowed(SYS_vfork, 3),
      allowed(SYS_exit, 2),
      allowed(SYS_exit_group, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    throw std::runtime_error("this process may not filter its system calls");
  filtered = true;
}

}  // namespace

bool system_calls_can_be_logged() {
  // With a null program the kernel says EFAULT where it has filters.
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) != 0 && errno == EFAULT;
}

std::vector<SystemCall> system_calls_during(const std::function<void()>& function) {
  if (!filtered) filter_this_thread();
  made = 0;
  logging = true;
  function();
  logging = false;
  return {calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(made)};
}

}  // namespace kasane::test

#else

namespace kasane::test {
bool system_calls_can_be_logged() { return false; }
std::vector<SystemCall> system_calls_during(const std::function<void()>&) {
  throw std::logic_error("system calls cannot be logged on this processor");
}
}  // namespace kasane::test

#endif

std::string kasane::test::to_string(const SystemCall& call) {
  char text[160];
  std::snprintf(
      text, sizeof text, "system call %ld(0x%llx, 0x%llx, 0x%llx, 0x%llx)", call.number,
      static_cast<unsigned long long>(call.arguments[0]), static_cast<unsigned long long>(call.arguments[1]),
      static_cast<unsigned long long>(call.arguments[2]), static_cast<unsigned long long>(call.arguments[3]));
  return text;
}
