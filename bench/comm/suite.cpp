// SPDX-License-Identifier: Apache-2.0
#include "suite.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

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
  if (options.json.empty()) return;
  if (const auto written = report.write(options.json); !written) throw std::runtime_error(written.error().message);
}

}  // namespace

void add_suite_options(CLI::App& app, SuiteOptions& options, const SuiteHelp& help) {
  app.add_option("--systems", options.systems, "only these (" + names_of_all() + ")")->delimiter(',')->type_name("NAME,...");
  app.add_option("--threads", options.threads, help.threads)->delimiter(',')->type_name("N,...")->check(CLI::Range(1u, kMaxThreads));
  app.add_option("--sizes", options.sizes, help.sizes)->delimiter(',')->type_name("BYTES,...")->check(CLI::Range(std::uint64_t{8}, std::uint64_t{64} << 20));
  app.add_option("--over", options.over, help.over)->delimiter(',')->check(CLI::IsMember({"memory", "tcp"}));
  app.add_option("--repetitions", options.repetitions, "interleaved repetitions (default 7; --quick: 3)")->type_name("N");
  app.add_flag("--quick", options.quick, help.quick);
  app.add_flag("--list", options.list, "say which systems are here, and end");
  app.add_option("--against", options.against, "the peer that Kasane's systems are compared with (default: at each point the best one)")->type_name("NAME");
  app.add_option("--json", options.json, "write the rows to FILE too (- for standard output)")->type_name("FILE");
}

int run_suite(const std::string& suite, const SuiteOptions& options, const PlayOver& play_over) {
  try {
    const std::string bin = std::filesystem::canonical("/proc/self/exe").parent_path().string() + "/";
    if (options.list) return list(bin);
    play(suite, bin, options, play_over);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane bench %s: %s\n", suite.c_str(), e.what());
    return 1;
  }
}

}  // namespace kasane::bench
