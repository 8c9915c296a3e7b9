// SPDX-License-Identifier: Apache-2.0
// All solutions of the N queens problem: irregular work, small threads, no memory but stacks.
#include <cstdint>
#include <string>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/progress.h"
#include "common/report.h"
#include "queens.h"

namespace {

int run(int argc, char** argv) {
  apps::CommandLine line(
      "nqueens", "Counts all placements of N queens, with a thread for each candidate of the first rows");
  std::uint64_t n = 12, rows = 4;
  line.number("-n,--n", n, "Number of queens", 1, apps::kQueens.size() - 1);
  line.number("--rows", rows, "Rows whose candidates become threads", 0, 18);
  if (auto status = line.parse(argc, argv)) return *status;

  apps::Report report(line);
  report.parameter("n", n);
  report.parameter("rows", rows);
  const std::uint32_t all = (1u << n) - 1;
  const auto fork_rows = static_cast<std::uint32_t>(rows);
  std::uint64_t count = 0;
  {
    apps::Progress progress("nqueens", 0, line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      report.measure([&] {
        count = kasane::run([=] { return apps::count_queens<apps::Parallel>(all, {}, fork_rows); });
      });
      report.verify(count == apps::kQueens[n], "found " + std::to_string(count) + " solutions, there are " +
                                                   std::to_string(apps::kQueens[n]));
    }
  }
  report.result("solutions", count);
  if (line.common().serial) {
    report.measure_serial([&] { count = apps::count_queens<apps::Serial>(all, {}, fork_rows); });
    report.verify(count == apps::kQueens[n], "the sequential elision found " + std::to_string(count));
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("nqueens", [&] { return run(argc, argv); });
}
