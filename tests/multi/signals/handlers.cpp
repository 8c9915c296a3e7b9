// SPDX-License-Identifier: Apache-2.0
// Signal handlers as programs have them: they store to variables of the program, and each does what POSIX
// says. In main, on an OS thread of the program, and on threads of all ranks.
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <spawn.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <kasane/kasane.hpp>
#include <thread>

#include "../programs/check.h"

extern "C" sighandler_t __sysv_signal(int, sighandler_t);

namespace {

volatile std::sig_atomic_t g_seen, g_depth, g_deepest;
std::atomic<int> g_calls{0};
int g_value, g_code, g_pipe[2];
char g_line[] = "written by a handler\n";

void reset() {
  g_seen = 0;
  g_depth = 0;
  g_deepest = 0;
}
void on_signal(int signal) {
  g_seen = signal;
  g_calls.fetch_add(1);
}
void on_info(int, siginfo_t* info, void*) {
  g_value = info->si_value.sival_int;
  g_code = info->si_code;
  g_seen = g_seen + 1;
}
void on_nested(int signal) {
  g_depth = g_depth + 1;
  if (g_depth > g_deepest) g_deepest = g_depth;
  g_seen = g_seen + 1;
  if (g_seen < 3) std::raise(signal);
  g_depth = g_depth - 1;
}
void raise_usr2(int) {
  std::raise(SIGUSR2);
  g_deepest = g_seen;
}
void write_line(int) { g_seen = ::write(g_pipe[1], g_line, sizeof g_line) == sizeof g_line ? 1 : -1; }
void fault_inside(int) {
  static int table[1 << 16];
  for (int& word : table) g_seen = g_seen + (++word > 0);
}

struct sigaction install(int signal, sighandler_t handler, int flags = 0, int also_blocked = 0) {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (also_blocked != 0) sigaddset(&action.sa_mask, also_blocked);
  CHECK(::sigaction(signal, &action, &old) == 0);
  return old;
}

void what_is_installed_is_returned() {
  CHECK(::signal(SIGUSR1, on_signal) != SIG_ERR);
  CHECK(::signal(SIGUSR1, SIG_IGN) == on_signal);
  CHECK(std::raise(SIGUSR1) == 0);
  install(SIGUSR1, write_line, SA_NODEFER, SIGUSR2);
  const struct sigaction seen = install(SIGUSR1, SIG_DFL);
  CHECK(seen.sa_handler == write_line && seen.sa_flags == SA_NODEFER &&
        sigismember(&seen.sa_mask, SIGUSR2) == 1);
  CHECK(install(SIGUSR1, SIG_DFL).sa_handler == SIG_DFL);
  errno = 0;
  CHECK(::signal(SIGKILL, on_signal) == SIG_ERR && errno == EINVAL);
  CHECK(::signal(1000, on_signal) == SIG_ERR && errno == EINVAL);
}

void raised() {
  reset();
  install(SIGUSR1, on_signal);
  const int before = g_calls.load();
  for (int i = 0; i < 100; ++i) {
    CHECK(std::raise(SIGUSR1) == 0);
    CHECK(g_seen == SIGUSR1 && g_calls.load() == before + i + 1);
  }
  install(SIGUSR1, fault_inside);
  reset();
  std::raise(SIGUSR1);
  CHECK(g_seen == 1 << 16);
}

void with_information() {
  reset();
  struct sigaction action = {};
  action.sa_sigaction = on_info;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGRTMIN + 1, &action, nullptr);
  sigval value;
  value.sival_int = 4711;
  CHECK(::pthread_sigqueue(::pthread_self(), SIGRTMIN + 1, value) == 0);
  CHECK(g_seen == 1 && g_value == 4711 && g_code == SI_QUEUE);
}

void flags() {
  install(SIGUSR1, on_nested, SA_NODEFER);
  reset();
  std::raise(SIGUSR1);
  CHECK(g_seen == 3 && g_deepest == 3);
  install(SIGUSR1, on_nested);
  reset();
  std::raise(SIGUSR1);
  CHECK(g_seen == 3 && g_deepest == 1);
  install(SIGUSR2, on_signal);
  install(SIGUSR1, raise_usr2, 0, SIGUSR2);
  reset();
  std::raise(SIGUSR1);
  CHECK(g_seen == SIGUSR2 && g_deepest == 0);
  install(SIGUSR1, raise_usr2);
  reset();
  std::raise(SIGUSR1);
  CHECK(g_seen == SIGUSR2 && g_deepest == SIGUSR2);

  install(SIGURG, on_signal, static_cast<int>(SA_RESETHAND));  // whose default is to ignore it
  reset();
  std::raise(SIGURG);
  CHECK(g_seen == SIGURG);
  reset();
  std::raise(SIGURG);
  CHECK(g_seen == 0 && install(SIGURG, SIG_DFL).sa_handler == SIG_DFL);
  CHECK(__sysv_signal(SIGURG, on_signal) == SIG_DFL);
  std::raise(SIGURG);
  CHECK(g_seen == SIGURG && ::signal(SIGURG, SIG_DFL) == SIG_DFL);
}

void masked() {
  reset();
  install(SIGUSR1, on_signal);
  sigset_t usr1, before, now;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  CHECK(::pthread_sigmask(SIG_BLOCK, &usr1, &before) == 0);
  std::raise(SIGUSR1);
  CHECK(g_seen == 0);
  errno = 0;
  CHECK(::sigsuspend(&before) == -1 && errno == EINTR && g_seen == SIGUSR1);
  CHECK(::pthread_sigmask(SIG_SETMASK, &before, &now) == 0 && sigismember(&now, SIGUSR1) == 1);
}

/// Sends SIGUSR1 to the calling OS thread again and again while it lives.
class Sender {
 public:
  Sender()
      : thread_([this, to = ::pthread_self()] {
          for (; !stop_.load(); ::usleep(2000)) ::pthread_kill(to, SIGUSR1);
        }) {}
  ~Sender() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void waits_are_interrupted() {
  char byte = 0;
  int ends[2];
  CHECK(::pipe(ends) == 0);
  install(SIGUSR1, on_signal);
  const Sender sender;
  const timespec second{1, 0};
  timeval limit{1, 0};
  pollfd file{ends[0], POLLIN, 0};
  for (int i = 0; i < 5; ++i) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    CHECK(::pause() == -1 && errno == EINTR);
    CHECK(::nanosleep(&second, nullptr) == -1 && errno == EINTR);
    CHECK(::read(ends[0], &byte, 1) == -1 && errno == EINTR);
    CHECK(::poll(&file, 1, 1000) == -1 && errno == EINTR);
    CHECK(::select(ends[0] + 1, &set, nullptr, nullptr, &limit) == -1 && errno == EINTR);
  }
  install(SIGUSR1, on_signal, SA_RESTART);
  std::thread writer([&] {
    ::usleep(20'000);
    CHECK(::write(ends[1], "x", 1) == 1);
  });
  CHECK(::read(ends[0], &byte, 1) == 1 && byte == 'x');
  writer.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

void written_by_a_handler() {
  reset();
  CHECK(::pipe(g_pipe) == 0);
  install(SIGUSR1, write_line);
  std::raise(SIGUSR1);
  char got[sizeof g_line] = {};
  CHECK(g_seen == 1);
  CHECK(::read(g_pipe[0], got, sizeof got) == sizeof got);
  CHECK(std::strcmp(got, g_line) == 0);
  ::close(g_pipe[0]);
  ::close(g_pipe[1]);
}

template <typename Ready>
void await(Ready ready) {
  for (int i = 0; i < 10'000 && !ready(); ++i) ::usleep(1000);
  CHECK(ready());
}

/// Signals to the process: any of its threads may handle them.
void timers_and_children() {
  int before = g_calls.load();
  install(SIGALRM, on_signal);
  const itimerval soon{{0, 0}, {0, 1000}};
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  await([&] { return g_calls.load() > before; });

  before = g_calls.load();
  install(SIGRTMIN + 2, on_signal);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMIN + 2;
  timer_t timer;
  CHECK(::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  const itimerspec often{{0, 1'000'000}, {0, 1'000'000}};
  CHECK(::timer_settime(timer, 0, &often, nullptr) == 0);
  await([&] { return g_calls.load() >= before + 20; });
  ::timer_delete(timer);

  before = g_calls.load();
  install(SIGCHLD, on_signal, SA_RESTART);
  char name[] = "true";
  char* const arguments[] = {name, nullptr};
  pid_t child = 0;
  CHECK(::posix_spawnp(&child, name, nullptr, nullptr, arguments, nullptr) == 0);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  await([&] { return g_calls.load() > before; });
  install(SIGCHLD, SIG_DFL);
}

void jumps_out() {
  static sigjmp_buf back;
  static int i;  // no register: longjmp
  for (i = 0; i < 100; ++i) {
    install(SIGUSR1, [](int) { ::siglongjmp(back, 1); });  // the thread may have gone to another rank
    if (sigsetjmp(back, 1) == 0) {
      std::raise(SIGUSR1);
      CHECK(false);
    }
    kasane::thread([] {}).join();
  }
}

void all() {
  what_is_installed_is_returned();
  raised();
  with_information();
  flags();
  masked();
  waits_are_interrupted();
  written_by_a_handler();
  timers_and_children();
}

volatile std::sig_atomic_t g_stop;
std::atomic<bool> g_atomic_stop{false}, g_begun{false};

/// A thread elsewhere polls what a handler in main stores, with an atomic and as programs do it, plainly.
void polled(bool plainly) {
  g_stop = 0;
  g_atomic_stop = false;
  g_begun = false;
  install(SIGINT, [](int) {
    g_stop = 1;
    g_atomic_stop.store(true);
  });
  std::thread sender([] {
    while (!g_begun.load()) ::usleep(1000);
    ::kill(::getpid(), SIGINT);
  });
  kasane::run([plainly] {
    const auto place = kasane::make_array<char>(1, kasane::placement::on(kasane::ranks() - 1));
    kasane::thread(kasane::near{place.get()}, [plainly] {
      CHECK(g_stop == 0);
      g_begun = true;
      while (plainly ? g_stop == 0 : !g_atomic_stop.load()) {
      }
    }).join();
  });
  sender.join();
}

}  // namespace

int main() {
  all();
  std::thread(all).join();
  kasane::run([] {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto place = kasane::make_array<char>(1, kasane::placement::on(r));
      kasane::thread(kasane::near{place.get()}, all).join();
    }
    jumps_out();
  });
  polled(false);
  polled(true);
  // Handlers while the job ends.
  install(SIGALRM, on_signal);
  const itimerval often{{0, 100}, {0, 100}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  return 0;
}
