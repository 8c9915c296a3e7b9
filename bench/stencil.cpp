// SPDX-License-Identifier: Apache-2.0
// kasane bench stencil: Flop/s of the 9-point stencil against N, one step a pass and several (apps/stencil),
// in core or with a budget of DRAM.
// Claim: with temporal blocking the rate does not fall where the grid leaves the caches, and falls less than
// without where it leaves DRAM. A run is k × `--passes` steps; all cases of a size in turns, with a budget
// and in core; the application verifies each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/text_table.h"
#include "command_line.h"
#include "median.h"
#include "progress.h"
#include "rows.h"
#include "run_app.h"

namespace {

using kasane::bench::median;
using kasane::bench::Row;

struct Settings {
  std::string directory, run_options;
  std::uint64_t budget = 0;  ///< 0: none, and nothing beside it
  std::vector<std::uint64_t> sizes;
  std::vector<unsigned> ranks;
  std::uint64_t together = 10, passes = 2;
  unsigned repetitions = 0;
  std::vector<std::uint64_t> steps;  ///< a pass: 1, together, or both
};

struct Case {
  std::uint64_t n;
  unsigned ranks;
  std::uint64_t together;
  std::uint64_t budget;  ///< 0: none
  std::vector<double> rates = {};

  [[nodiscard]] std::string steps() const {
    return together == 1 ? "plain" : "k = " + std::to_string(together);
  }
};

/// The grid, for plain steps two of them, without rims.
std::uint64_t data_bytes(const Case& c) { return (c.together == 1 ? 16 : 8) * c.n * c.n; }

/// N for a grid of an eighth of the budget to four times as much: plain steps need two.
std::vector<std::uint64_t> sizes_around(std::uint64_t budget, bool quick) {
  std::vector<std::uint64_t> sizes;
  for (const double share :
       quick ? std::vector<double>{0.25, 1} : std::vector<double>{0.125, 0.25, 0.5, 1, 2, 4})
    sizes.push_back(static_cast<std::uint64_t>(std::sqrt(share * static_cast<double>(budget) / 8)));
  return sizes;
}

double rate_of(const Settings& s, const Case& c) {
  std::string memory;
  if (s.budget != 0)
    memory = c.budget == 0 ? "--dram 0 --spill none"
                           : "--dram " + std::to_string(c.budget) +
                                 (s.directory.empty() ? "" : " --spill '" + s.directory + "'");
  const std::string run = "'" + kasane::bench::kasane_command() + "' run -n " + std::to_string(c.ranks) +
                          " --workers 1 " + memory + " " + s.run_options;
  const std::string app = "'" + kasane::bench::apps_folder() + "/stencil' -n " + std::to_string(c.n) +
                          " -k " + std::to_string(c.together) + " --steps " +
                          std::to_string(s.together * s.passes);
  return kasane::bench::run_app(run + " -- " + app + " --quiet --json -", {"/result/gigaflops"}).at(0);
}

/// The median of the ratios of each repetition to the same in core.
double to_in_core(const Case& c, const std::vector<Case>& all) {
  const auto other = std::find_if(all.begin(), all.end(), [&](const Case& o) {
    return o.budget == 0 && o.ranks == c.ranks && o.together == c.together;
  });
  std::vector<double> ratios;
  for (std::size_t i = 0; i < c.rates.size(); ++i) ratios.push_back(c.rates[i] / other->rates.at(i));
  return median(ratios);
}

std::vector<Row> measure(const Settings& s, std::FILE* table) {
  std::vector<std::uint64_t> budgets{0};
  if (s.budget != 0) budgets.insert(budgets.begin(), s.budget);
  std::vector<Row> rows;
  const kasane::TextTable lines({8, 6, -8, 14, 12, 12});
  std::fputs(
      lines.line(std::array<std::string, 6>{"N", "ranks", "steps", "data / budget", "GFlop/s", "to in core"})
          .c_str(),
      table);
  kasane::bench::Progress progress(s.sizes.size() * s.ranks.size() * s.steps.size() * budgets.size() *
                                   s.repetitions);
  for (const std::uint64_t n : s.sizes) {
    std::vector<Case> cases;
    for (const unsigned r : s.ranks)
      for (const std::uint64_t k : s.steps)
        for (const std::uint64_t budget : budgets) cases.push_back({n, r, k, budget});
    for (unsigned i = 0; i < s.repetitions; ++i) {  // in turns, so that all see the same machine
      for (Case& c : cases) {
        progress.begin("N = " + std::to_string(n) + ", ranks: " + std::to_string(c.ranks) + ", " + c.steps() +
                       (c.budget != 0 ? ", " + kasane::bytes_text(c.budget) : ""));
        c.rates.push_back(rate_of(s, c));
      }
    }
    progress.pause();
    for (const Case& c : cases) {
      const double rate = median(c.rates);
      const auto [low, high] = std::minmax_element(c.rates.begin(), c.rates.end());
      std::vector<std::string> cells{std::to_string(n), std::to_string(c.ranks), c.steps(), "in core",
                                     fmt::format("{:.3f}", rate)};
      const std::string where = s.budget == 0   ? ""
                                : c.budget == 0 ? ", in core"
                                                : ", " + kasane::bytes_text(c.budget) + " DRAM";
      Row row{"stencil",
              "stencil",
              "kasane, " + c.steps() + where,
              c.ranks,
              0,
              0,
              rate,
              "GFlop/s",
              s.repetitions,
              {{"N", n},
               {"low", *low},
               {"high", *high},
               {"data_bytes", data_bytes(c)},
               {"budget_bytes", c.budget}}};
      if (c.budget != 0) {
        const double ratio = to_in_core(c, cases);
        row.more.push_back({"ratio", ratio});
        cells[3] = fmt::format("{:.2f}", static_cast<double>(data_bytes(c)) / static_cast<double>(c.budget));
        cells.push_back(fmt::format("{:.2f}", ratio));
      }
      std::fputs(lines.line(cells).c_str(), table);
      rows.push_back(std::move(row));
    }
    std::fflush(table);
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine suite("stencil", "small sizes, up to 2 ranks, one repetition: seconds");
  suite.names("ways", {"plain", "blocked"},
              "  plain     one step a pass over memory\n  blocked   with temporal blocking: --together steps "
              "a pass\n");
  suite.repetitions(5, 1);
  apps::Options& line = suite.own();
  Settings s;
  std::string dram = "0";
  line.text("--dram", dram,
            "budget of a host's DRAM, which half of the runs have; the others are in core. 0: no budget, all "
            "in core",
            "SIZE");
  line.text("--dir", s.directory,
            "with --dram: where the spill files are made, on the disk to be measured (default: as kasane run "
            "has it)",
            "DIR");
  line.numbers("--sizes", s.sizes,
               "N: rows and columns; a grid needs 8 N^2 bytes, and plain steps need two (default: 512 to "
               "8192; with --dram grids of 1/8, 1/4, … 4 times the budget)",
               1, 1 << 20);
  line.numbers("--ranks", s.ranks, "numbers of ranks, one worker each (default: 1,2,4)", 1, 1024);
  line.number("--together", s.together, "steps a pass with temporal blocking", 2, 1000);
  line.number("--passes", s.passes, "passes of a run with temporal blocking; without, as many steps", 1,
              1000);
  line.text("--run", s.run_options, "options for `kasane run` beside -n, --workers, --dram and --spill",
            "TEXT");
  line.needs("--dir", "--dram");
  if (const auto status = suite.parse(argc, argv)) return *status;
  const bool quick = suite.quick();
  s.repetitions = suite.repetitions();
  if (suite.wants("plain")) s.steps.push_back(1);
  if (suite.wants("blocked")) s.steps.push_back(s.together);

  return kasane::bench::or_told("kasane bench stencil", [&] {
    const auto budget = kasane::parse_bytes(dram);
    if (!budget) throw std::runtime_error("--dram: " + budget.error().message);
    s.budget = *budget;
    if (s.sizes.empty())
      s.sizes = s.budget != 0 ? sizes_around(s.budget, quick)
                : quick       ? std::vector<std::uint64_t>{256, 512}
                              : std::vector<std::uint64_t>{512, 1024, 2048, 4096, 8192};
    if (s.ranks.empty()) s.ranks = quick ? std::vector<unsigned>{1, 2} : std::vector<unsigned>{1, 2, 4};
    write(suite.json(), measure(s, kasane::bench::table_file(suite.json())));
    return 0;
  });
}
