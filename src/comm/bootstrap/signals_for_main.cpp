// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/signals_for_main.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace kasane::comm {
namespace {

constinit pid_t g_supervisor = 0;

constexpr std::uint32_t kChildren = 64;
constinit std::atomic<pid_t> g_children[kChildren] = {};
constinit std::atomic<std::uint32_t> g_made{0};

bool is_child(pid_t process) noexcept {
  // relaxed: the parent notes it before it can wait for it
  for (const auto& child : g_children)
    if (child.load(std::memory_order_relaxed) == process) return true;
  return false;
}

/// "/proc/PID/stat"; `to` has room for 32 bytes.
void put_path(char* to, pid_t process) noexcept {
  char digits[16];
  int n = 0;
  for (; process != 0; process /= 10) digits[n++] = static_cast<char>('0' + process % 10);
  std::memcpy(to, "/proc/", 6);
  to += 6;
  while (n > 0) *to++ = digits[--n];
  std::memcpy(to, "/stat", 6);
}

/// 0: not known.
pid_t parent_of(pid_t process) noexcept {
  char path[32];
  put_path(path, process);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];  // PID (NAME of at most 64 bytes) STATE PARENT …
  const ssize_t n = ::read(file, text, sizeof text);
  ::close(file);
  const void* const name_end = n > 0 ? ::memrchr(text, ')', static_cast<std::size_t>(n)) : nullptr;
  if (name_end == nullptr) return 0;
  pid_t parent = 0;
  const char* const end = text + n;
  for (const char* c = static_cast<const char*>(name_end) + 4; c < end && *c >= '0' && *c <= '9'; ++c)
    parent = 10 * parent + (*c - '0');
  return parent;
}

}  // namespace

bool for_main(int signal) noexcept {
  return std::find(std::begin(kForMain), std::end(kForMain), signal) != std::end(kForMain);
}

struct sigaction action_for_main() noexcept {
  struct sigaction action = {};
  action.sa_sigaction = on_signal_for_main;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  return action;
}

bool is_action_for_main(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal_for_main;
}

Sender sender_of(const siginfo_t& info) noexcept {
  if (info.si_code == SI_KERNEL) return Sender::other;  // the terminal's
  if (info.si_code != SI_USER && info.si_code != SI_TKILL && info.si_code != SI_QUEUE) return Sender::job;
  const pid_t self = ::getpid();
  if (info.si_pid == 0) return Sender::other;  // of another PID namespace
  if (info.si_pid == self || is_child(info.si_pid)) return Sender::job;
  if (info.si_pid == g_supervisor) return Sender::supervisor;
  const int saved = errno;
  pid_t parent = parent_of(info.si_pid);
  if (parent != 0 && parent != self && parent != g_supervisor) parent = parent_of(parent);  // a rank's child
  errno = saved;
  return parent != 0 && (parent == self || parent == g_supervisor) ? Sender::job : Sender::other;
}

void on_signal_for_main(int signal, siginfo_t* info, void*) {
  if (sender_of(*info) == Sender::other) return;
  // The kernel's call: sigaction() would install this function again. As the kernel's struct, all zeros are
  // SIG_DFL.
  constexpr unsigned long kDefault[4] = {};
  ::syscall(SYS_rt_sigaction, signal, kDefault, nullptr, sizeof(unsigned long));
  // taken when this handler returns
  ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
}

void note_child(pid_t child) noexcept {
  g_children[g_made.fetch_add(1, std::memory_order_relaxed) % kChildren].store(child,
                                                                               std::memory_order_relaxed);
}

void note_supervisor(pid_t supervisor) noexcept { g_supervisor = supervisor; }

}  // namespace kasane::comm
