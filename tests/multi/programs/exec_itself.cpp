// SPDX-License-Identifier: Apache-2.0
// A program that becomes another one, or itself once more, as programs do that set their environment first:
// argv[1] says how. It says again, or what exec() has answered.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string>

#include "check.h"

namespace {

constexpr int kNumbers = 1000;

void compute() {
  kasane::run([] {
    const long sum = kasane::parallel_reduce(
        0, kNumbers, 0L, [](int i) { return long{i}; }, [](long x, long y) { return x + y; });
    CHECK(sum == kNumbers * (kNumbers - 1) / 2);
  });
}

}  // namespace

int main(int argc, char** argv) {
  compute();
  if (argc < 2) return 2;
  const std::string how = argv[1];
  if (how == "again") return std::puts("again") >= 0 ? 0 : 1;
  char again[] = "again", nowhere[] = "kasane-no-such-program";
  char* const arguments[] = {argv[0], again, nullptr};
  // Not found in any folder: the program goes on.
  CHECK(::execlp(nowhere, nowhere, nullptr) == -1 && errno == ENOENT);
  if (how == "link") ::execv("/proc/self/exe", arguments);
  if (how == "name") ::execv(argv[0], arguments);
  if (how == "thread") kasane::run([&] { ::execv("/proc/self/exe", arguments); });
  if (how == "other") ::execlp("echo", "echo", "again", nullptr);
  std::printf("exec: %s\n", std::strerror(errno));
  return 3;
}
