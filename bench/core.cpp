// SPDX-License-Identifier: Apache-2.0
// kasane bench core: what the core operations cost, each beside its peers or its physical limit in the same run (docs/performance.md).
//   kasane-bench-core [--quick] [--json FILE] [--only CASE …] [--faults ENGINE …]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "core_apps.h"
#include "core_fork_join.h"
#include "core_pages.h"

namespace {

using kasane::Json;
using kasane::bench::Row;

Json to_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"suite", row.suite}, {"case", row.case_}, {"system", row.system}, {"ranks", row.ranks}, {"threads", row.threads},
                    {"bytes", row.bytes}, {"value", row.value}, {"unit", row.unit}, {"repetitions", row.repetitions}});
  }
  return list;
}

void print(const std::vector<Row>& rows) {
  std::printf("%-20s %-24s %5s %7s %8s %12s %-4s\n", "case", "system", "ranks", "threads", "bytes", "median", "unit");
  for (const Row& row : rows) {
    std::printf("%-20s %-24s %5u %7u %8llu %12.3f %-4s\n", row.case_.c_str(), row.system.c_str(), row.ranks, row.threads,
                static_cast<unsigned long long>(row.bytes), row.value, row.unit.c_str());
  }
}

void append(std::vector<Row>& rows, std::vector<Row> more) { rows.insert(rows.end(), more.begin(), more.end()); }

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What Kasane's core operations cost, beside their peers in the same run", "kasane bench core");
  bool quick = false;
  std::string json;
  std::vector<std::string> only, engines;
  app.add_flag("--quick", quick, "smaller sizes and fewer repetitions: seconds instead of minutes");
  app.add_option("--json", json, "write the rows to FILE too (- for standard output)")->type_name("FILE");
  app.add_option("--only", only, "only these groups")->check(CLI::IsMember({"fork-join", "steal", "pages", "apps"}));
  app.add_option("--faults", engines, "measure the pages with these fault engines only; else with all that the kernel allows")->check(CLI::IsMember({"uffd", "mprotect"}));
  CLI11_PARSE(app, argc, argv);

  const auto wanted = [&](const char* group) { return only.empty() || std::find(only.begin(), only.end(), group) != only.end(); };
  try {
    std::vector<Row> rows;
    // The pages first: they fork ranks, which wants a process of one thread.
    std::fputs("pages: misses, releases, fences between two ranks …\n", stderr);
    if (wanted("pages")) append(rows, kasane::bench::core_pages(quick, engines));
    const auto here = std::filesystem::canonical("/proc/self/exe").parent_path();
    if (wanted("steal")) {
      std::fputs("steal: a thread with 4 KiB of live stack between two ranks …\n", stderr);
      append(rows, kasane::bench::core_steal(quick, (here / "kasane").string(), here.string()));
    }
    if (wanted("apps")) {
      std::fputs("apps: cilksort and uts at 1, 2 and 4 ranks …\n", stderr);
      append(rows, kasane::bench::core_apps(quick, (here / "kasane").string(), (here / "../apps").string()));
    }
    if (wanted("fork-join")) {
      std::fputs("fork-join: fib beside a call, oneTBB and OpenMP …\n", stderr);
      append(rows, kasane::bench::core_fork_join(quick));
    }
    if (json != "-") print(rows);
    if (!json.empty()) {
      if (const auto written = kasane::write_json_file(json, to_json(rows)); !written) {
        std::fprintf(stderr, "kasane bench core: %s\n", written.error().message.c_str());
        return 1;
      }
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane bench core: %s\n", e.what());
    return 1;
  }
}
