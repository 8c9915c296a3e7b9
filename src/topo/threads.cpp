// SPDX-License-Identifier: Apache-2.0
#include "topo/threads.h"

#include <dirent.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <span>

#include "topo/cgroup.h"

namespace kasane::topo {
namespace {

std::string word_in(const char* file) {
  std::string text;
  std::ifstream(file) >> text;
  return text.empty() ? "unknown" : text;
}

}  // namespace

std::vector<pid_t> os_threads() {
  std::vector<pid_t> found;
  DIR* const folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t thread = std::atoi(entry->d_name);
    if (thread == 0) continue;
    const std::string name = word_in(("/proc/self/task/" + std::to_string(thread) + "/comm").c_str());
    if (!name.starts_with("iou-")) found.push_back(thread);
  }
  ::closedir(folder);
  std::ranges::sort(found);
  return found;
}

std::size_t thread_local_bytes() noexcept {
  std::size_t bytes = 0;
  const auto add = [](dl_phdr_info* object, std::size_t, void* sum) {
    for (const ElfW(Phdr) & part : std::span(object->dlpi_phdr, object->dlpi_phnum))
      if (part.p_type == PT_TLS) *static_cast<std::size_t*>(sum) += part.p_memsz;
    return 0;
  };
  ::dl_iterate_phdr(add, &bytes);
  return bytes;
}

// The C library makes them as large as thread_locals and a page or two, at least, so a second call changes
// nothing.
void make_stacks_hold_thread_locals() noexcept {
  pthread_attr_t usual;
  std::size_t bytes = 0;
  const std::size_t taken = thread_local_bytes();
  if (::pthread_getattr_default_np(&usual) != 0) return;
  if (::pthread_attr_getstacksize(&usual, &bytes) == 0 && taken > bytes / 2 &&
      ::pthread_attr_setstacksize(&usual, bytes + taken) == 0)
    ::pthread_setattr_default_np(&usual);
  ::pthread_attr_destroy(&usual);
}

void block_signals_of_program() noexcept {
  sigset_t mask;
  ::sigfillset(&mask);
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS})
    ::sigdelset(&mask, crash);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

std::string full_process_limit(int error) {
  if (error == EPERM) return "where clone3 is not allowed, it must fail with ENOSYS: libc then calls clone";
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
  return "the kernel's limits are kernel.threads-max " + word_in("/proc/sys/kernel/threads-max") +
         " and kernel.pid_max " + word_in("/proc/sys/kernel/pid_max") +
         "; or memory for a stack is missing: start fewer ranks or workers";
}

}  // namespace kasane::topo
