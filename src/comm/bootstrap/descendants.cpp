// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"

namespace kasane::comm {
namespace {

/// The parent of a process, from /proc/PID/stat; 0 if it is gone.
pid_t parent_of(const char* pid) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  // The name is in parentheses and may contain anything, also parentheses: look for the last one.
  const char* after = std::strrchr(text, ')');
  int parent = 0;
  char state = 0;
  return after != nullptr && std::sscanf(after + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return found;
  const pid_t self = ::getpid();
  while (const dirent* entry = ::readdir(proc)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) == self) found.push_back(static_cast<pid_t>(std::atol(entry->d_name)));
  }
  ::closedir(proc);
  return found;
}

/// Reaps dead children. False when no child is left.
bool reap() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0) return false;
  }
}

}  // namespace

int end_descendants(std::int64_t limit_ns) {
  const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(limit_ns);
  while (reap()) {
    const std::vector<pid_t> left = children();
    if (now_ns() > deadline) return static_cast<int>(left.size());
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return 0;
}

}  // namespace kasane::comm
