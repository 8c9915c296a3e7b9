// SPDX-License-Identifier: Apache-2.0
// Fibonacci numbers by doubly recursive fork–join, a thread for every call: nothing but the cost of threads.
#include <cstdint>
#include <string>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/progress.h"
#include "common/report.h"

namespace {

template <class Pattern>
std::uint64_t fib(std::uint64_t n) {
  if (n < 2) return n;
  std::uint64_t a = 0, b = 0;
  Pattern::invoke([n, &a] { a = fib<Pattern>(n - 1); }, [n, &b] { b = fib<Pattern>(n - 2); });
  return a + b;
}

/// By addition: what the recursion must give.
constexpr std::uint64_t fib_by_loop(std::uint64_t n) {
  std::uint64_t a = 0, b = 1;
  for (; n > 0; --n) {
    const std::uint64_t next = a + b;
    a = b;
    b = next;
  }
  return a;
}
static_assert(fib_by_loop(10) == 55 && fib_by_loop(1) == 1 && fib_by_loop(0) == 0);

int run(int argc, char** argv) {
  apps::CommandLine line("fib", "fib(N) with a thread for every call");
  std::uint64_t n = 32;
  line.number("-n,--n", n, "Which Fibonacci number", 0, 60);
  if (auto status = line.parse(argc, argv)) return *status;

  apps::Report report(line);
  report.parameter("n", n);
  std::uint64_t value = 0;
  {
    // A call forks once if it is not a leaf: fib(n + 1) - 1 threads.
    apps::Progress progress("fib", line.common().repeat * (fib_by_loop(n + 1) - 1), line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      report.measure([&] { value = kasane::run([n] { return fib<apps::Parallel>(n); }); });
      report.verify(value == fib_by_loop(n), "fib(" + std::to_string(n) + ") gave " + std::to_string(value));
    }
  }
  report.result("value", value);
  if (line.common().serial) {
    report.measure_serial([&] { value = fib<apps::Serial>(n); });
    report.verify(value == fib_by_loop(n), "the sequential elision gave " + std::to_string(value));
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("fib", [&] { return run(argc, argv); });
}
