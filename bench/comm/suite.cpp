// SPDX-License-Identifier: Apache-2.0
#include "suite.h"

#include <algorithm>
#include <cstdio>

namespace kasane::bench {
namespace {

std::string names_of_all() {
  std::string names;
  for (const auto& name : all_system_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

int list(const std::string& bin) {
  for (const Over over : {Over::memory, Over::tcp}) {
    std::printf("%s\n", over == Over::memory ? "over shared memory:" : "over tcp:");
    for (const System& s : installed_systems(bin, over)) std::printf("  %-22s %s\n", s.name.c_str(), s.description.c_str());
  }
  return 0;
}

void play(const std::string& suite, const std::string& bin, const SuiteOptions& options, const PlayOver& play_over) {
  const auto here = installed_systems(bin);
  // Refuses what is not here before anything starts.
  (void)choose(here, options.systems);
  if (!options.against.empty()) (void)choose(here, {options.against});
  stop_on_signals();
  Report report(suite, roles_of(here));
  report.against(options.against);
  for (const auto& name : options.over) {
    const Over over = name == "tcp" ? Over::tcp : Over::memory;
    std::vector<System> systems = installed_systems(bin, over);
    std::erase_if(systems, [&](const System& s) {
      return !options.systems.empty() && std::find(options.systems.begin(), options.systems.end(), s.name) == options.systems.end();
    });
    if (!systems.empty()) play_over(over, systems, report);
  }
  if (options.json != "-") report.print();
  write(options.json, report.rows());
}

}  // namespace

void add_suite_options(apps::Options& line, SuiteOptions& options, const SuiteHelp& help) {
  line.choices("--systems", options.systems, {}, "only these (" + names_of_all() + ")");
  line.numbers("--threads", options.threads, help.threads, 1, kMaxThreads);
  line.numbers("--sizes", options.sizes, help.sizes, 8, std::uint64_t{64} << 20);
  line.choices("--over", options.over, {"memory", "tcp"}, help.over);
  line.number("--repetitions", options.repetitions, "interleaved repetitions (0: 7; with --quick: 3)", 0, 1000);
  line.toggle("--quick", options.quick, help.quick);
  line.toggle("--list", options.list, "say which systems are here, and end");
  line.text("--against", options.against, "the peer that Kasane's systems are compared with (default: at each point the best one)", "NAME");
  line.text("--json", options.json, kJsonHelp);
}

int run_suite(const std::string& suite, const SuiteOptions& options, const PlayOver& play_over) {
  return or_told("kasane bench " + suite, [&] {
    const std::string bin = own_folder() + "/";
    if (options.list) return list(bin);
    play(suite, bin, options, play_over);
    return 0;
  });
}

}  // namespace kasane::bench
