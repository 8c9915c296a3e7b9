// SPDX-License-Identifier: Apache-2.0
// kasane bench eviction: which policy keeps the right pages. Replays traces of page numbers and prints the share of accesses that hit, beside that of the best
// policy there can be (docs/design/tiers.md).
//   kasane-bench-eviction [--quick] [--pages N] [--json FILE]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "mem/eviction.h"
#include "page_traces.h"

namespace {

using kasane::Json;
using kasane::bench::PageTrace;

void add_row(Json& rows, const PageTrace& trace, const std::string& system, std::uint32_t pages, double value, const char* unit) {
  rows.push_back({{"suite", "eviction"}, {"case", trace.name}, {"system", system}, {"ranks", 1}, {"threads", 1}, {"bytes", pages}, {"value", value},
                  {"unit", unit}, {"repetitions", 1}});
}

Json run(std::uint32_t pages, bool quick) {
  Json rows = Json::array();
  std::printf("share of accesses that hit; in brackets soft faults per 1000 accesses. Memory: %u pages\n%-16s %9s %7s", pages, "trace", "accesses", "best");
  for (const auto name : kasane::mem::eviction_policies()) std::printf(" %15.*s", static_cast<int>(name.size()), name.data());
  std::printf("\n");
  for (const PageTrace& trace : kasane::bench::page_traces(pages, quick)) {
    const auto accesses = static_cast<double>(trace.pages.size());
    const double best = static_cast<double>(kasane::bench::best_hits(trace, pages)) / accesses;
    std::printf("%-16s %9zu %7.3f", trace.name.c_str(), trace.pages.size(), best);
    add_row(rows, trace, "best", pages, best, "hit ratio");
    for (const auto name : kasane::mem::eviction_policies()) {
      const std::string system(name);
      const auto [hits, soft_faults] = kasane::bench::replay(trace, pages, system);
      const double ratio = static_cast<double>(hits) / accesses, soft = 1000 * static_cast<double>(soft_faults) / accesses;
      if (ratio > best) throw std::runtime_error(system + " hits more often than is possible");
      std::printf(" %7.3f [%5.1f]", ratio, soft);
      std::fflush(stdout);
      add_row(rows, trace, system, pages, ratio, "hit ratio");
      add_row(rows, trace, system, pages, soft, "soft faults per 1000");
    }
    std::printf("\n");
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"How well eviction policies choose, on traces of page numbers"};
  bool quick = false;
  std::uint32_t pages = 1024;
  std::string json;
  app.add_flag("--quick", quick, "shorter traces");
  app.add_option("--pages", pages, "pages that fit into memory; data are four times as much")->check(CLI::Range(64, 1 << 20))->capture_default_str();
  app.add_option("--json", json, "also write rows to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    const Json rows = run(pages, quick);
    if (json.empty()) return 0;
    if (const auto written = kasane::write_json_file(json, rows); !written) throw std::runtime_error(written.error().message);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane bench eviction: %s\n", e.what());
    return 1;
  }
  return 0;
}
