// SPDX-License-Identifier: Apache-2.0
// kasane bench core: what the core operations cost, each beside its peers or its physical limit in the same
// run (docs/performance.md).
#include <cstdio>
#include <string>
#include <vector>

#include "command_line.h"
#include "core_apps.h"
#include "core_fork_join.h"
#include "core_misses.h"
#include "core_pages.h"

namespace {

constexpr char kEngines[] = "fault engines of pages (else all that the kernel allows)";

using kasane::bench::Row;

void append(std::vector<Row>& rows, std::vector<Row> more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("core", "smaller sizes and fewer repetitions: seconds instead of minutes");
  line.names("groups of cases",
             {"fork-join", "steal", "lock", "turns", "touch", "atomics", "calls", "pages", "misses", "apps"});
  line.names(kEngines, {"uffd", "mprotect", "uffd-thread"});
  line.repetitions("1 to 9 by the group, with --quick 1 to 3");
  if (const auto status = line.parse(argc, argv)) return *status;

  const bool quick = line.quick();
  const auto repetitions = line.given_repetitions();
  return kasane::bench::or_told("kasane bench core", [&] {
    std::vector<Row> rows;
    const auto here = kasane::bench::own_folder();
    if (line.wants("pages")) {
      std::fputs("pages: misses, releases, fences between two ranks …\n", stderr);
      append(rows, kasane::bench::core_pages(quick, repetitions, kasane::bench::kasane_command(), here,
                                             line.named(kEngines)));
    }
    if (line.wants("misses")) {
      std::fputs("misses: loads of another rank's memory over UCX, beside UCX …\n", stderr);
      append(rows, kasane::bench::core_misses(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("steal")) {
      std::fputs("steal: a thread with 4 KiB of live stack between two ranks …\n", stderr);
      append(rows, kasane::bench::core_steal(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("lock")) {
      std::fputs("lock: 64 bytes that two ranks change in turns …\n", stderr);
      append(rows, kasane::bench::core_lock(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("turns")) {
      std::fputs("turns: two std::threads that hand a turn to each other by a condition …\n", stderr);
      append(rows, kasane::bench::core_turns(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("touch")) {
      std::fputs("touch: first stores to new memory …\n", stderr);
      append(rows, kasane::bench::core_touch(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("atomics")) {
      std::fputs("atomics: std::atomic of one rank, and of two at once …\n", stderr);
      append(rows, kasane::bench::core_atomics(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("calls")) {
      std::fputs("calls: a system call of a thread, caught or not …\n", stderr);
      append(rows, kasane::bench::core_calls(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.wants("apps")) {
      std::fputs("apps: cilksort and uts at 1, 2 and 4 ranks …\n", stderr);
      append(rows, kasane::bench::core_apps(quick, repetitions, kasane::bench::kasane_command(),
                                            kasane::bench::apps_folder()));
    }
    if (line.wants("fork-join")) {
      std::fputs(
          "fork-join: two recursions by parallel_invoke, beside plain calls, oneTBB, OpenMP and what else "
          "was found …\n",
          stderr);
      append(rows, kasane::bench::core_fork_join(quick, repetitions, kasane::bench::kasane_command(), here));
    }
    if (line.json() != "-") print(rows);
    write(line.json(), rows);
    return 0;
  });
}
