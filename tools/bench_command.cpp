// SPDX-License-Identifier: Apache-2.0
// kasane bench SUITE: becomes kasane-bench-SUITE (base/helper_folder.h says where they lie).
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "execute.h"
#include "base/helper_folder.h"
#include "usage.h"

namespace kasane::tools {
namespace {

constexpr char kPrefix[] = "kasane-bench-";

std::string suites() {
  std::vector<std::string> names;
  std::error_code ignored;   // no folder, no suites
  for (const auto& folder : helper_folders()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind(kPrefix, 0) == 0) names.push_back(name.substr(sizeof kPrefix - 1));
    }
    if (!names.empty()) break;
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

Command make_bench(CLI::App& kasane) {
  CLI::App* app = kasane.add_subcommand("bench", "Run a suite of micro-benchmarks");
  set_usage(*app, "kasane bench SUITE [ARGUMENTS...]");
  app->footer("Suites: " + suites() + ". kasane bench SUITE --help is the suite's own help.\nEvery suite takes --json FILE; kasane plot draws it.");
  auto command = std::make_shared<std::vector<std::string>>();
  app->add_option("SUITE", *command, "which, and its own arguments")->required();
  app->positionals_at_end();
  return {app, [command] {
            const std::string program = kPrefix + command->front(), path = find_helper(program);
            command->front() = path.empty() ? program : path;
            return execute(*command, "suites here: " + suites());
          }};
}

}  // namespace kasane::tools
