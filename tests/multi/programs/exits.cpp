// SPDX-License-Identifier: Apache-2.0
// Ends in the ways that end a process, on threads of the first and of the last rank. exits.py knows with
// which status, and what has to come out.
#include <err.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <kasane/kasane.hpp>
#include <map>
#include <string>
#include <thread>

namespace {

void on_last_rank(const std::function<void()>& deed) {
  void* const there = kasane_allocate_at(8, 8, kasane_ranks() - 1);
  kasane::thread([&] {
    kasane::this_thread::move_near(there);
    deed();
  }).join();
}

/// The child of vfork() runs on this process's memory: its _exit() is not the job's.
int child_of_vfork() {
  int status = 0;
  std::thread([&status] {
    const pid_t pid = ::vfork();
    if (pid == 0) ::_exit(7);
    ::waitpid(pid, &status, 0);
  }).join();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const std::map<std::string, std::function<void()>> kDeeds = {
    {"exit0", [] { std::exit(0); }},
    {"exit5", [] { std::exit(5); }},
    {"last-exit0", [] { on_last_rank([] { std::exit(0); }); }},
    {"last-exit5", [] { on_last_rank([] { std::exit(5); }); }},
    {"last-errx", [] { on_last_rank([] { ::errx(3, "as told"); }); }},
    {"errx", [] { ::errx(3, "as told"); }},
    {"last-_exit0", [] { on_last_rank([] { ::_exit(0); }); }},
    {"last-_Exit6", [] { on_last_rank([] { std::_Exit(6); }); }},
    {"quick_exit6", [] { std::quick_exit(6); }},
    {"last-quick_exit0", [] { on_last_rank([] { std::quick_exit(0); }); }},
    {"os-thread-exit4", [] { on_last_rank([] { std::thread([] { std::exit(4); }).join(); }); }},
    {"vfork", [] { std::exit(child_of_vfork()); }},
    {"two",
     [] {
       kasane::thread other([] { on_last_rank([] { std::exit(5); }); });
       std::exit(5);
     }},
    {"busy",
     [] {
       kasane::thread other([] {
         for (volatile int i = 0;;) {
           i = i + 1;
         }
       });
       std::exit(5);
     }},
};

}  // namespace

int main(int, char** argv) {
  std::atexit([] { std::printf("atexit on rank %u\n", kasane_rank()); });
  kasane::run([&] {
    std::printf("part of a line, ");
    kDeeds.at(argv[1])();
  });
}
