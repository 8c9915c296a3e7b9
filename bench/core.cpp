// SPDX-License-Identifier: Apache-2.0
// kasane bench core: what the core operations cost, each beside its peers or its physical limit in the same run (docs/performance.md).
//   kasane-bench-core [--quick] [--json FILE] [--only CASE …] [--faults ENGINE …]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/options.h"
#include "core_apps.h"
#include "core_fork_join.h"
#include "core_pages.h"

namespace {

using kasane::bench::Row;

void append(std::vector<Row>& rows, std::vector<Row> more) { rows.insert(rows.end(), more.begin(), more.end()); }

}  // namespace

int main(int argc, char** argv) {
  apps::Options line("kasane bench core", "What Kasane's core operations cost, beside their peers in the same run");
  bool quick = false;
  std::string json;
  std::vector<std::string> only, engines;
  line.toggle("--quick", quick, "smaller sizes and fewer repetitions: seconds instead of minutes");
  line.text("--json", json, kasane::bench::kJsonHelp);
  line.choices("--only", only, {"fork-join", "steal", "lock", "pages", "apps"}, "only these groups");
  line.choices("--faults", engines, {"uffd", "mprotect", "uffd-thread"}, "measure the pages with these fault engines only; else with all that the kernel allows");
  if (const auto status = line.parse(argc, argv)) return *status;

  const auto wanted = [&](const char* group) { return only.empty() || std::find(only.begin(), only.end(), group) != only.end(); };
  return kasane::bench::or_told("kasane bench core", [&] {
    std::vector<Row> rows;
    // The pages first: they fork ranks, which wants a process of one thread.
    if (wanted("pages")) {
      std::fputs("pages: misses, releases, fences between two ranks …\n", stderr);
      append(rows, kasane::bench::core_pages(quick, engines));
    }
    const auto here = kasane::bench::own_folder();
    if (wanted("steal")) {
      std::fputs("steal: a thread with 4 KiB of live stack between two ranks …\n", stderr);
      append(rows, kasane::bench::core_steal(quick, kasane::bench::kasane_command(), here));
    }
    if (wanted("lock")) {
      std::fputs("lock: 64 bytes that two ranks change in turns …\n", stderr);
      append(rows, kasane::bench::core_lock(quick, kasane::bench::kasane_command(), here));
    }
    if (wanted("apps")) {
      std::fputs("apps: cilksort and uts at 1, 2 and 4 ranks …\n", stderr);
      append(rows, kasane::bench::core_apps(quick, kasane::bench::kasane_command(), kasane::bench::apps_folder()));
    }
    if (wanted("fork-join")) {
      std::fputs("fork-join: fib beside a call, oneTBB and OpenMP (and libfork and MassiveThreads, if they were found) …\n", stderr);
      append(rows, kasane::bench::core_fork_join(quick));
    }
    if (json != "-") print(rows);
    write(json, rows);
    return 0;
  });
}
