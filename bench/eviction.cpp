// SPDX-License-Identifier: Apache-2.0
// kasane bench eviction: which policy keeps the right pages. Replays traces of page numbers and prints the share of accesses that hit, beside that of the best
// policy there can be (docs/design/tiers.md).
//   kasane-bench-eviction [--quick] [--pages N] [--json FILE]
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/options.h"
#include "mem/eviction.h"
#include "page_traces.h"
#include "progress.h"
#include "rows.h"

namespace {

using kasane::bench::PageTrace, kasane::bench::Progress, kasane::bench::Row;

std::vector<Row> run(std::uint32_t pages, bool quick, std::FILE* table) {
  std::vector<Row> rows;
  std::fprintf(table, "share of accesses that hit; in brackets soft faults per 1000 accesses. Memory: %u pages\n%-16s %9s %7s", pages, "trace", "accesses", "best");
  for (const auto name : kasane::mem::eviction_policies()) std::fprintf(table, " %15.*s", static_cast<int>(name.size()), name.data());
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
    const auto add = [&](const std::string& system, double value, const char* unit) { rows.push_back({"eviction", trace.name, system, 1, 1, pages, value, unit, 1}); };
    std::string line = fmt::format("{:<16} {:9} {:7.3f}", trace.name, trace.pages.size(), best);
    add("best", best, "hit ratio");
    for (const auto name : kasane::mem::eviction_policies()) {
      const std::string system(name);
      const auto [hits, soft_faults] = kasane::bench::replay(trace, pages, system);
      const double ratio = static_cast<double>(hits) / accesses, soft = 1000 * static_cast<double>(soft_faults) / accesses;
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
  apps::Options line("kasane bench eviction", "How well eviction policies choose, on traces of page numbers");
  bool quick = false;
  unsigned pages = 1024;
  std::string json;
  line.toggle("--quick", quick, "shorter traces");
  line.number("--pages", pages, "pages that fit into memory; data are four times as much", 64, 1 << 20);
  line.text("--json", json, kasane::bench::kJsonHelp);
  if (const auto status = line.parse(argc, argv)) return *status;
  return kasane::bench::or_told("kasane bench eviction", [&] {
    write(json, run(pages, quick, kasane::bench::table_file(json)));
    return 0;
  });
}
