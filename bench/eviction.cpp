// SPDX-License-Identifier: Apache-2.0
// kasane bench eviction: which policy keeps the right pages. Replays traces of page numbers and prints the
// share of accesses that hit, beside that of the best possible policy (docs/design/budget.md).
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.h"
#include "eviction_policies.h"
#include "page_traces.h"
#include "progress.h"
#include "rows.h"

namespace {

using kasane::bench::PageTrace, kasane::bench::Progress, kasane::bench::Row;

std::vector<Row> run(std::uint32_t pages, bool quick, const std::vector<std::string>& policies,
                     std::FILE* table) {
  std::vector<Row> rows;
  std::fprintf(table,
               "share of accesses that hit; in brackets soft faults per 1000 accesses. Memory: %u "
               "pages\n%-16s %9s %7s",
               pages, "trace", "accesses", "best");
  for (const std::string& name : policies) std::fprintf(table, " %15s", name.c_str());
  std::fprintf(table, "\n");
  std::vector<PageTrace> traces;
  {
    Progress progress(1);
    progress.begin("making the traces");
    traces = kasane::bench::page_traces(pages, quick);
  }
  Progress progress(traces.size());
  for (const PageTrace& trace : traces) {
    progress.begin(trace.name);
    const auto accesses = static_cast<double>(trace.pages.size());
    const double best = static_cast<double>(kasane::bench::best_hits(trace, pages)) / accesses;
    const auto add = [&](const std::string& system, double value, const char* unit) {
      rows.push_back({"eviction", trace.name, system, 1, 1, pages, value, unit, 1});
    };
    std::string line = fmt::format("{:<16} {:9} {:7.3f}", trace.name, trace.pages.size(), best);
    add("best", best, "hit ratio");
    for (const std::string& system : policies) {
      const auto [hits, soft_faults] = kasane::bench::replay(trace, pages, system);
      const double ratio = static_cast<double>(hits) / accesses,
                   soft = 1000 * static_cast<double>(soft_faults) / accesses;
      if (ratio > best) throw std::runtime_error(system + " hits more often than is possible");
      line += fmt::format(" {:7.3f} [{:5.1f}]", ratio, soft);
      add(system, ratio, "hit ratio");
      add(system, soft, "soft faults per 1000");
    }
    progress.pause();
    std::fprintf(table, "%s\n", line.c_str());
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  // No --repetitions: the figures do not vary.
  kasane::bench::CommandLine line("eviction", "shorter traces");
  const auto policies = kasane::bench::eviction_policies();
  line.names("policies", {policies.begin(), policies.end()});
  unsigned pages = 1024;
  line.own().number("--pages", pages, "pages that fit into memory; data are four times as much", 64, 1 << 20);
  if (const auto status = line.parse(argc, argv)) return *status;
  return kasane::bench::or_told("kasane bench eviction", [&] {
    write(line.json(),
          run(pages, line.quick(), line.wanted("policies"), kasane::bench::table_file(line.json())));
    return 0;
  });
}
