// SPDX-License-Identifier: Apache-2.0
// kasane bench SUITE: becomes kasane-bench-SUITE (base/helper_folder.h says where they lie). kasane bench
// all, reproduce: become Python with our script, which runs suites.
#include <fmt/format.h>

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/helper_folder.h"
#include "base/nearest.h"
#include "commands.h"
#include "execute.h"
#include "suites.h"
#include "usage.h"

namespace kasane::tools {
namespace {

constexpr char kUsage[] = "kasane bench SUITE|all|reproduce [ARGUMENTS...]";
constexpr char kTogether[] =
    "Together:\n"
    "  kasane bench all [--quick]   every suite, and a page of all results\n"
    "  kasane bench reproduce       the figures of README.md, beside what it says\n";

constexpr char kNotHere[] =
    "suites are built with KASANE_BUILD_BENCH=ON, and installed by the component bench";

std::string list() {
  std::string text;
  for (const bench::Suite& suite : bench::kSuites)
    text += fmt::format("  {:<12} {}\n", suite.name, suite.what);
  return text;
}

int run(std::vector<std::string> command) {
  if (command.empty()) {
    fmt::print("Usage: {}\n\nSuites:\n{}\n{}\nkasane bench SUITE --help says its flags.\n", kUsage, list(),
               kTogether);
    return 0;
  }
  std::vector<std::string> names;
  for (const bench::Suite& suite : bench::kSuites) names.emplace_back(suite.name);
  if (command.front() == "all" || command.front() == "reproduce") {
    const std::string script = find_helper("together.py");
    if (script.empty()) return execute({"together.py"}, kNotHere);
    command.insert(command.begin(), {"python3", script, std::filesystem::read_symlink("/proc/self/exe"),
                                     fmt::format("{}", fmt::join(names, " "))});
    return execute(std::move(command), "install Python: apt-get install python3");
  }
  if (std::find(names.begin(), names.end(), command.front()) == names.end()) {
    fmt::print(stderr, "kasane: there is no suite {}{}\nkasane: see kasane bench\n", command.front(),
               suggestion(command.front(), names));
    return 2;
  }
  const std::string program = "kasane-bench-" + command.front(), path = find_helper(program);
  command.front() = path.empty() ? program : path;
  return execute(std::move(command), kNotHere);
}

}  // namespace

Command make_bench(CLI::App& kasane) {
  CLI::App* app = kasane.add_subcommand("bench", "Run a suite of micro-benchmarks; alone: list them");
  set_usage(*app, kUsage);
  app->footer("Suites:\n" + list() + kTogether +
              "kasane bench SUITE --help says its flags; kasane plot draws what --json FILE wrote.");
  auto command = std::make_shared<std::vector<std::string>>();
  app->add_option("SUITE", *command, "which, and its own arguments");
  app->positionals_at_end();
  return {app, [command] { return run(*command); }};
}

}  // namespace kasane::tools
