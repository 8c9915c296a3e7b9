// SPDX-License-Identifier: Apache-2.0
// The rows of docs/guide/process.md, each as it says: what a thread finds of its process's state where it
// goes on, on another rank. On two ranks or more.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <kasane/kasane.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace {

/// f() on the last rank. The caller is on rank 0 before and afterwards.
template <class F>
auto there(const F& f) {
  void* const home = kasane_allocate_at(8, 8, 0);
  void* const away = kasane_allocate_at(8, 8, kasane_ranks() - 1);
  kasane::this_thread::move_near(away);
  const auto result = f();
  kasane::this_thread::move_near(home);
  return result;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "(unset)";
}

[[gnu::noinline]] std::thread::id os_thread() { return std::this_thread::get_id(); }
[[gnu::noinline]] int rounding() { return std::fegetround(); }

bool environment_at_the_start() {
  const std::string home = environment("PATH");
  return there([&] { return environment("PATH"); }) == home;
}

bool pids() {
  const pid_t own = ::getpid(), parent = ::getppid();
  return there(::getpid) != own && there(::getppid) == parent;
}

bool drawn_numbers() {
  const auto draw = [] {
    std::random_device device;
    return std::pair(device(), device());
  };
  return draw() != there(draw);
}

bool formatting_of_streams() {
  std::cout << std::hex;
  const bool away = there([] { return (std::cout.flags() & std::ios::hex) != 0; });
  std::cout << std::dec;
  return !away;
}

bool timers() {
  itimerval hour = {{0, 0}, {3600, 0}}, off = {};
  ::setitimer(ITIMER_REAL, &hour, nullptr);
  const bool away = there([] {
    itimerval now = {};
    ::getitimer(ITIMER_REAL, &now);
    return now.it_value.tv_sec != 0;
  });
  ::setitimer(ITIMER_REAL, &off, nullptr);
  return !away;
}

bool loaded_libraries() {
  const auto loaded = [] { return ::dlopen("libanl.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr; };
  return ::dlopen("libanl.so.1", RTLD_NOW) != nullptr && loaded() && !there(loaded);
}

bool variables_of_libraries() {
  ::optind = 7;
  const int away = there([] { return ::optind; });
  ::optind = 1;
  return away == 1;
}

bool mapped_memory() {
  constexpr long kValue = 0x6b6173616e65;
  void* const p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::memcpy(p, &kValue, sizeof kValue);
  const bool away = there([p] {
    // what lies there, if anything does
    int ends[2];
    long found = 0;
    if (::pipe2(ends, O_CLOEXEC) != 0) return true;
    const bool readable = ::write(ends[1], p, sizeof found) == sizeof found;
    if (readable && ::read(ends[0], &found, sizeof found) < 0) return true;
    ::close(ends[0]);
    ::close(ends[1]);
    return readable && found == kValue;
  });
  return ::munmap(p, 4096) == 0 && !away;
}

bool children() {
  char name[] = "true";
  char* const arguments[] = {name, nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "true", nullptr, nullptr, arguments, environ) != 0) return false;
  const pid_t away = there([child] { return ::waitpid(child, nullptr, 0); });
  return away == -1 && ::waitpid(child, nullptr, 0) == child;
}

bool locks_of_files() {
  char path[] = "/tmp/kasane-row-XXXXXX";
  const int fd = ::mkstemp(path);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  const bool locked = ::fcntl(fd, F_SETLK, &lock) == 0;
  const std::string name = path;
  const bool others = there([&name] {
    const int own = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    struct flock mine = {};
    mine.l_type = F_WRLCK;
    const bool refused = ::fcntl(own, F_SETLK, &mine) != 0;
    ::close(own);
    return refused;
  });
  ::unlink(path);
  ::close(fd);
  return locked && others;
}

bool ids_of_threads() {
  const std::thread::id here = os_thread();
  const kasane_thread_t self = kasane_thread_self();
  const bool same_name = there([self] { return kasane_thread_self() == self; });
  // a child runs on its parent's worker
  bool child_is_told_apart = false;
  kasane::thread([&] { child_is_told_apart = kasane_thread_self() != self && os_thread() == here; }).join();
  return same_name && child_is_told_apart;
}

bool keys_of_pthreads() {
  pthread_key_t key;
  if (::pthread_key_create(&key, nullptr) != 0) return false;
  ::pthread_setspecific(key, &key);
  return there([key] { return ::pthread_getspecific(key); }) == static_cast<void*>(&key);
}

bool rounding_of_a_worker() {
  std::fesetround(FE_UPWARD);
  const int away = there(rounding);
  std::fesetround(FE_TONEAREST);
  return away == FE_TONEAREST;
}

bool functions_at_the_end() {
  return there([] { return std::atexit([] {}) == 0 && kasane_rank() == 0; });
}

const std::vector<std::pair<const char*, bool (*)()>> kRows = {
    {"environment", environment_at_the_start},
    {"process ids", pids},
    {"random_device", drawn_numbers},
    {"formatting of streams in a thread", formatting_of_streams},
    {"timers", timers},
    {"dlopen", loaded_libraries},
    {"variables of libraries", variables_of_libraries},
    {"mmap", mapped_memory},
    {"children", children},
    {"record locks", locks_of_files},
    {"ids of threads", ids_of_threads},
    {"pthread_key", keys_of_pthreads},
    {"rounding", rounding_of_a_worker},
    {"atexit", functions_at_the_end},
};

}  // namespace

int main() {
  if (kasane_ranks() == 1) return 0;
  int wrong = 0;
  kasane::run([&] {
    for (const auto& [name, holds] : kRows) {
      if (holds()) continue;
      std::printf("not as the guide says: %s\n", name);
      ++wrong;
    }
  });
  return wrong;
}
