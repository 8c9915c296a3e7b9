// SPDX-License-Identifier: Apache-2.0
// What a program installs for a signal on one rank holds on all: in main, on a thread of any rank, in a
// handler.
//   everywhere        checks itself
//   everywhere ends   a thread of the last rank raises SIGTERM, for which nothing is installed
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <kasane/kasane.hpp>
#include <vector>

#include "../programs/check.h"

namespace {

std::atomic<int> g_calls{0};
volatile std::sig_atomic_t g_seen = 0;

void first(int) { g_calls.fetch_add(1); }
void second(int signal) {
  g_seen = signal;
  g_calls.fetch_add(100);
}
void installs_first(int signal) {
  g_calls.fetch_add(10'000);
  ::signal(signal, first);
}

template <typename Function>
void on_rank(std::uint32_t r, Function function) {
  const auto place = kasane::make_array<char>(1, kasane::placement::on(r));
  kasane::thread(kasane::near{place.get()}, function).join();
}
template <typename Function>
void on_every_rank(Function function) {
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) on_rank(r, function);
}

sighandler_t installed(int signal) {
  struct sigaction now = {};
  CHECK(::sigaction(signal, nullptr, &now) == 0);
  return now.sa_handler;
}

int calls_by(int signal) {
  g_calls = 0;
  on_every_rank([signal] { CHECK(std::raise(signal) == 0); });
  return g_calls.load();
}

void raised_everywhere(int signal) {
  const int ranks = static_cast<int>(kasane::ranks());
  CHECK(::signal(signal, first) != SIG_ERR);  // MPICH has one for SIGUSR1
  CHECK(calls_by(signal) == ranks);
  on_rank(kasane::ranks() - 1, [signal] { CHECK(::signal(signal, second) == first); });
  CHECK(installed(signal) == second && calls_by(signal) == 100 * ranks && g_seen == signal);
  // The first rank that is asked has the handler that installs another one.
  CHECK(::signal(signal, installs_first) == second);
  CHECK(calls_by(signal) == 10'000 + ranks - 1 && installed(signal) == first);
  CHECK(::signal(signal, SIG_IGN) == first);
  CHECK(calls_by(signal) == 0);
  on_every_rank([signal] { CHECK(installed(signal) == SIG_IGN); });
  CHECK(::signal(signal, SIG_DFL) == SIG_IGN);
  on_every_rank([signal] { CHECK(installed(signal) == SIG_DFL); });
}

/// SIGURG: its default is to ignore it.
void once() {
  struct sigaction action = {};
  action.sa_handler = first;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  CHECK(::sigaction(SIGURG, &action, nullptr) == 0);
  g_calls = 0;
  for (int i = 0; i < 2; ++i) on_rank(kasane::ranks() - 1, [] { std::raise(SIGURG); });
  std::raise(SIGURG);
  CHECK(g_calls == 1 && installed(SIGURG) == SIG_DFL);
}

/// By other processes of the job.
void sent() {
  CHECK(::signal(SIGUSR2, first) != SIG_ERR);
  g_calls = 0;
  on_every_rank([] {
    const int before = g_calls.load();
    CHECK(::kill(::getpid(), SIGUSR2) == 0);
    while (g_calls.load() == before) kasane::this_thread::yield();
    const pid_t child = ::fork();
    if (child == 0) {
      ::kill(::getppid(), SIGUSR2);
      ::_exit(0);
    }
    CHECK(::waitpid(child, nullptr, 0) == child);
    while (g_calls.load() == before + 1) kasane::this_thread::yield();
  });
  CHECK(g_calls == 2 * static_cast<int>(kasane::ranks()));
  CHECK(::signal(SIGUSR2, SIG_DFL) == first);
}

void broken_pipes() {
  CHECK(::signal(SIGPIPE, SIG_IGN) == SIG_DFL);
  on_every_rank([] {
    int ends[2];
    CHECK(::pipe(ends) == 0 && ::close(ends[0]) == 0);
    CHECK(::write(ends[1], "x", 1) == -1 && errno == EPIPE);
    ::close(ends[1]);
  });
}

void faults() {
  static sigjmp_buf back;
  CHECK(::signal(SIGSEGV, [](int) { ::siglongjmp(back, 1); }) == SIG_DFL);
  on_every_rank([] {
    if (sigsetjmp(back, 1) == 0) {
      *reinterpret_cast<volatile int*>(std::uintptr_t{0x555000}) = 1;
      CHECK(false);
    }
  });
  CHECK(::signal(SIGSEGV, SIG_DFL) != SIG_DFL);
}

/// Ranks that install different handlers at the same time agree in the end.
void at_the_same_time() {
  for (int round = 0; round < 50; ++round) {
    std::vector<kasane::thread> threads;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto place = kasane::make_array<char>(1, kasane::placement::on(r));
      threads.emplace_back(kasane::near{place.get()},
                           [r] { ::signal(SIGUSR1, r % 2 == 0 ? first : second); });
    }
    for (auto& t : threads) t.join();
    const sighandler_t last = installed(SIGUSR1);
    CHECK(last == first || last == second);
    on_every_rank([last] { CHECK(installed(SIGUSR1) == last); });
  }
  ::signal(SIGUSR1, SIG_DFL);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "ends") == 0) {
    kasane::run([] { on_rank(kasane::ranks() - 1, [] { std::raise(SIGTERM); }); });
    return 0;
  }
  CHECK(::signal(SIGWINCH, second) == SIG_DFL);  // before the threads
  kasane::run([] {
    CHECK(calls_by(SIGWINCH) == 100 * static_cast<int>(kasane::ranks()));
    for (const int signal : {SIGUSR1, SIGTERM, SIGALRM, SIGRTMIN + 3}) raised_everywhere(signal);
    once();
    sent();
    broken_pipes();
    faults();
    at_the_same_time();
  });
  return 0;
}
