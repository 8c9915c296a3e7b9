// SPDX-License-Identifier: Apache-2.0
// kasane plot FILE…: becomes Python with our script, which draws by matplotlib (kasane-plot.py).
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/helper_folder.h"
#include "commands.h"
#include "execute.h"

namespace kasane::tools {

Command make_plot(CLI::App& kasane) {
  struct Plot {
    std::vector<std::string> files;
    std::string output;
  };
  auto state = std::make_shared<Plot>();
  CLI::App* app =
      kasane.add_subcommand("plot", "Draw benchmark results (the files of kasane bench SUITE --json FILE)");
  app->add_option(
         "FILE", state->files,
         "results: a list of {suite, case, system, ranks, threads, bytes, value, unit, repetitions, spread}")
      ->required()
      ->check(CLI::ExistingFile);
  app->add_option(
      "-o,--output", state->output,
      "page or image to write (.html, .svg, .png, .pdf; default: the first FILE's name with .html)");
  return {app, [state] {
            std::vector<std::string> command{"python3", find_helper("kasane-plot.py")};
            if (!state->output.empty()) command.insert(command.end(), {"--output", state->output});
            command.insert(command.end(), {"--"});
            command.insert(command.end(), state->files.begin(), state->files.end());
            return execute(command, "install Python: apt-get install python3 python3-matplotlib");
          }};
}

}  // namespace kasane::tools
