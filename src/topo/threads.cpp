// SPDX-License-Identifier: Apache-2.0
#include "topo/threads.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "topo/cgroup.h"

namespace kasane::topo {
namespace {

std::string number_in(const char* file) {
  std::string text;
  std::ifstream(file) >> text;
  return text.empty() ? "unknown" : text;
}

}  // namespace

void block_signals_of_program() noexcept {
  sigset_t mask;
  ::sigfillset(&mask);
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS})
    ::sigdelset(&mask, crash);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

std::string full_process_limit() {
  // Other processes of the group may have ended since, or may have been refused as well.
  const auto group = process_limit();
  if (group && group->room() <= group->most / 8) {
    return "the control group has " + std::to_string(group->taken) + " processes and threads and may have " +
           std::to_string(group->most) + ": raise " + group->file +
           " (a container's --pids-limit, TasksMax of a systemd unit), or start fewer ranks or workers";
  }
  rlimit user = {};
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY) {
    return "this user may have " + std::to_string(user.rlim_cur) +
           " processes and threads: raise ulimit -u, or start fewer ranks or workers";
  }
  return "the kernel's limits are kernel.threads-max " + number_in("/proc/sys/kernel/threads-max") +
         " and kernel.pid_max " + number_in("/proc/sys/kernel/pid_max") +
         "; or memory for a stack is missing: start fewer ranks or workers";
}

}  // namespace kasane::topo
