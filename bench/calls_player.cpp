// SPDX-License-Identifier: Apache-2.0
// What a system call of a thread costs: a write of BYTES to /dev/null, from private or from global memory. On
// one rank it is the kernel's own, on two it is caught; `passed`: the kernel's own on an OS thread whose
// calls could be caught, and pass.
//   kasane run -n 1|2 --workers 1 -- player-calls private|global|passed BYTES CALLS
// Prints one JSON object: the mean time of a call in each of 20 rounds, in ns.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <vector>

int main(int, char** argv) {
  const bool global = std::strcmp(argv[1], "global") == 0;
  const std::size_t bytes = std::strtoul(argv[2], nullptr, 10), calls = std::strtoul(argv[3], nullptr, 10);
  static char selector = 0;  // SYSCALL_DISPATCH_FILTER_ALLOW
  if (std::strcmp(argv[1], "passed") == 0) ::prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &selector);
  std::vector<char> own(bytes);
  std::vector<double> ns;
  bool verified = true;
  const auto measure = [&] {
    const auto theirs = std::make_unique<char[]>(bytes);  // on a thread: global
    const char* const from = global ? theirs.get() : own.data();
    const int fd = ::open("/dev/null", O_WRONLY);
    for (int round = -1; round < 20; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t i = 0; i < calls; ++i)
        verified = ::write(fd, from, bytes) == static_cast<ssize_t>(bytes) && verified;
      const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
      if (round >= 0) ns.push_back(passed.count() / static_cast<double>(calls));
    }
    ::close(fd);
  };
  if (global)
    kasane::run(measure);
  else
    measure();
  std::printf("{\"verified\": %s, \"ns\": [", verified ? "true" : "false");
  for (std::size_t i = 0; i < ns.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ", ", ns[i]);
  std::puts("]}");
  return verified ? 0 : 1;
}
