// SPDX-License-Identifier: Apache-2.0
// An option table's rows as CLI11 options. Only for programs with a command line: CLI11 itself stays out of this header.
#pragma once

#include "base/options.h"

namespace CLI {
class App;
}

namespace kasane {

/// Adds every row that has a flag to app. The table must live until the command line is parsed; a value that cannot be
/// used throws CLI::ValidationError with the table's message. A flag row also gets its negation --no-NAME.
void add_flags(CLI::App& app, OptionTable& table);

}  // namespace kasane
