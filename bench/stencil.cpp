// SPDX-License-Identifier: Apache-2.0
// kasane bench stencil: Flop/s of the 9-point stencil against N, one step a pass and several (apps/stencil).
//   kasane-bench-stencil [--quick] [--json FILE] [--sizes N …] [--ranks R …] [--together K]
// Claim: with temporal blocking the rate does not fall where the grid leaves the caches. A run is k × `--passes` steps, all cases of a size in turns;
// the application verifies each.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "run_app.h"

namespace {

using kasane::Json;

struct Case {
  std::string name;
  std::uint64_t n, ranks, together;
  std::vector<double> rates = {};
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Flop/s of a 9-point stencil on N x N doubles, plain and with temporal blocking", "kasane bench stencil");
  bool quick = false;
  std::string json, run_options;
  std::vector<std::uint64_t> sizes{512, 1024, 2048, 4096, 8192}, ranks{1, 2, 4};
  std::uint64_t together = 10, passes = 2;
  app.add_flag("--quick", quick, "small sizes and one repetition: seconds");
  app.add_option("--json", json, "write the rows to FILE too (- for standard output)")->type_name("FILE");
  app.add_option("--sizes", sizes, "N: rows and columns; a run needs 16 N^2 bytes")->delimiter(',')->capture_default_str();
  app.add_option("--ranks", ranks, "numbers of ranks, one worker each")->delimiter(',')->capture_default_str();
  app.add_option("--together", together, "steps a pass with temporal blocking")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--passes", passes, "passes of a run with temporal blocking; without, as many steps")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--run", run_options, "options for `kasane run` beside -n and --workers")->type_name("TEXT");
  CLI11_PARSE(app, argc, argv);
  if (quick) sizes = {256, 512}, ranks = {1, 2};
  const unsigned repetitions = quick ? 1 : 5;

  try {
    const auto here = std::filesystem::canonical("/proc/self/exe").parent_path();
    Json rows = Json::array();
    std::FILE* const table = json == "-" ? stderr : stdout;
    std::fprintf(table, "%-12s %8s %6s %12s\n", "case", "N", "ranks", "GFlop/s");
    for (const std::uint64_t n : sizes) {
      std::vector<Case> cases;
      for (const std::uint64_t r : ranks) cases.insert(cases.end(), {{"stencil", n, r, 1}, {"stencil-tb", n, r, together}});
      for (unsigned i = 0; i < repetitions; ++i) {   // in turns, so that all see the same machine
        for (Case& c : cases) {
          const auto object = kasane::bench::run_app(
              (here / "kasane").string() + " run -n " + std::to_string(c.ranks) + " --workers 1 " + run_options + " -- " +
                                                     (here / "../apps/stencil").string() + " -n " + std::to_string(n) + " -k " + std::to_string(c.together) +
                                                     " --steps " + std::to_string(together * passes) + " --quiet --json -");
          c.rates.push_back(object.at("result").at("gigaflops").get<double>());
        }
      }
      for (const Case& c : cases) {
        const double rate = kasane::bench::median(c.rates);
        std::fprintf(table, "%-12s %8llu %6llu %12.3f\n", c.name.c_str(), static_cast<unsigned long long>(n), static_cast<unsigned long long>(c.ranks), rate);
        rows.push_back({{"suite", "stencil"}, {"case", "stencil"}, {"system", c.together == 1 ? "kasane, plain" : "kasane, k = " + std::to_string(c.together)},
                        {"ranks", c.ranks}, {"N", n}, {"value", rate}, {"unit", "GFlop/s"}, {"repetitions", repetitions}});
      }
    }
    if (json.empty()) return 0;
    if (const auto written = kasane::write_json_file(json, rows); !written) {
      std::fprintf(stderr, "kasane bench stencil: %s\n", written.error().message.c_str());
      return 1;
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane bench stencil: %s\n", e.what());
    return 1;
  }
}
