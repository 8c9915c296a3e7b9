// SPDX-License-Identifier: Apache-2.0
// kasane bench stencil: Flop/s of the 9-point stencil against N, one step a pass and several (apps/stencil).
//   kasane-bench-stencil [--quick] [--json FILE] [--sizes N …] [--ranks R …] [--together K]
// Claim: with temporal blocking the rate does not fall where the grid leaves the caches. A run is k × `--passes` steps, all cases of a size in turns;
// the application verifies each.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/options.h"
#include "median.h"
#include "rows.h"
#include "run_app.h"

namespace {

using kasane::bench::Row;

struct Case {
  std::string name;
  std::uint64_t n;
  unsigned ranks;
  std::uint64_t together;
  std::vector<double> rates = {};
};

}  // namespace

int main(int argc, char** argv) {
  apps::Options line("kasane bench stencil", "Flop/s of a 9-point stencil on N x N doubles, plain and with temporal blocking");
  bool quick = false;
  std::string json, run_options;
  std::vector<std::uint64_t> sizes{512, 1024, 2048, 4096, 8192};
  std::vector<unsigned> ranks{1, 2, 4};
  std::uint64_t together = 10, passes = 2;
  line.toggle("--quick", quick, "small sizes and one repetition: seconds");
  line.text("--json", json, kasane::bench::kJsonHelp);
  line.numbers("--sizes", sizes, "N: rows and columns; a run needs 16 N^2 bytes (default: 512 to 8192)", 1, 1 << 20);
  line.numbers("--ranks", ranks, "numbers of ranks, one worker each (default 1,2,4)", 1, 1024);
  line.number("--together", together, "steps a pass with temporal blocking", 2, 1000);
  line.number("--passes", passes, "passes of a run with temporal blocking; without, as many steps", 1, 1000);
  line.text("--run", run_options, "options for `kasane run` beside -n and --workers", "TEXT");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (quick) sizes = {256, 512}, ranks = {1, 2};
  const unsigned repetitions = quick ? 1 : 5;

  return kasane::bench::or_told("kasane bench stencil", [&] {
    const auto here = kasane::bench::own_folder();
    std::vector<Row> rows;
    std::FILE* const table = json == "-" ? stderr : stdout;
    std::fprintf(table, "%-12s %8s %6s %12s\n", "case", "N", "ranks", "GFlop/s");
    for (const std::uint64_t n : sizes) {
      std::vector<Case> cases;
      for (const unsigned r : ranks) cases.insert(cases.end(), {{"stencil", n, r, 1}, {"stencil-tb", n, r, together}});
      for (unsigned i = 0; i < repetitions; ++i) {   // in turns, so that all see the same machine
        for (Case& c : cases) {
          c.rates.push_back(kasane::bench::run_app(here + "/kasane run -n " + std::to_string(c.ranks) + " --workers 1 " + run_options + " -- " + here + "/../apps/stencil -n " +
                                                       std::to_string(n) + " -k " + std::to_string(c.together) + " --steps " + std::to_string(together * passes) + " --quiet --json -",
                                                   {"/result/gigaflops"}).at(0));
        }
      }
      for (const Case& c : cases) {
        const double rate = kasane::bench::median(c.rates);
        std::fprintf(table, "%-12s %8llu %6u %12.3f\n", c.name.c_str(), static_cast<unsigned long long>(n), c.ranks, rate);
        rows.push_back({"stencil", "stencil", c.together == 1 ? "kasane, plain" : "kasane, k = " + std::to_string(c.together), c.ranks, 0, 0, rate, "GFlop/s", repetitions, {{"N", n}}});
      }
    }
    write(json, rows);
    return 0;
  });
}
