// SPDX-License-Identifier: Apache-2.0
// The usage line of a subcommand. CLI11 makes it from the options; where the rest of the command line belongs
// to another program, it is given here.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace kasane::tools {

/// line: the whole line, as "kasane run [OPTIONS] …".
void set_usage(CLI::App& app, std::string line);

}  // namespace kasane::tools
