// SPDX-License-Identifier: Apache-2.0
#include "suite.h"

#include <fmt/format.h>

#include <algorithm>

namespace kasane::bench {
namespace {

std::string bin() { return own_folder() + "/"; }

/// What is here, for --list.
std::string here() {
  std::string text;
  for (const Over over : {Over::memory, Over::tcp}) {
    text += over == Over::memory ? "  here, over shared memory:\n" : "  here, over tcp:\n";
    for (const System& s : installed_systems(bin(), over))
      text += fmt::format("    {:<22} {}\n", s.name, s.description);
  }
  return text;
}

void play(const std::string& suite, const CommandLine& line, const SuiteOptions& options,
          const PlayOver& play_over) {
  const auto here = installed_systems(bin());
  const auto named = line.named("systems");
  // Refuses what is not here before anything starts.
  (void)choose(here, named);
  if (!options.against.empty()) (void)choose(here, {options.against});
  stop_on_signals();
  Report report(suite, roles_of(here));
  report.against(options.against);
  for (const auto& name : options.over) {
    const Over over = name == "tcp" ? Over::tcp : Over::memory;
    std::vector<System> systems = installed_systems(bin(), over);
    std::erase_if(systems, [&](const System& s) { return !line.wants(s.name); });
    if (!systems.empty()) play_over(over, systems, report);
  }
  if (line.json() != "-") report.print();
  write(line.json(), report.rows());
}

}  // namespace

void add_suite_options(CommandLine& line, SuiteOptions& options, const SuiteHelp& help) {
  line.names("systems", all_system_names(), here());
  line.repetitions(7, 3);
  line.own().numbers("--threads", options.threads, help.threads, 1, kMaxThreads);
  line.own().numbers("--sizes", options.sizes, help.sizes, 8, std::uint64_t{64} << 20);
  line.own().choices("--over", options.over, {"memory", "tcp"}, help.over);
  line.own().text("--against", options.against,
                  "the peer that Kasane's systems are compared with (default: at each point the best one)",
                  "NAME");
}

int run_suite(const std::string& suite, const CommandLine& line, const SuiteOptions& options,
              const PlayOver& play_over) {
  return or_told("kasane bench " + suite, [&] {
    play(suite, line, options, play_over);
    return 0;
  });
}

}  // namespace kasane::bench
