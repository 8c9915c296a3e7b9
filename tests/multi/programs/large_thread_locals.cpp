// SPDX-License-Identifier: Apache-2.0
// 16 MiB of thread_local variables, which the C library takes of each OS thread's stack: of the workers', of
// those that serve a rank, of callers of system calls, of the program's own.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <thread>

namespace {

constexpr std::size_t kBytes = 16 << 20;
thread_local char t_large[kBytes];

int sum_of_tasks() {
  return kasane::run([] {
    return kasane::parallel_reduce(
        0, 1000, 0, [](int) { return t_large[kBytes - 1] + 1; }, [](int a, int b) { return a + b; });
  });
}

/// A system call in which a thread waits for another one.
bool waits() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  char got = 0;
  kasane::run([&] {
    kasane::thread reader(kasane::at{0}, [&] {
      if (::read(ends[0], &got, 1) != 1) got = 0;
    });
    kasane::thread writer(kasane::at{0}, [&] {
      if (::write(ends[1], "x", 1) != 1) std::puts("write");
    });
    reader.join();
    writer.join();
  });
  ::close(ends[0]);
  ::close(ends[1]);
  return got == 'x';
}

/// As much stack as a thread has without these variables.
[[gnu::noinline]] void use_stack() {
  volatile char large[1 << 20];
  for (std::size_t i = 0; i < sizeof large; i += 4096) large[i] = 1;
}

}  // namespace

int main() {
  t_large[0] = 1;
  bool right = sum_of_tasks() == 1000 && waits();
  std::thread([&] {
    right = right && t_large[0] == 0;
    std::memset(t_large, 2, kBytes);
    use_stack();
  }).join();
  right = right && t_large[0] == 1 && t_large[1] == 0;
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
