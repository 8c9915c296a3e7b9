// SPDX-License-Identifier: Apache-2.0
// A program that closes, replaces or copies all descriptors, as daemons, shells and Python's subprocess do,
// in main, on threads, on an OS thread, and in children that become another program: the runtime's are not
// the program's.
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

/// f(number) for those that programs have, and those that the runtime may have.
template <class F>
void for_each_number(const F& f) {
  for (const int first : {3, 1024, 4090})
    for (int d = first; d < first + 290; ++d) f(d);
}

void by_loop() {
  for_each_number([](int d) { ::close(d); });
}
void by_close_range() { CHECK(::close_range(3, ~0u, 0) == 0); }
void by_system_call() { CHECK(::syscall(SYS_close_range, 3u, ~0u, 0u) == 0); }
void by_closefrom() { ::closefrom(3); }
void by_dup2() {
  const int null = ::open("/dev/null", O_RDWR);
  for_each_number([=](int d) {
    if (d != null && ::fcntl(d, F_GETFD) >= 0) CHECK(::dup2(null, d) == d);
  });
  by_loop();
}
/// Whatever is there: what is not the program's is not replaced.
void by_dup2_of_all() {
  const int null = ::open("/dev/null", O_RDWR);
  for_each_number([=](int d) {
    if (d != null) CHECK(::dup2(null, d) == d || errno == EBUSY || errno == EBADF);
  });
  by_loop();
}
/// As Python's subprocess, and libc's closefrom() on Linux before 5.9.
void by_list() {
  std::vector<int> open;
  DIR* const folder = ::opendir("/proc/self/fd");
  CHECK(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) open.push_back(std::atoi(entry->d_name));
  ::closedir(folder);
  for (const int d : open)
    if (d > 2) ::close(d);
}
constexpr void (*kWays[])() = {by_loop, by_close_range, by_system_call, by_closefrom,
                               by_dup2, by_dup2_of_all, by_list};

/// Blocks of all ranks, more of them than a small --dram holds.
void compute() {
  constexpr int kNumbers = 1 << 19;
  kasane::run([] {
    auto numbers = kasane::make_array<long>(kNumbers, kasane::placement::cyclic);
    kasane::parallel_for(0, kNumbers, [&](int i) { numbers[i] = i; });
    const long sum = kasane::parallel_reduce(
        0, kNumbers, 0L, [&](int i) { return numbers[i]; }, [](long x, long y) { return x + y; });
    CHECK(sum == long{kNumbers} * (kNumbers - 1) / 2);
  });
}

void end_of(pid_t child) {
  int status = 0;
  CHECK(child > 0 && ::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

/// The paths and arguments are global memory, which the child of a fork has from its parent.
void children() {
  const auto words = std::make_unique<std::vector<std::string>>(
      std::vector<std::string>{"/bin/sh", "-c", "exit 0 # a word that is long enough to lie on the heap"});
  std::vector<char*> arguments;
  for (std::string& word : *words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  for (const auto way : kWays) {
    const pid_t child = ::fork();
    if (child == 0) {
      way();
      ::execv(arguments[0], arguments.data());
      ::_exit(4);
    }
    end_of(child);
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wclobbered"
  if (const pid_t child = ::vfork(); child == 0) {
    ::close_range(3, ~0u, 0);
    ::execv(arguments[0], arguments.data());
    ::_exit(4);
  } else {
    end_of(child);
  }
#pragma GCC diagnostic pop
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  pid_t child = 0;
  CHECK(::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0);
  ::posix_spawn_file_actions_destroy(&actions);
  end_of(child);
}

/// Nothing of the runtime's goes to a program that this one starts.
void inherited() {
  std::FILE* const list = ::popen("ls -l /proc/self/fd", "r");
  CHECK(list != nullptr);
  char line[512];
  while (std::fgets(line, sizeof line, list) != nullptr) {
    for (const char* ours : {"kasane", "userfaultfd", "eventpoll", "eventfd", "timerfd"})
      if (std::strstr(line, ours) != nullptr) std::fputs(line, stderr), std::abort();
  }
  CHECK(::pclose(list) == 0);
}

}  // namespace

int main() {
  for (const auto way : kWays) {
    way();
    compute();
  }
  kasane::run([] {
    const auto owner = kasane::make_array<int>(kasane::ranks() * 16384, kasane::placement::block);
    int* const places = owner.get();
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
      kasane::thread(kasane::near{places + r * 16384}, [] {
        for (const auto way : kWays) way();
      }).join();
    children();
  });
  std::thread([] {
    for (const auto way : kWays) way();
  }).join();
  compute();
  inherited();
  // As a program that was started so finds it: open() gives the lowest numbers, and dup2() takes any.
  const int low = ::open("/dev/null", O_RDWR);
  CHECK(low >= 3 && ::dup2(low, 20) == 20 && ::fcntl(20, F_GETFD) == 0 && ::close(20) == 0);
  CHECK(::close(20) == -1 && errno == EBADF);
  rlimit files{};
  CHECK(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(::dup2(low, static_cast<int>(files.rlim_cur)) == -1 && errno == EBADF);
  CHECK(::close(low) == 0);
  compute();
  return 0;
}
