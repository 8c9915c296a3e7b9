// SPDX-License-Identifier: Apache-2.0
// The subcommands of the kasane command. Each make_ function adds one to the command line; if the user gave
// it, main calls `run`, which returns the exit status.
// They are made once and live until the command ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/options.h"

namespace CLI {
class App;
}

namespace kasane::tools {

struct Command {
  CLI::App* app;
  std::function<int()> run;
  const OptionTable* options = nullptr;  ///< its flags, if they are a table's
};

/// run [options] [--] PROGRAM [ARGUMENTS]: starts a program over several ranks.
Command make_run(CLI::App& kasane);
/// info: what this machine offers.
Command make_info(CLI::App& kasane);
/// bench SUITE [ARGUMENTS]: runs the benchmark program of that name.
Command make_bench(CLI::App& kasane);
/// agent: what run --hosts starts on each host (hosts.h).
Command make_agent(CLI::App& kasane);
/// plot FILE…: draws benchmark results.
Command make_plot(CLI::App& kasane);
/// help [COMMAND]. `commands` are all of them, it included, when the command line has been read.
Command make_help(CLI::App& kasane, const std::vector<Command>& commands);
/// version: as --version.
Command make_version(CLI::App& kasane);

/// "kasane 0.2.0"
std::string version_text();

}  // namespace kasane::tools
