// SPDX-License-Identifier: Apache-2.0
// On one rank without --dram nothing is caught until pages leave DRAM; then threads that have long been
// running are caught, too: main, a thread, a std::thread, and one that waits in a call. Status 1 if not.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <thread>

namespace {

constexpr std::size_t kBytes = 4 << 20;

bool goes(const char* data) {
  const int fd = ::memfd_create("late", 0);
  const bool all = ::write(fd, data, kBytes) == static_cast<ssize_t>(kBytes);
  ::close(fd);
  return all;
}

/// What one of the program's calls costs, in ns: says whether it is caught.
double cost() {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) ::syscall(SYS_getppid);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / 1000;
}

}  // namespace

int main() {
  const auto data = kasane::make_array<char>(kBytes);
  std::memset(data.get(), 'x', kBytes);
  int pipes[2];
  if (::pipe(pipes) != 0) return 2;
  std::atomic<bool> evicted{false};
  bool here = false, there = false, waited = false;
  std::thread other([&] {
    while (!evicted.load()) std::this_thread::yield();
    there = goes(data.get());
  });
  std::thread waiter([&] { waited = ::read(pipes[0], data.get() + kBytes / 2, 1) == 1; });
  const double before = cost();
  kasane::run([&] {
    kasane::evict(data.get(), kBytes);
    // Eviction is asked for, not waited for.
    for (int i = 0; i < 2000 && kasane::counter("pages_evicted", kasane::rank()) == 0; ++i) ::usleep(1000);
    evicted.store(true);
    here = goes(data.get());
  });
  other.join();
  kasane::run([&] {
    const std::size_t gone = kasane::counter("pages_evicted", kasane::rank());
    kasane::evict(data.get(), kBytes);
    for (int i = 0; i < 2000 && kasane::counter("pages_evicted", kasane::rank()) == gone; ++i) ::usleep(1000);
  });
  const bool in_main = goes(data.get());
  const bool sent = ::write(pipes[1], "y", 1) == 1;
  waiter.join();
  std::printf("thread %d, std::thread %d, main %d, waiter %d; a call cost %.0f ns before and %.0f after\n",
              here, there, in_main, sent && waited && data[kBytes / 2] == 'y', before, cost());
  return here && there && in_main && waited && data[kBytes / 2] == 'y' ? 0 : 1;
}
