// SPDX-License-Identifier: Apache-2.0
// Unbalanced Tree Search: a thread for every node of a tree whose subtrees differ wildly in size. Measures work stealing.
#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/progress.h"
#include "common/report.h"
#include "uts/tree.h"

#include <cstdint>
#include <string>

namespace {

std::string text_of(const apps::TreeCount& c) {
  return std::to_string(c.nodes) + " nodes, " + std::to_string(c.leaves) + " leaves, depth " + std::to_string(c.depth);
}

int run(int argc, char** argv) {
  apps::CommandLine line("uts", "Unbalanced Tree Search; the defaults are tree T1 (geometric, fixed shape, SHA-1): 4 130 071 nodes");
  std::uint64_t b0 = 4, depth = 10;
  line.number("-b,--b0", b0, "Mean number of children", 1, 20);
  line.number("-d,--depth", depth, "Depth limit", 1, 30);
  if (auto status = line.parse(argc, argv)) return *status;

  const apps::TreeShape shape{static_cast<double>(b0), static_cast<std::uint32_t>(depth),
                              static_cast<std::uint32_t>(line.common().seed)};
  const bool t1 = b0 == 4 && depth == 10 && line.common().seed == 19;
  apps::Report report(line);
  report.parameter("b0", b0);
  report.parameter("depth", depth);
  report.parameter("seed", line.common().seed);

  // Another tree than T1 has no published count: the sequential search gives it.
  apps::TreeCount expected = apps::kT1, count;
  if (!t1 || line.common().serial) {
    report.measure_serial([&] { count = apps::search<apps::Serial>(shape, apps::root_of(shape)); });
    if (t1)
      report.verify(count == expected, "the sequential elision found " + text_of(count));
    else
      expected = count;
  }
  {
    apps::Progress progress("uts", line.common().repeat * (expected.leaves - 1), line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      report.measure([&] {
        count = kasane::run([shape] { return apps::search<apps::Parallel>(shape, apps::root_of(shape)); });
      });
      report.verify(count == expected, "found " + text_of(count) + "; there are " + text_of(expected));
    }
  }
  report.result("nodes", count.nodes);
  report.result("leaves", count.leaves);
  report.result("depth", count.depth);
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("uts", [&] { return run(argc, argv); });
}
