// SPDX-License-Identifier: Apache-2.0
// CLI11 words the usage line from the options it knows; where the rest of the line belongs to another program, we word it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace kasane::tools {

/// line: all of it, as "kasane run [OPTIONS] …".
void set_usage(CLI::App& app, std::string line);

}  // namespace kasane::tools
