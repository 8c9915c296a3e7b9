// SPDX-License-Identifier: Apache-2.0
// The kasane command. Exit status: that of the program that it becomes; 2: the command line cannot be used;
// 126, 127: as in a shell, the program cannot be executed, or does not exist.
#include <algorithm>
#include <cerrno>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "base/options_cli.h"
#include "base/standard_descriptors.h"
#include "commands.h"

namespace {

constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app(
      "Kasane: threads, pointers and new over one global address space that spans several processes.",
      "kasane");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", kasane::tools::version_text(), "Print the version and exit");
  app.set_help_all_flag("--help-all", "Print the help of all commands and exit");
  std::vector commands{kasane::tools::make_run(app), kasane::tools::make_info(app),
                       kasane::tools::make_bench(app), kasane::tools::make_plot(app)};
  commands.push_back(kasane::tools::make_help(app, commands));
  commands.push_back(kasane::tools::make_version(app));
  commands.push_back(kasane::tools::make_agent(app));
  app.failure_message([&commands](const CLI::App* where, const CLI::Error& e) {
    const auto given =
        std::ranges::find_if(commands, [](const auto& command) { return command.app->parsed(); });
    const kasane::OptionTable* const options = given != commands.end() ? given->options : nullptr;
    return "kasane: " + kasane::explain(*where, e, options) + "\nkasane: see kasane " +
           (given != commands.end() ? given->app->get_name() + " " : "") + "--help\n";
  });
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  for (const auto& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  kasane::open_standard_descriptors();
  try {
    const int status = run(argc, argv);
    if (status != 0 || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return status;
    std::fprintf(stderr, "kasane: standard output cannot be written: %s\n", std::strerror(errno));
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane: %s\n", e.what());
    return 1;
  }
}
