// SPDX-License-Identifier: Apache-2.0
#include "guarded.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "rows.h"

namespace kasane::bench {
namespace {

constexpr unsigned kGraceSeconds = 5;

volatile sig_atomic_t g_group = 0;  // of signal handlers, which have no other place
volatile sig_atomic_t g_asked = 0;

void on_signal(int number) {
  const int saved = errno;
  if (number == SIGALRM) {
    ::kill(-static_cast<pid_t>(g_group), SIGKILL);
  } else {
    g_asked = number;
    ::kill(-static_cast<pid_t>(g_group), number);
    ::alarm(kGraceSeconds);
  }
  errno = saved;
}

}  // namespace

int run_guarded(const char* name, const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int status = or_told(name, body);
    std::fflush(nullptr);
    ::_exit(status);
  }
  ::setpgid(child, child);
  g_group = child;
  struct sigaction action{};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) ::sigaction(number, &action, nullptr);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::alarm(0);
  ::kill(-child, SIGKILL);  // processes that the child left behind
  if (g_asked != 0) return 128 + g_asked;
  if (WIFSIGNALED(status)) std::fprintf(stderr, "%s: ended by signal %d\n", name, WTERMSIG(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kasane::bench
